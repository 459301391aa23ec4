"""The rules of the policy, each with its id, its sentence and its outcomes.

This file owns the table. A rule looks at facts and says with what evidence it holds; it does not
see the other rules, for the strictest wins anyway. It reads no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lily.gate.facts import (
    COMBINATION,
    COMBINES,
    CONTACTS,
    HEALTH,
    IDENTIFIERS,
    OF_A_PERSON,
    QUASI,
    SECRETS,
    Evidence,
    Facts,
)
from lily.gate.findings import Category, Finding, Outcome, Source, Subject
from lily.gate.patterns import DENY
from lily.gate.settings import Trust

ALLOW, MASK, ASK = Outcome.ALLOW, Outcome.MASK, Outcome.ASK
LOCAL, REFUSE = Outcome.LOCAL, Outcome.REFUSE

Judgement = tuple[Outcome, Evidence]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        sentence: what it says, without the final stop.
        untrusted, trusted: outcomes for destinations of that trust.
        finds: the evidence, or None where the rule does not hold.
        masks: whether the findings of the evidence are masked if the text leaves.
        soft: whether it rests on a guess of the neural reader, on which a judge may be heard.
        by_settings: what the table shows where the outcome is the user's.
    """

    id: str
    sentence: str
    untrusted: Outcome
    trusted: Outcome
    finds: Callable[[Facts], Evidence | Iterable[Judgement] | None] = field(
        default=lambda facts: None, repr=False
    )
    masks: bool = True
    soft: bool = False
    by_settings: str = ""

    def judge(self, facts: Facts) -> Iterator[Judgement]:
        """Outcomes with their evidence; none where the rule does not hold."""
        found = self.finds(facts)
        if isinstance(found, Evidence):
            yield (self.trusted if facts.trust is Trust.TRUSTED else self.untrusted), found
        elif found is not None:
            yield from found


def _some(findings: Sequence[Finding]) -> Evidence | None:
    return Evidence(findings) if findings else None


def _secrets(facts: Facts) -> Evidence | None:
    return _some(facts.sure(SECRETS))


def _published(facts: Facts) -> Evidence | None:
    return _some(facts.sure(IDENTIFIERS)) if facts.context.publishes else None


def _needed(facts: Facts) -> Evidence | None:
    return _some(facts.sure(facts.context.needs - SECRETS))


def _not_needed(categories: frozenset[Category]) -> Callable[[Facts], Evidence | None]:
    return lambda facts: _some(facts.sure(categories - facts.context.needs))


def _health_of_a_person(facts: Facts) -> bool:
    """A span says what, but not whose; a name beside it, or a personal subject, says whose."""
    return facts.personal or bool(facts.sure({Category.PERSON, Category.HEALTH_ID}))


def _known_to_be_general(facts: Facts) -> bool:
    return bool(facts.topics_about(Subject.GENERAL, Subject.FICTION)) and not facts.personal


def _health(facts: Facts) -> Evidence | None:
    found = _some(facts.sure(HEALTH))
    return found if _health_of_a_person(facts) and not _known_to_be_general(facts) else None


def _health_alone(facts: Facts) -> Evidence | None:
    """Nobody's, as far as is known; or in a general text that names somebody: better masked."""
    unclear = _health_of_a_person(facts) == _known_to_be_general(facts)
    return _some(facts.sure(HEALTH)) if unclear else None


def _combination(facts: Facts) -> Evidence | None:
    found = facts.sure(COMBINES)
    kinds = {one.category for one in found}
    of_a_person = bool(kinds & OF_A_PERSON) and not _known_to_be_general(facts)
    return _some(found if len(kinds) >= COMBINATION and (of_a_person or facts.personal) else [])


def _quasi_alone(facts: Facts) -> Evidence | None:
    return None if _combination(facts) else _some(facts.sure(QUASI))


def _topics(facts: Facts) -> Evidence | None:
    found = [
        one
        for one in facts.topics_about(Subject.PERSONAL)
        if facts.trust not in facts.settings.topics.get(one.topic, {})
    ]
    return Evidence(topics=found) if found else None


def _topics_in_general(facts: Facts) -> Evidence | None:
    found = facts.topics_about(Subject.GENERAL, Subject.FICTION)
    return Evidence(topics=found) if found and not facts.personal else None


def _unsure_topics(facts: Facts) -> Evidence | None:
    """The topic, or that it is about somebody known, is likely enough to ask and not to know."""
    limits = facts.settings.thresholds
    found = [
        one
        for one in facts.topics
        if one.subject is Subject.PERSONAL
        and one.confidence >= limits.topic_unsure
        and one.subject_confidence >= limits.subject_unsure
        and not (one.confidence >= limits.topic and one.subject_confidence >= limits.subject)
        and facts.settings.topics.get(one.topic, {}).get(facts.trust) is not ALLOW
    ]
    return Evidence(topics=found) if found else None


def _unsure_spans(facts: Facts) -> Evidence | None:
    limits = facts.settings.thresholds
    found = [
        one
        for one in facts.uncovered(facts.findings)
        if limits.unsure <= one.confidence < limits.of(one.category)
        and one.category not in QUASI
        and facts.own_outcome(one) is not ALLOW
    ]
    return _some(found)


def _unjudged(facts: Facts) -> Evidence | None:
    return None if facts.judged else Evidence()


def _own_categories(facts: Facts) -> Iterator[Judgement]:
    limits = facts.settings.thresholds
    by_outcome: dict[Outcome, list[Finding]] = {}
    for one in facts.findings:
        outcome = facts.own_outcome(one)
        if (
            outcome is not None
            and one.confidence >= limits.of(one.category)
            and one.source is not Source.USER
        ):
            by_outcome.setdefault(outcome, []).append(one)
    for outcome, found in by_outcome.items():
        yield outcome, Evidence(found)


