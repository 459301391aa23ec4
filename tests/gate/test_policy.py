"""The policy: every rule holds where it should, and nowhere else; the strictest wins."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lily.gate import Category, Context, Finding, Outcome, Settings, Subject, Topic, TopicFinding
from lily.gate.findings import Source
from lily.gate.policy import decide, effective, fault, judged_again, settle, table
from lily.gate.rulebook import FAULTS, RULES
from lily.gate.settings import Trust, parse

ALLOW, MASK, ASK, LOCAL, REFUSE = Outcome
PERSONAL, GENERAL, FICTION = Subject


def found(*names: str, confidence: float = 1.0, rule: str = "t") -> list[Finding]:
    """One finding of each category."""
    return [
        Finding(place, place + 1, Category(name), confidence, rule)
        for place, name in enumerate(names)
    ]


def topic(subject=PERSONAL, confidence=0.9, sure=0.9, of=Topic.HEALTH):
    return [TopicFinding(of, subject, confidence, sure)]


def decided(findings=(), topics=(), judged=True, to="cloud", settings="", **context):
    """A decision; ``settings`` is TOML in which "mine" is trusted."""
    made = parse('destinations = { mine = "trusted" }\n' + settings)
    return decide(findings, topics, judged, made.destination(to), made, Context(**context))


NEEDS_MAIL = {"needs": frozenset({Category.EMAIL})}
# rule -> findings, topics, judged, outcome (untrusted), outcome (trusted), what else is given.
CASES = {
    "secret.live": (found("secret"), (), True, REFUSE, REFUSE, {}),
    "id.published": (found("iban"), (), True, REFUSE, REFUSE, {"publishes": True}),
    "id.masked": (found("payment_card"), (), True, MASK, MASK, {}),
    "contact.masked": (found("person", "email"), (), True, MASK, MASK, {}),
    "value.needed": (found("email"), (), True, ASK, ASK, NEEDS_MAIL),
    "health.person": (found("health", "person"), (), True, LOCAL, ASK, {}),
    "health.detail": (found("health"), (), True, MASK, MASK, {}),
    "person.combined": (found("age", "location", "organization"), (), True, ASK, MASK, {}),
    "detail.alone": (found("location", "organization", "date"), (), True, ALLOW, ALLOW, {}),
    "topic.personal": ((), topic(), True, LOCAL, ASK, {}),
    "topic.general": ((), topic(GENERAL), True, ALLOW, ALLOW, {}),
    "topic.unsure": ((), topic(confidence=0.4), True, ASK, ASK, {}),
    "span.unsure": (found("person", confidence=0.4), (), True, ASK, ASK, {}),
    "language.unknown": ((), (), False, LOCAL, LOCAL, {}),
    "settings.category": (
        found("email"),
        (),
        True,
        LOCAL,
        ASK,
        {"settings": 'categories.email = { untrusted = "local", trusted = "ask" }'},
    ),
    "settings.topic": ((), topic(), True, MASK, MASK, {"settings": 'topics.health = "mask"'}),
    "settings.deny": (
        found("other_id", rule="user.deny"),
        (),
        True,
        LOCAL,
        LOCAL,
        {"settings": 'lists = { deny = ["x"], deny_outcome = "local" }'},
    ),
    "settings.pattern": (
        found("other_id", rule="user.ticket"),
        (),
        True,
        ASK,
        ASK,
        {"settings": 'patterns = [{ name = "ticket", pattern = "T[0-9]+", outcome = "ask" }]'},
    ),
}
USERS = ("settings.deny", "settings.pattern")


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule(rule):
    findings, topics, judged, untrusted, trusted, more = CASES[rule]
    if rule in USERS:
        findings = [Finding(*f.span, f.category, 1.0, f.rule, Source.USER) for f in findings]
    for to, outcome in (("cloud", untrusted), ("mine", trusted), ("never named", untrusted)):
        decision = decided(findings, topics, judged, to, **more)
        assert rule in decision.rules
        assert decision.outcome is outcome
        assert len(decision.reasons) == len(decision.rules)
    assert decided(findings, topics, judged, "local", **more).rules == ("destination.local",)
    # Without its evidence the same rule is silent.
    assert rule not in decided(to="cloud", **more).rules


def test_the_table_shows_what_the_rules_do():
    """The outcomes that the table prints are those of the cases above."""
    rows = {row[0]: row[2:] for row in table()}
    assert set(rows) == set(CASES) | set(FAULTS)
    for rule, (*_, untrusted, trusted, _) in CASES.items():
        if rows[rule] != ("as set", "as set"):
            assert rows[rule] == (untrusted.value, trusted.value)


def test_effective_table_follows_the_settings():
    rows = {row[0]: row[1:] for row in effective(Settings())}
    assert rows["IBAN"] == ("mask", "mask")
    assert rows["location"] == ("allow", "allow")
    assert rows["topic health"] == ("local", "ask")
    changed = parse('categories.location = "refuse"\ntopics.legal = { trusted = "allow" }')
    rows = {row[0]: row[1:] for row in effective(changed)}
    assert rows["location"] == ("refuse", "refuse")
    assert rows["topic legal"] == ("local", "allow")


def test_strictest_wins_and_all_reasons_are_told():
    findings = found("secret", "email", "location")
    decision = decided(findings, topic())
    assert decision.outcome is REFUSE
    assert decision.rules == ("secret.live", "topic.personal", "contact.masked")
    assert [reason.split(":")[0] for reason in decision.reasons] == ["Refuse", "Keep local", "Mask"]
    assert {one.category.value for one in decision.masked} == {"secret", "email"}


LEVELS = st.sampled_from(list(Category))
FINDINGS = st.lists(
    st.builds(Finding, st.just(0), st.just(1), LEVELS, st.floats(0, 1), st.just("t")), max_size=8
)
TOPICS = st.lists(
    st.builds(
        TopicFinding,
        st.sampled_from(list(Topic)),
        st.sampled_from(list(Subject)),
        st.floats(0, 1),
        st.floats(0, 1),
    ),
    max_size=4,
)


@given(FINDINGS, TOPICS, st.booleans(), st.sampled_from(["cloud", "mine"]))
def test_pure_and_never_lax(findings, topics, judged, to):
    """Equal in, equal out; a secret, or an unknown language, never leaves; the order is nothing."""
    decision = decided(findings, topics, judged, to)
    assert decision == decided(findings, topics, judged, to)
    assert decided(findings[::-1], topics, judged, to).outcome is decision.outcome
    if any(one.category.is_secret and one.confidence >= 0.5 for one in findings):
        assert decision.outcome is REFUSE
    if not judged:
        assert decision.outcome.strictness >= LOCAL.strictness
    if decision.outcome in (ALLOW, MASK):
        assert all(reason.startswith(("Allow", "Mask")) for reason in decision.reasons)


@given(FINDINGS, TOPICS)
def test_nobody_to_ask_means_no_sending(findings, topics):
    assert decided(findings, topics, can_ask=False).outcome is not ASK
    stuck = decided(findings, topics, can_ask=False, can_run_locally=False).outcome
    assert stuck in (ALLOW, MASK, REFUSE)
    assert decided(findings, topics, can_run_locally=False).outcome is not LOCAL


def test_general_questions_about_health_are_allowed():
    """What does ferritin measure: a health word, and nobody's health."""
    decision = decided(found("health"), topic(GENERAL))
    assert decision.outcome is ALLOW
    assert decided(found("medication"), topic(FICTION)).outcome is ALLOW
    assert decided(found("health"), topic(GENERAL, of=Topic.LEGAL)).outcome is ALLOW
    named = decided(found("health", "person"), topic(GENERAL))
    assert named.outcome is MASK
    assert {one.category.value for one in named.masked} == {"health", "person"}
    assert decided(found("health"), topic(GENERAL) + topic(PERSONAL)).outcome is LOCAL


