"""The gate: what may happen with a text that would leave this machine.

This file owns the order of work (look, decide, mask, look again, log) and that every failure on the
way keeps the text here. It knows no rule and no way to find anything. Texts are judged in
``inspection``.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lily.errors import InvalidInput, ModelError
from lily.gate.audit import AuditLog
from lily.gate.bounded import Bounded
from lily.gate.detectors import BuiltIn, Detectors
from lily.gate.facts import Context
from lily.gate.findings import Outcome, Verdict
from lily.gate.inspection import Inspection, Judged
from lily.gate.judge import Judge
from lily.gate.masking import Vault
from lily.gate.messages import ChatVerdict, Parts, parts_of
from lily.gate.policy import combined, fault, judged_again, plain_decision
from lily.gate.settings import Destination, Settings, Trust
from lily.gate.unmask import Unmasker, unmask, unmask_json

_log = logging.getLogger("lily.gate")
_BOUNDED = Bounded()  # one for all: late calls of one gate burden the others too
DEFAULT_DESTINATION = "cloud"


class Gate:
    """Judges texts of one conversation. Threads may share it. It opens no socket.

    Args:
        settings: a ``Settings``, or the path of a TOML file; the defaults without.
        conversation: an id for the audit log, where only its keyed digest appears; random without.
        detectors: in place of those in the package.
        judge: hears the texts of which the first stage is not sure, see ``lily.gate.judge``.

    Example:
        >>> gate = Gate()                                                  # doctest: +SKIP
        >>> verdict = gate.inspect("Write to ann@example.org", "cloud")    # doctest: +SKIP
        >>> verdict.outcome, verdict.masked                                # doctest: +SKIP
        (<Outcome.MASK: 'mask'>, 'Write to [EMAIL_1_k3vt]')
    """

    def __init__(
        self,
        settings: Settings | str | Path | None = None,
        *,
        conversation: str | None = None,
        detectors: Detectors | None = None,
        judge: Judge | None = None,
    ) -> None:
        if settings is None:
            settings = Settings()
        elif not isinstance(settings, Settings):
            settings = Settings.load(settings)
        self.settings = settings
        self._conversation = conversation or secrets.token_hex(16)
        self._inspection = Inspection(settings, detectors or BuiltIn(settings.country))
        self._judge = judge
        self._audit = AuditLog(settings.audit) if settings.audit.file is not None else None
        self._vaults: dict[str, Vault] = {}
        self._lock = threading.Lock()

    def inspect(
        self,
        text: str,
        destination: str = DEFAULT_DESTINATION,
        context: Context | None = None,
    ) -> Verdict:
        """The verdict on a text. Whatever goes wrong, it is not "allow".

        Args:
            text: as it would be sent.
            destination: a name of the settings, "local" or "cloud"; any other is not trusted.
            context: what is known of the step; see ``Context``.

        Raises InvalidInput for what is no text. KeyboardInterrupt passes through.
        """
        if not isinstance(text, str):
            raise InvalidInput(f"text is {type(text).__name__}, expected a string")
        verdict, _ = self._inspect(Parts.of_text(text), destination, context or Context())
        return verdict

    def inspect_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        destination: str = DEFAULT_DESTINATION,
        context: Context | None = None,
    ) -> ChatVerdict:
        """The verdict on a whole chat, in OpenAI's or Anthropic's form, with its tool calls.

        All texts are judged together, so that a value split over messages is found. What is no text
        (an image, a file) cannot be judged and stays here.
        """
        parts = parts_of(messages)
        verdict, masked = self._inspect(parts, destination, context or Context())
        return ChatVerdict(
            verdict,
            parts.rebuilt(masked) if masked is not None else [],
            parts.places(verdict.findings),
        )

    def unmask(self, text: str, destination: str = DEFAULT_DESTINATION) -> str:
        """An answer of this destination with the originals in it."""
        return unmask(text, self.vault(destination))

    def unmask_arguments(self, arguments: str, destination: str = DEFAULT_DESTINATION) -> str:
        """A tool call's JSON arguments with the originals in it, escaped as JSON.

        The restored call is private again: where it goes elsewhere, it must be inspected again.
        """
        return unmask_json(arguments, self.vault(destination))

    def unmasker(
        self, destination: str = DEFAULT_DESTINATION, *, inside_json: bool = False
    ) -> Unmasker:
        """The same for one stream of pieces."""
        return Unmasker(self.vault(destination), inside_json=inside_json)

    def vault(self, destination: str) -> Vault:
        """What this conversation's placeholders stand for at one destination, and at no other."""
        with self._lock:
            return self._vaults.setdefault(destination, Vault())

    def _inspect(
        self, parts: Parts, destination: str, context: Context
    ) -> tuple[Verdict, list[str] | None]:
        """The verdict, and the masked texts of the parts; None where they may not be seen."""
        if not isinstance(destination, str) or not destination:
            raise InvalidInput(f"destination is {destination!r}, expected a name")
        where = self.settings.destination(destination)
        if where.trust is Trust.LOCAL:
            decision = plain_decision("destination.local")
            judged = Judged(decision, texts=list(parts.texts))
        else:
            judged = self._judged(parts, where, context)
        verdict = judged.verdict(parts, where.name)
        failure = self._logged(verdict, parts)
        if failure is not None and where.trust is not Trust.LOCAL:
            judged = Judged(fault("audit.failed", context, failure))
            verdict = judged.verdict(parts, where.name)
        return verdict, judged.texts

    def _judged(self, parts: Parts, where: Destination, context: Context) -> Judged:
        total = len(parts.joined)
        limit = self.settings.max_chars
        if total > limit:
            detail = f"{total} characters, at most {limit} are judged"
            return Judged(fault("length.over", context, detail))
        deadline = time.monotonic() + self.settings.time_budget_s
        try:
            vault = self.vault(where.name)
            judged = self._in_time(
                lambda: self._inspection.judge(parts, where, context, vault), deadline
            )
        except _LateError as error:
            return Judged(fault("time.over", context, str(error)))
        except Exception as error:  # a text that nobody has judged must not leave
            _log.warning("the gate failed: %s", type(error).__name__)
            return Judged(fault("detector.failed", context, _cause(error)))
        if parts.unread:
            unread = fault("content.unread", context, ", ".join(sorted(parts.unread)))
            judged = judged.with_decision(combined(judged.decision, unread))
        return self._second_opinion(judged, parts, context, deadline)

    def _second_opinion(
        self, judged: Judged, parts: Parts, context: Context, deadline: float
    ) -> Judged:
        """A judge that fails, or is late, is not heard."""
        judge, decision = self._judge, judged.decision
        if judge is None or not decision.soft:
            return judged
        try:
            wanted = self._in_time(lambda: judge.opinion(parts.joined), deadline)
            return judged.with_decision(judged_again(decision, wanted, context))
        except Exception as error:
            _log.warning("the judge failed: %s", type(error).__name__)
            return judged

    def _in_time(self, call: Callable[[], Any], deadline: float) -> Any:
        try:
            return _BOUNDED.run(call, deadline - time.monotonic())
        except TimeoutError as error:
            raise _LateError(str(error)) from None

    def _logged(self, verdict: Verdict, parts: Parts) -> str | None:
        """What failed, where the text must stay here for it."""
        if self._audit is None:
            return None
        try:
            self._audit.write(verdict, parts.joined, self._conversation, self.settings)
        except Exception as error:
            _log.warning("the audit log could not be written: %s", type(error).__name__)
            if self.settings.audit.on_failure == "local" and verdict.outcome is not Outcome.REFUSE:
                return type(error).__name__
        return None


def _cause(error: Exception) -> str:
    """What failed. Only messages that hold no text of the user are shown."""
    shown = isinstance(error, (ImportError, ModelError))
    return f"{type(error).__name__}: {error}" if shown else type(error).__name__


class _LateError(Exception):
    """The time is over."""
