"""The privacy gate: decides what may leave this machine.

This file owns the list of the gate's public names. ``lily.gate`` imports nothing of Lily but errors
and the native encoder, so that it can be audited alone, and opens no socket.

Example:
    >>> from lily.gate import Gate
    >>> verdict = Gate().inspect("Write to ann@example.org")           # doctest: +SKIP
    >>> verdict.outcome, verdict.reasons, verdict.masked                # doctest: +SKIP
"""

from __future__ import annotations

from lily.gate.facts import Context
from lily.gate.findings import (
    Category,
    Finding,
    Outcome,
    Subject,
    Topic,
    TopicFinding,
    Verdict,
)
from lily.gate.gate import Gate
from lily.gate.messages import ChatVerdict
from lily.gate.settings import Settings, Trust

__all__ = [
    "Category",
    "ChatVerdict",
    "Context",
    "Finding",
    "Gate",
    "Outcome",
    "Settings",
    "Subject",
    "Topic",
    "TopicFinding",
    "Trust",
    "Verdict",
]
