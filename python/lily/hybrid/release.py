"""What may leave: every text for the planner is turned into ``Released`` here, or stays.

This file owns the four outcomes as they are carried out. ``outbound`` takes nothing but
``Released`` texts, which nobody else can make, so that no path leads around the gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from lily.gate import Category, Context, Gate, Outcome, Verdict
from lily.hybrid.errors import Kept, Refused
from lily.hybrid.leaks import LeakGuard
from lily.hybrid.receipt import Decision, Receipt
from lily.hybrid.settings import ReleaseSettings

_TOO_LONG = "results of private material leave in short form only"
_SPENT = "as much as the settings allow has already left in this run"
_COMPUTED = "it was computed from private values"
_TINY = "it is a single character or two, of which a planner could ask one after another"
_CARRIES = "it carries words or numbers of the private material"


@dataclass(frozen=True)
class ConsentRequest:
    """What a person is asked: whether this may go there.

    Attributes:
        text: exactly what would be sent, after masking.
        reasons: why the gate asks.
    """

    what: str
    destination: str
    text: str
    reasons: tuple[str, ...]


_FEWEST_CHARACTERS = 3
_OF_THE_TASK = (Category.AMOUNT, Category.DATE)
Consent = Callable[[ConsentRequest], bool]


class Released:
    """A text that may leave. Made by ``Release`` alone, or from the program's own constants."""

    __slots__ = ("text",)

    def __init__(self, text: str, *, _by: object) -> None:
        if _by is not _RELEASE:
            raise TypeError("texts are released by Release")
        self.text = text


_RELEASE = object()


def constant(text: str) -> Released:
    """The program's own words, written in its source."""
    return Released(text, _by=_RELEASE)


def echo(text: str) -> Released:
    """The planner's own words, or what follows from them alone: no news to it.

    Judging them would be some: whether they look private here.
    """
    return Released(text, _by=_RELEASE)


class Release:
    """Carries out the gate's verdicts for one run, and notes each in the receipt."""

    def __init__(
        self,
        gate: Gate,
        guard: LeakGuard,
        receipt: Receipt,
        *,
        destination: str,
        limits: ReleaseSettings,
        consent: Consent | None,
    ) -> None:
        self._gate, self._guard, self._receipt = gate, guard, receipt
        self._destination, self._limits, self._consent = destination, limits, consent
        self._told: list[str] = []

    def learn(self, text: str) -> None:
        """Private material: none of its peculiar words may leave from now on. Raises Kept.

        That is what the gate finds in it, without sums and days: they are what tasks are about, and
        the gate judges them again in each result.
        """
        verdict = self._inspect(text)
        if text.strip() and not verdict.masked:  # not judged, so nobody knows what is private in it
            raise self._keep("material", verdict.reasons)
        self._guard.learn(text, _values(text, verdict))

    def task(self, text: str) -> Released:
        """What the user typed. Raises Refused, or Kept where it must be done here."""
        verdict = self._inspect(text)
        released = self._pass("task", text, verdict)
        if released.text != text:
            self._guard.learn("", _values(text, verdict))
        self.permit(released)
        return released

    def permit(self, released: Released) -> None:
        """What may leave anyway must not block what stands beside it."""
        self._guard.permit(released.text)

    def computed(self, what: str) -> Kept:
        """What was computed from private values: nothing of it leaves, it could be turned back."""
        return self._keep(what, (_COMPUTED,))

    def result(self, text: str, what: str) -> Released:
        """What was made from private material. Raises Kept."""
        limits = self._limits
        if sum(map(str.isalnum, text)) < _FEWEST_CHARACTERS:
            raise self._keep(what, (_TINY,))
        if len(text) > limits.max_result_characters:
            raise self._keep(what, (_TOO_LONG,))
        if sum(map(len, self._told)) + len(text) > limits.max_run_characters:
            raise self._keep(what, (_SPENT,))
        verdict = self._inspect(text)
        # After masking: a name that is masked is no leak, its other half may be.
        found = self._guard.finds(verdict.masked, derived=True)
        if found or self._guard.finds_in_series([*self._told, verdict.masked]):
            raise self._keep(what, (_CARRIES,))
        try:
            released = self._pass(what, text, verdict)
        except Refused as refused:
            raise Kept(refused.reasons) from None
        self._told.append(released.text)
        return released

    def body(self, text: str) -> None:
        """A whole request, once more, before its first byte leaves. Raises Kept."""
        if self._guard.finds(text, derived=False):
            raise self._keep("request", (_CARRIES,))

    def _inspect(self, text: str) -> Verdict:
        context = Context(can_ask=self._consent is not None, can_run_locally=True)
        return self._gate.inspect(text, self._destination, context)

    def _pass(self, what: str, text: str, verdict: Verdict) -> Released:
        outcome = verdict.outcome
        masked = dict(Counter(mask.finding.category.value for mask in verdict.masks))
        if outcome is Outcome.REFUSE:
            self._note(what, "refuse", verdict.reasons)
            raise Refused(verdict.reasons)
        if outcome is Outcome.LOCAL:
            raise self._keep(what, verdict.reasons)
        if outcome is Outcome.ASK:
            request = ConsentRequest(what, self._destination, verdict.masked, verdict.reasons)
            agreed = bool(self._consent and self._consent(request))
            if not agreed:
                raise self._keep(what, verdict.reasons, consent=False)
            self._note(what, "ask", verdict.reasons, masked, consent=True)
        else:
            self._note(what, outcome.value, verdict.reasons, masked)
        return Released(verdict.masked, _by=_RELEASE)

    def _keep(self, what: str, reasons: tuple[str, ...], consent: bool | None = None) -> Kept:
        self._note(what, "local", reasons, consent=consent)
        return Kept(reasons)

    def _note(
        self,
        what: str,
        outcome: str,
        reasons: tuple[str, ...],
        masked: dict[str, int] | None = None,
        consent: bool | None = None,
    ) -> None:
        self._receipt.decisions.append(Decision(what, outcome, reasons, masked or {}, consent))


def _values(text: str, verdict: Verdict) -> list[str]:
    found = (one for one in verdict.findings if one.category not in _OF_THE_TASK)
    return [text[one.start : one.end] for one in found]
