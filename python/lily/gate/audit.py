"""The audit log: what was decided, when and why, and not a character of the text.

This file owns the lines, one JSON object each, their chain and their rotation. A line has
categories, counts, rule ids and keyed digests; without the key, which stays beside the file, nobody
can try values against a digest. A name of a destination that the settings do not have could itself
be private, and is digested too. It knows no detector and no policy.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lily.gate.findings import Verdict
from lily.gate.settings import AuditSettings, Settings, Trust

try:
    import fcntl
except ImportError:  # a system without it; the thread lock is then the only one
    fcntl = None  # type: ignore[assignment]

_KEY_BYTES = 32
_TAIL_BYTES = 2**16
_CHAIN_BYTES = 80  # what the chain adds to a line, and its end
_BANDS = ((0.99, "validated"), (0.8, "high"), (0.5, "middle"), (0.0, "low"))


class AuditLog:
    """Appends verdicts to a file. Threads and processes may share it.

    Raises OSError where the file or its key cannot be written; the gate decides what follows.
    """

    def __init__(self, settings: AuditSettings, clock: Callable[[], float] = time.time) -> None:
        if settings.file is None:
            raise ValueError("an audit log needs a file")
        self._settings = settings
        self._file = Path(settings.file)
        self._clock = clock
        self._lock = threading.Lock()

    def write(self, verdict: Verdict, text: str, conversation: str, settings: Settings) -> None:
        """Add the line of one verdict."""
        with self._locked() as key:
            line = self._line(verdict, text, conversation, settings, key)
            if self._size() + len(_canonical(line)) + _CHAIN_BYTES > self._settings.max_bytes:
                self._rotate()
            line["chain"] = _digest(key, self._last_chain() + _canonical(line))
            data = (_canonical(line) + "\n").encode()
            with open(self._file, "ab", opener=_private) as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())

    def broken(self) -> int | None:
        """Number (from 1) of the first line of the current file that was changed; None if none."""
        with self._locked() as key:
            before = _chain_of(self._older(1))
            for number, raw in enumerate(self._file.read_bytes().splitlines(), 1):
                try:
                    line = json.loads(raw)
                    chain = line.pop("chain")
                except (ValueError, KeyError, AttributeError):
                    return number
                if chain != _digest(key, before + _canonical(line)):
                    return number
                before = chain
        return None

    def _line(
        self, verdict: Verdict, text: str, conversation: str, settings: Settings, key: bytes
    ) -> dict[str, Any]:
        where = settings.destination(verdict.destination)
        named = where.name in settings.destinations or where.name in ("local", "cloud")
        categories = Counter(one.category.value for one in verdict.findings)
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            "outcome": verdict.outcome.value,
            "destination": where.name if named else _digest(key, where.name)[:16],
            "trust": where.trust.value if named else Trust.UNTRUSTED.value,
            "rules": list(verdict.rules),
            "categories": dict(sorted(categories.items())),
            "found_by": dict(sorted(Counter(one.rule for one in verdict.findings).items())),
            "confidence": dict(Counter(_band(one.confidence) for one in verdict.findings)),
            "topics": sorted(f"{one.topic.value}/{one.subject.value}" for one in verdict.topics),
            "masked": len(verdict.masks),
            "chars_up_to": 1 << len(text).bit_length(),
            "text": _digest(key, text),
            "conversation": _digest(key, conversation),
            "settings": _digest(key, repr(settings))[:16],
        }

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bytes]:
        """The key, while no other thread or process writes."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        path = self._file.with_name(self._file.name + ".key")
        with self._lock, open(path, "a+b", opener=_private) as held:
            if fcntl is not None:
                fcntl.flock(held, fcntl.LOCK_EX)
            held.seek(0)
            key = held.read()
            if not key:
                key = secrets.token_bytes(_KEY_BYTES)
                held.write(key)
                held.flush()
            if len(key) != _KEY_BYTES:
                raise OSError(f"{path} has {len(key)} bytes, expected {_KEY_BYTES}: it is damaged")
            yield key

    def _size(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def _older(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")

    def _rotate(self) -> None:
        if not self._file.exists():
            return
        keep = self._settings.keep
        for number in range(keep, 0, -1):
            newer = self._file if number == 1 else self._older(number - 1)
            if newer.exists():
                newer.replace(self._older(number))
        if keep == 0:
            self._file.unlink()

    def _last_chain(self) -> str:
        return _chain_of(self._file) or _chain_of(self._older(1))


def _chain_of(path: Path) -> str:
    """The chain of a file's last line; empty where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as lines:
        lines.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        last = lines.read().splitlines()[-1:]
    try:
        return str(json.loads(last[0])["chain"]) if last else ""
    except (ValueError, KeyError, TypeError):
        return "damaged"


def _canonical(line: dict[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, separators=(",", ":"))


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _band(confidence: float) -> str:
    return next(name for low, name in _BANDS if confidence >= low)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
