"""Hybrid compute: a planner elsewhere, the private work here, and the gate between them.

This file owns the public names. What leaves this machine passes ``release`` and ``outbound`` and
nothing else; the other modules hold no connection.

Example:
    >>> from lily.hybrid import Hybrid                                   # doctest: +SKIP
    >>> with Hybrid.open() as hybrid:                                    # doctest: +SKIP
    ...     answer = hybrid.ask("What do I owe, in all?", files=["invoices/"])
    ...     print(answer.text, answer.receipt.summary())
"""

from lily.hybrid.errors import HybridError, PlannerError, Refused
from lily.hybrid.receipt import Receipt, Step
from lily.hybrid.release import Consent, ConsentRequest
from lily.hybrid.run import Hybrid, HybridAnswer
from lily.hybrid.settings import HybridSettings

__all__ = [
    "Consent",
    "ConsentRequest",
    "Hybrid",
    "HybridAnswer",
    "HybridError",
    "HybridSettings",
    "PlannerError",
    "Receipt",
    "Refused",
    "Step",
]
