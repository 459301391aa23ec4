"""What may happen with a text: a pure function from what was found to an outcome, with its reasons.

This file owns the order of strictness, the facts that rules look at and how a verdict is put into
words. The rules themselves stand in ``rulebook``. It knows no detector and reads no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lily.gate.facts import Context, Evidence, Facts
from lily.gate.findings import Category, Finding, Outcome, Subject, Topic, TopicFinding
from lily.gate.rulebook import FAULTS, RULES, Rule
from lily.gate.settings import Destination, Settings, Trust

_WORDS = {
    Category.URL: "identifying URL",
    Category.IP_ADDRESS: "IP address",
    Category.MAC_ADDRESS: "MAC address",
    Category.IBAN: "IBAN",
    Category.EMAIL: "e-mail address",
    Category.GOVERNMENT_ID: "government id",
    Category.HEALTH_ID: "health id",
    Category.VEHICLE_ID: "vehicle id",
    Category.OTHER_ID: "other id",
    Category.HEALTH: "health detail",
    Category.PERSON: "name of a person",
    Category.PHONE: "phone number",
    Category.DEMOGRAPHIC: "trait of a person",
    Category.AMOUNT: "amount of money",
}


@dataclass(frozen=True)
class Decision:
    """What the policy says.

    Attributes:
        rules: ids of the rules that spoke, strictest first; ``reasons`` has a sentence for each.
        masked: the findings that have to be masked, should the text leave after all.
        soft: whether nothing but a guess of the neural reader stands behind the outcome.
    """

    outcome: Outcome
    rules: tuple[str, ...]
    reasons: tuple[str, ...]
    masked: tuple[Finding, ...] = ()
    soft: bool = False


def decide(
    findings: Sequence[Finding],
    topics: Sequence[TopicFinding],
    judged: bool,
    destination: Destination,
    settings: Settings,
    context: Context | None = None,
) -> Decision:
    """The decision on a text; strictest wins. Equal arguments give equal decisions."""
    context = context or Context()
    if destination.trust is Trust.LOCAL:
        return plain_decision("destination.local")
    facts = Facts(tuple(findings), tuple(topics), judged, destination.trust, settings, context)
    said: list[tuple[Outcome, Rule, Evidence]] = []
    for rule in RULES:
        for outcome, evidence in rule.judge(facts):
            said.append((outcome, rule, evidence))
    said.sort(key=lambda one: -one[0].strictness)
    if not said:
        return plain_decision("nothing.found")
    outcome = said[0][0]
    if outcome is not Outcome.ALLOW:  # what is harmless needs no word beside what is not
        said = [one for one in said if one[0] is not Outcome.ALLOW]
    decision = Decision(
        outcome,
        tuple(dict.fromkeys(rule.id for _, rule, _ in said)),
        tuple(dict.fromkeys(_reason(*one) for one in said)),
        masked=_to_mask(said),
        soft=all(rule.soft for level, rule, _ in said if level is outcome),
    )
    return settle(decision, context)


def fault(rule_id: str, context: Context, detail: str = "") -> Decision:
    """The decision on a text that could not be judged: local if possible, else refuse."""
    rule = FAULTS[rule_id]
    decision = Decision(
        rule.untrusted, (rule.id,), (_reason(rule.untrusted, rule, Evidence(detail=detail)),)
    )
    if rule.untrusted is Outcome.LOCAL and not context.can_run_locally:
        return _changed(decision, Outcome.REFUSE, "no.way")
    return decision


def settle(decision: Decision, context: Context) -> Decision:
    """The same decision where nobody can be asked, or nothing can be done on this machine."""
    if decision.outcome is Outcome.ASK and not context.can_ask:
        decision = _changed(decision, Outcome.LOCAL, "nobody.asked")
    if decision.outcome is Outcome.LOCAL and not context.can_run_locally:
        if context.can_ask:
            return _changed(decision, Outcome.ASK, "no.local")
        return _changed(decision, Outcome.REFUSE, "no.way")
    return decision


def judged_again(decision: Decision, wanted: Outcome, context: Context) -> Decision:
    """The decision after a second opinion, which may raise it, or lower a guess to "ask"."""
    if wanted.strictness > decision.outcome.strictness:
        return settle(_changed(decision, wanted, "judge.raised"), context)
    milder = wanted.strictness < decision.outcome.strictness
    if milder and decision.soft and decision.outcome is Outcome.LOCAL and context.can_ask:
        return _changed(decision, Outcome.ASK, "judge.lowered")
    return decision


def combined(first: Decision, second: Decision) -> Decision:
    """The stricter of two decisions on one text, with the reasons of both."""
    low, high = sorted((first, second), key=lambda one: one.outcome.strictness)
    if low.outcome is Outcome.ALLOW:
        return replace(high, masked=first.masked)
    return Decision(
        high.outcome, high.rules + low.rules, high.reasons + low.reasons, masked=first.masked
    )


def plain_decision(rule_id: str) -> Decision:
    """The decision that a rule without evidence gives."""
    rule = FAULTS[rule_id]
    return Decision(rule.untrusted, (rule.id,), (_reason(rule.untrusted, rule, Evidence()),))


def _changed(decision: Decision, outcome: Outcome, rule_id: str) -> Decision:
    """The decision with another outcome, for a reason that comes first."""
    reason = _reason(outcome, FAULTS[rule_id], Evidence())
    return replace(
        decision,
        outcome=outcome,
        rules=(rule_id, *decision.rules),
        reasons=(reason, *decision.reasons),
    )


def table() -> list[tuple[str, str, str, str]]:
    """All rules: id, what it says, outcome for untrusted and for trusted destinations."""
    rows: list[tuple[str, str, str, str]] = []
    for rule in (*RULES, *FAULTS.values()):
        untrusted = rule.by_settings or rule.untrusted.value
        trusted = rule.by_settings or rule.trusted.value
        rows.append((rule.id, rule.sentence, untrusted, trusted))
    return rows


def effective(settings: Settings) -> list[tuple[str, str, str]]:
    """What one sure finding of each category, and one sure personal topic, leads to.

    Rows of name, outcome for untrusted and for trusted destinations, under these settings.
    """
    sure: list[tuple[str, list[Finding], list[TopicFinding]]] = [
        (word(one), [Finding(0, 1, one, 1.0, "table")], []) for one in Category
    ]
    sure += [
        (f"topic {topic.value}", [], [TopicFinding(topic, Subject.PERSONAL, 1.0, 1.0)])
        for topic in Topic
    ]
    rows = []
    for name, findings, topics in sure:
        outcomes = [
            decide(findings, topics, True, Destination("", trust), settings).outcome.value
            for trust in (Trust.UNTRUSTED, Trust.TRUSTED)
        ]
        rows.append((name, outcomes[0], outcomes[1]))
    return rows


_LEAD = {
    Outcome.ALLOW: "Allow",
    Outcome.MASK: "Mask",
    Outcome.ASK: "Ask first",
    Outcome.LOCAL: "Keep local",
    Outcome.REFUSE: "Refuse",
}


def _reason(outcome: Outcome, rule: Rule, evidence: Evidence) -> str:
    found = [
        *_counted(evidence.findings),
        *(one.topic.value.replace("_", " ") for one in evidence.topics),
    ]
    detail = evidence.detail or ", ".join(found)
    return f"{_LEAD[outcome]}: {rule.sentence}{f' ({detail})' if detail else ''}."


def _counted(findings: Iterable[Finding]) -> list[str]:
    """Categories with their counts, the commonest first."""
    counts = Counter(finding.category for finding in findings)
    return [
        word(category) + (f" \u00d7{count}" if count > 1 else "")
        for category, count in counts.most_common()
    ]


def word(category: Category) -> str:
    """How a category is called in a sentence."""
    return _WORDS.get(category, category.value.replace("_", " "))


def _to_mask(said: Iterable[tuple[Outcome, Rule, Evidence]]) -> tuple[Finding, ...]:
    found = {
        finding
        for outcome, rule, evidence in said
        if rule.masks and outcome is not Outcome.ALLOW
        for finding in evidence.findings
    }
    return tuple(sorted(found))
