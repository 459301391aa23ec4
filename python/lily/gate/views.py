"""Views: other ways to read a text in which something private can hide.

This file owns the decoders (percent, HTML, string escapes, quoted-printable, base64, hex), values
that are spelled out, letter-spaced or broken over lines, and tables whose headers are the only
context. Each view is an edited reading, so what is found in it has its span in the original. It
knows no recogniser. A view exists only where it differs, so plain text costs nothing twice.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator

from lily.gate.folding import folded
from lily.gate.readings import Edit, Reading
from lily.gate.spelling import spelling_edits
from lily.gate.tables import table_edits

_MAX_DEPTH = 2  # decoders applied to what decoders gave
_MAX_ENCODED = 65_536  # characters of one encoded run that are looked at
_MIN_PRINTABLE = 0.95  # share of printable characters that makes decoded bytes text

_SIMPLE_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "/": "/", '"': '"', "'": "'", "\\": "\\"}

_ENCODED = re.compile(
    r"(?P<percent>(?:%[0-9A-Fa-f]{2}){1,4096})"
    r"|(?P<html>&(?:\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});)"
    r"|(?P<escape>\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[nrt/\"'\\]))"
    r"|(?P<soft>=[ \t]{0,8}\r?\n)"
    r"|(?<![A-Za-z0-9+/_=.-])(?P<hex>(?:0x)?(?:[0-9A-Fa-f]{2}){12,32768})(?![A-Za-z0-9+/_=-])"
    rf"|(?<![A-Za-z0-9+/_=.-])(?P<base64>[A-Za-z0-9+/_-]{{16,{_MAX_ENCODED}}}={{0,2}})"
    r"(?![A-Za-z0-9+/_=-])"
)
_MAY_BE_ENCODED = re.compile(r"[%&\\]|=[ \t]{0,8}\r?\n|[A-Za-z0-9+/_-]{16}")


def _as_text(data: bytes) -> str | None:
    """Bytes as text, where they are text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    shown = sum(each.isprintable() or each in "\r\n\t" for each in text)
    return text if text and shown >= _MIN_PRINTABLE * len(text) else None


def _percent(run: str) -> str | None:
    return _as_text(bytes.fromhex(run.replace("%", "")))


def _html(entity: str) -> str | None:
    decoded = html.unescape(entity)
    return decoded if decoded != entity else None


def _escape(escape: str) -> str | None:
    kind = escape[1]
    if kind in "ux":
        character = chr(int(escape[2:], 16))
        return None if "\ud800" <= character <= "\udfff" else character
    return _SIMPLE_ESCAPES[kind]


def _hex(run: str) -> str | None:
    decoded = _as_text(bytes.fromhex(run.removeprefix("0x")))
    return f"\n{decoded}\n" if decoded else None


def _base64(run: str) -> str | None:
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    if len(body) % 4 == 1:
        return None
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except binascii.Error:
        return None
    decoded = _as_text(data)
    return f"\n{decoded}\n" if (decoded and decoded.isascii()) or _mostly_letters(decoded) else None


def _mostly_letters(decoded: str | None) -> bool:
    """Whether non-ASCII text is words and not chance."""
    if not decoded:
        return False
    return sum(each.isalnum() or each.isspace() for each in decoded) >= 0.8 * len(decoded)


_DECODERS: dict[str, Callable[[str], str | None]] = {
    "percent": _percent,
    "html": _html,
    "escape": _escape,
    "soft": lambda _: "",
    "hex": _hex,
    "base64": _base64,
}


def _percent_edits(run: str, start: int) -> Iterator[Edit]:
    """Byte by byte where that is ASCII, so that spans stay least; the run as a whole otherwise."""
    decoded = _percent(run)
    if decoded is not None and decoded.isascii():
        for index, character in enumerate(decoded):
            yield start + 3 * index, start + 3 * index + 3, character
    elif decoded is not None:
        yield start, start + len(run), decoded


def decoding_edits(text: str) -> list[Edit]:
    """What all decoders see, once."""
    if not _MAY_BE_ENCODED.search(text):
        return []
    edits: list[Edit] = []
    for match in _ENCODED.finditer(text):
        kind, run = match.lastgroup or "", match.group()
        if kind == "percent":
            edits.extend(_percent_edits(run, match.start()))
            continue
        decoded = _DECODERS[kind](run)
        if decoded is None and kind == "hex":
            decoded = _base64(run)
        if decoded is not None:
            edits.append((match.start(), match.end(), decoded))
    return edits


def views(copy: Reading) -> Iterator[Reading]:
    """All views of a detection copy that differ from it."""
    reading = copy
    for depth in range(1, _MAX_DEPTH + 1):
        decoded = reading.edited(f"decoded{depth}", decoding_edits(reading.text))
        if decoded is None:
            break
        reading = folded(decoded)
        yield reading
    for name, edits in (("spelled", spelling_edits), ("table", table_edits)):
        view = copy.edited(name, edits(copy.text))
        if view is not None:
            yield view