def test_a_doubt_inside_a_certainty_is_none():
    mail = Finding(5, 20, Category.EMAIL, 1.0, "t")
    inner, across = (Finding(5, end, Category.PERSON, 0.4, "t") for end in (8, 21))
    assert decided([mail, inner]).outcome is MASK
    assert decided([mail, across]).outcome is ASK
    place = Finding(5, 20, Category.LOCATION, 1.0, "t")
    assert decided([place, inner]).outcome is ASK, "the place is not masked"


def test_an_unclear_subject_is_asked_about():
    assert decided((), topic(PERSONAL, sure=0.4)).outcome is ASK
    assert decided((), topic(PERSONAL, sure=0.3)).outcome is ALLOW
    assert decided((), topic(PERSONAL, confidence=0.1)).outcome is ALLOW


@pytest.mark.parametrize(
    "names", list(itertools.combinations(["age", "location", "amount", "date"], 3))
)
def test_three_details_of_a_person_are_one_too_many(names):
    assert decided(found(*names)).outcome is ASK
    assert decided(found(*names[:2])).outcome is ALLOW
    assert decided(found(names[0], names[0], names[0])).outcome is ALLOW, "one kind three times"


def test_details_of_nobody_do_not_combine():
    findings = found("location", "date", "organization")
    assert decided(findings).outcome is ALLOW
    assert decided(findings, topic(confidence=0.1)).outcome is ASK, "of a person after all"


