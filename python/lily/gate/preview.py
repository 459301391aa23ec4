"""A verdict in colours, for a terminal: the text with what was found, and the reasons.

This file owns the colours. It shows originals, so it is for the eyes of their owner and no log. It
knows no rule.
"""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lily.gate.facts import CONTACTS, HEALTH, IDENTIFIERS, SECRETS
from lily.gate.findings import Category, Outcome, Verdict
from lily.gate.policy import effective, table, word
from lily.gate.receipt import headline
from lily.gate.settings import Settings

_OUTCOMES = {
    Outcome.ALLOW: "bold green",
    Outcome.MASK: "bold cyan",
    Outcome.ASK: "bold yellow",
    Outcome.LOCAL: "bold magenta",
    Outcome.REFUSE: "bold red",
}
_GROUPS = (
    (SECRETS, "bold white on red"),
    (IDENTIFIERS, "black on yellow"),
    (CONTACTS, "black on cyan"),
    (HEALTH, "black on magenta"),
)
_OTHERS = "underline"
# A text that is only looked at must not steer the terminal.
_HARMLESS = {
    code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}


def preview(verdict: Verdict, text: str) -> Group:
    """What ``rich`` prints for the verdict on ``text``."""
    shown = Text(text.translate(_HARMLESS))
    for one in verdict.findings:
        shown.stylize(_style(one.category), one.start, one.end)
    lines = Text(headline(verdict), style=_OUTCOMES[verdict.outcome])
    lines.append(f"\nTo: {verdict.destination.translate(_HARMLESS)}", style="default")
    for reason in verdict.reasons:
        lines.append(f"\n  {reason}", style="default")
    legend = Text()
    for category in dict.fromkeys(one.category for one in verdict.findings):
        legend.append(f" {word(category)} ", style=_style(category)).append(" ")
    parts = [lines, Text(), shown]
    if verdict.findings:
        parts += [Text(), legend]
    if verdict.masks and verdict.outcome in (Outcome.MASK, Outcome.ASK):
        parts += [Text("\nWhat would be sent:", style="bold"), _masked(verdict)]
    return Group(*parts)


def _masked(verdict: Verdict) -> Text:
    shown = Text(verdict.masked.translate(_HARMLESS))
    for one in {mask.placeholder: mask for mask in verdict.masks}.values():
        shown.highlight_words([one.placeholder], _style(one.finding.category))
    return shown


def policy_table() -> Table:
    """The policy as a table."""
    made = Table("rule", "what it says", "untrusted", "trusted", box=None)
    for rule, sentence, untrusted, trusted in table():
        made.add_row(rule, sentence, *(_coloured(outcome) for outcome in (untrusted, trusted)))
    return made


def effective_table(settings: Settings) -> Table:
    """What each category and topic leads to under these settings."""
    made = Table("found", "untrusted", "trusted", box=None)
    for name, untrusted, trusted in effective(settings):
        made.add_row(name, _coloured(untrusted), _coloured(trusted))
    return made


def _coloured(outcome: str) -> Text:
    known = {one.value: style for one, style in _OUTCOMES.items()}
    return Text(outcome, style=known.get(outcome, "default"))


def _style(category: Category) -> str:
    return next((style for group, style in _GROUPS if category in group), _OTHERS)


def settings_lines(settings: Settings) -> list[str]:
    """What the settings change of the policy, and its numbers."""
    limits = settings.thresholds
    lines = [
        "",
        f"a finding counts from confidence {limits.mask:g}, and is asked about from "
        f"{limits.unsure:g}; a topic from {limits.topic:g} and {limits.topic_unsure:g}",
    ]
    lines += [f"destination {name}: {trust.value}" for name, trust in settings.destinations.items()]
    for pattern in settings.patterns:
        lines.append(f"pattern {pattern.name}: {pattern.outcome.value}")
    if settings.deny:
        lines.append(f"{len(settings.deny)} words to hold back: {settings.deny_outcome.value}")
    if settings.allow:
        lines.append(f"{len(settings.allow)} values that are no findings")
    return lines
