"""The errors of hybrid runs, and the two ways in which a text does not leave.

``Kept`` and ``Refused`` carry reasons in words that quote no private text; everything that a
planner is told about a failure is one of the constants in ``tools``, never the text of an
exception.
"""

from __future__ import annotations

from lily.errors import LilyError


class HybridError(LilyError):
    """A hybrid run could not be done as it was asked for; the message says what would help."""


class PlannerError(HybridError):
    """The planner could not be reached, answered with an error, or answered nonsense."""


class Refused(HybridError):  # noqa: N818  (said aloud, it needs no "Error")
    """The gate refuses to send the task at all.

    Attributes:
        reasons: the gate's sentences.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(
            "not sent: "
            + "; ".join(reasons)
            + ". With sensitive=True the whole task is done on this machine."
        )
        self.reasons = reasons


class Kept(Exception):  # noqa: N818  (no failure: the text stays, and the run goes on)
    """A text stays on this machine."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