def test_a_threshold_of_one_category():
    own = "thresholds.categories.person = 0.8"
    findings = found("person", "email", confidence=0.6)
    assert decided(findings, settings=own).outcome is ASK
    assert decided(findings[1:], settings=own).outcome is MASK
    assert decided(found("person", confidence=0.8), settings=own).outcome is MASK


def test_secrets_are_no_values_that_a_task_needs():
    needs = frozenset({Category.SECRET})
    assert decided(found("secret"), needs=needs).outcome is REFUSE


@pytest.mark.parametrize("rule", ["detector.failed", "time.over", "length.over", "audit.failed"])
def test_faults_are_local_or_refused(rule):
    assert fault(rule, Context()).outcome is LOCAL
    stuck = fault(rule, Context(can_run_locally=False))
    assert stuck.outcome is REFUSE, "not ask: nobody knows what is in it"
    assert stuck.rules == ("no.way", rule)


def test_a_second_opinion_raises_or_lowers_to_ask_and_no_further():
    soft = decided((), topic())
    hard = decided(found("secret"), ())
    for wanted in Outcome:
        assert judged_again(hard, wanted, Context()).outcome is REFUSE
        again = judged_again(soft, wanted, Context())
        assert again.outcome is {LOCAL: LOCAL, REFUSE: REFUSE}.get(wanted, ASK)
    unsure = decided(found("person", confidence=0.4))
    assert judged_again(unsure, ALLOW, Context()).outcome is ASK
    assert judged_again(unsure, LOCAL, Context()).outcome is LOCAL
    mixed = decided((), topic(), judged=False)
    assert judged_again(mixed, ALLOW, Context()).outcome is LOCAL, "not only a guess"
    nobody = Context(can_ask=False)
    assert judged_again(soft, ALLOW, nobody).outcome is LOCAL


def test_settle_says_why():
    decision = settle(decided((), topic()), Context(can_run_locally=False))
    assert decision.outcome is ASK
    assert decision.reasons[0].startswith("Ask first: no local model")


def test_reasons_are_sentences():
    for rule, (findings, topics, judged, *_, more) in CASES.items():
        for reason in decided(findings, topics, judged, **more).reasons:
            assert reason.endswith("."), rule
            assert "  " not in reason
            assert "_" not in reason


def test_every_rule_has_one_id():
    names = [rule.id for rule in RULES] + list(FAULTS)
    assert len(set(names)) == len(names)
    assert all(trust in Trust for trust in Trust)
