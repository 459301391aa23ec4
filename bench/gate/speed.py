"""What the gate costs: milliseconds of a whole inspection by length, and sockets opened.

This file owns the texts and the audit hook. It knows no quality.
"""

from __future__ import annotations

import sys

from bench.gate.arms import Lily, Presidio
from bench.harness import Report, Summary, interleave, timed

CHARACTERS = (80, 400, 10_000, 100_000)
_SHORT_S = 0.1
_TEXT = (
    "Please tell Maria Keller at 14 Linden Street in Leeds that her appointment has moved to the "
    "second of June, and ask whether her insurance covers the new tablets. She can call me back "
    "after five on +44 161 496 0000. Otherwise the report on last quarter's sales is ready for "
    "review, and nobody has said yet who will present it to the board. "
)


def of_length(count: int) -> str:
    """Text of so many characters."""
    return (_TEXT * (count // len(_TEXT) + 1))[:count]


class Sockets:
    """Counts the sockets that this process opens from now on; a hook cannot be taken off."""

    def __init__(self) -> None:
        self.opened = 0
        sys.addaudithook(self._hook)

    def _hook(self, event: str, _: object) -> None:
        self.opened += event in ("socket.__new__", "socket.connect", "socket.getaddrinfo")


def measure(report: Report, lily: Lily, peer: Presidio | None, rounds: int) -> None:
    """Add the figures. The peer's run after the gate's own, in their process."""

    def arm(text: str) -> object:
        once = timed(lambda: lily.verdict(text))
        repeats = max(1, int(_SHORT_S / once))

        def call() -> float:
            took = timed(lambda: [lily.verdict(text) for _ in range(repeats)])
            return took / repeats * 1e3

        return call

    arms = {f"{count:,} characters": arm(of_length(count)) for count in CHARACTERS}
    for name, summary in interleave(arms, rounds=rounds).items():  # type: ignore[arg-type]
        report.add({"arm": "lily", "text": name}, "ms", summary)
    if peer is not None:
        texts = [of_length(count) for count in CHARACTERS[:2] for _ in range(3 * rounds)]
        _, took = peer.timed(texts)
        for index, count in enumerate(CHARACTERS[:2]):
            own = took[index * 3 * rounds : (index + 1) * 3 * rounds]
            labels = {"arm": "presidio", "text": f"{count:,} characters"}
            report.add(labels, "ms", Summary(tuple(own)))