def _own_topics(facts: Facts) -> Iterator[Judgement]:
    for one in facts.topics_about(Subject.PERSONAL):
        outcome = facts.settings.topics.get(one.topic, {}).get(facts.trust)
        if outcome is not None:
            yield outcome, Evidence(topics=[one])


def _denied(facts: Facts) -> Iterator[Judgement]:
    found = [one for one in facts.findings if one.rule == DENY]
    if found:
        yield facts.settings.deny_outcome, Evidence(found, detail=f"{len(found)} found")


def _patterns(facts: Facts) -> Iterator[Judgement]:
    for pattern in facts.settings.patterns:
        found = [one for one in facts.findings if one.rule == pattern.rule]
        if found:
            yield pattern.outcome, Evidence(found, detail=f"{pattern.name}, {len(found)} found")


def _rule(
    rule_id: str,
    sentence: str,
    untrusted: Outcome,
    trusted: Outcome,
    finds: Callable[[Facts], Evidence | Iterable[Judgement] | None],
    *,
    masks: bool = True,
    soft: bool = False,
) -> Rule:
    return Rule(
        id=rule_id,
        sentence=sentence,
        untrusted=untrusted,
        trusted=trusted,
        finds=finds,
        masks=masks,
        soft=soft,
    )


def _users(rule_id: str, sentence: str, finds: Callable[[Facts], Iterable[Judgement]]) -> Rule:
    """A rule whose outcome stands in the settings."""
    return Rule(
        id=rule_id,
        sentence=sentence,
        untrusted=MASK,
        trusted=MASK,
        finds=finds,
        by_settings="as set",
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "secret.live",
        "a password, key or token never leaves this machine",
        REFUSE,
        REFUSE,
        _secrets,
    ),
    _rule(
        "id.published",
        "numbers that identify a person or an account are not published",
        REFUSE,
        REFUSE,
        _published,
    ),
    _rule(
        "id.masked",
        "numbers that identify a person or an account are replaced by placeholders",
        MASK,
        MASK,
        _not_needed(IDENTIFIERS),
    ),
    _rule(
        "contact.masked",
        "names, addresses and contacts are replaced by placeholders",
        MASK,
        MASK,
        _not_needed(CONTACTS),
    ),
    _rule(
        "value.needed",
        "the task needs the true value, so it may go only if you agree",
        ASK,
        ASK,
        _needed,
        masks=False,
    ),
    _rule("health.person", "it tells of a person's health", LOCAL, ASK, _health, soft=True),
    _rule(
        "health.detail",
        "health details that may be somebody's are replaced by placeholders",
        MASK,
        MASK,
        _health_alone,
    ),
    _rule(
        "person.combined",
        "these details together can tell who somebody is",
        ASK,
        MASK,
        _combination,
        soft=True,
    ),
    _rule(
        "detail.alone", "these details alone tell nothing about anybody", ALLOW, ALLOW, _quasi_alone
    ),
    _rule(
        "topic.personal",
        "it is about a private matter of yours or of somebody you know",
        LOCAL,
        ASK,
        _topics,
        soft=True,
    ),
    _rule(
        "topic.general",
        "it speaks of a delicate matter in general, about nobody in particular",
        ALLOW,
        ALLOW,
        _topics_in_general,
    ),
    _rule(
        "topic.unsure",
        "it may be about a private matter; the gate is not sure",
        ASK,
        ASK,
        _unsure_topics,
        soft=True,
    ),
    _rule(
        "span.unsure",
        "something in it may be private; the gate is not sure",
        ASK,
        ASK,
        _unsure_spans,
        soft=True,
    ),
    _rule(
        "language.unknown",
        "the gate does not know its language or form well enough to judge it",
        LOCAL,
        LOCAL,
        _unjudged,
    ),
    _users("settings.category", "your settings say so for this category", _own_categories),
    _users("settings.topic", "your settings say so for this topic", _own_topics),
    _users("settings.deny", "it has words that your settings hold back", _denied),
    _users("settings.pattern", "it matches a pattern of your settings", _patterns),
)


def _fixed(rule_id: str, outcome: Outcome, sentence: str) -> Rule:
    return Rule(id=rule_id, sentence=sentence, untrusted=outcome, trusted=outcome)


# What is not found in a text: what happens to the gate itself, and to its answer.
FAULTS: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        _fixed("destination.local", ALLOW, "it stays on this machine"),
        _fixed("nothing.found", ALLOW, "nothing private was found"),
        _fixed("detector.failed", LOCAL, "a part of the gate failed, so the text was not judged"),
        _fixed("time.over", LOCAL, "judging it took too long"),
        _fixed("length.over", LOCAL, "it is too long to be judged"),
        _fixed(
            "content.unread", LOCAL, "it has a part that is no text, which the gate cannot read"
        ),
        _fixed("audit.failed", LOCAL, "the audit log could not be written"),
        _fixed("mask.leak", REFUSE, "private values would still be seen after masking"),
        _fixed("nobody.asked", LOCAL, "nobody can be asked now"),
        _fixed("no.local", ASK, "no local model can do this, so it goes only if you agree"),
        _fixed("no.way", REFUSE, "no local model can do this, and nobody may agree to sending it"),
        _fixed("judge.raised", LOCAL, "the local model finds it private"),
        _fixed("judge.lowered", ASK, "the local model doubts that it is private"),
    )
}
