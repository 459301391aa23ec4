"""What the rules of the policy look at: categories by weight, the step, the facts of a text.

This file owns the groups of categories and the questions that rules ask. It knows no rule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from lily.errors import InvalidInput
from lily.gate.findings import Category, Finding, Outcome, Source, Subject, TopicFinding
from lily.gate.settings import Settings, Trust

SECRETS = frozenset(one for one in Category if one.is_secret)
IDENTIFIERS = frozenset(
    {
        Category.PAYMENT_CARD,
        Category.IBAN,
        Category.BANK_ACCOUNT,
        Category.CRYPTO_WALLET,
        Category.GOVERNMENT_ID,
        Category.PASSPORT,
        Category.DRIVING_LICENSE,
        Category.HEALTH_ID,
        Category.CASE_NUMBER,
        Category.VEHICLE_ID,
        Category.LICENSE_PLATE,
        Category.MAC_ADDRESS,
        Category.OTHER_ID,
    }
)
CONTACTS = frozenset(
    {
        Category.PERSON,
        Category.USERNAME,
        Category.DATE_OF_BIRTH,
        Category.ADDRESS,
        Category.EMAIL,
        Category.PHONE,
        Category.URL,
        Category.IP_ADDRESS,
    }
)
HEALTH = frozenset({Category.HEALTH, Category.MEDICATION})
# Say little alone, and whom they are about in company.
QUASI = frozenset(
    {
        Category.ORGANIZATION,
        Category.AGE,
        Category.DEMOGRAPHIC,
        Category.LOCATION,
        Category.DATE,
        Category.AMOUNT,
    }
)
# Of these, each is about a person by what it means.
OF_A_PERSON = HEALTH | {
    Category.AGE,
    Category.DEMOGRAPHIC,
    Category.AMOUNT,
    Category.DATE_OF_BIRTH,
}
COMBINES = QUASI | HEALTH | {Category.DATE_OF_BIRTH}
COMBINATION = 3
VALIDATED = 0.99  # confidence of a finding whose checksum, or whose unmistakable form, holds


@dataclass(frozen=True, kw_only=True)
class Context:
    """What is known of the step that would send a text.

    Attributes:
        can_ask: whether a person can be asked now. If not, "ask" becomes "local".
        can_run_locally: whether a local model can do the task. If not, "local" becomes "ask".
        publishes: whether the text goes where others read it (a post, a commit, a ticket).
        needs: categories whose true values the task cannot do without (send this mail *to X*).
    """

    can_ask: bool = True
    can_run_locally: bool = True
    publishes: bool = False
    needs: frozenset[Category] = frozenset()

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "needs", frozenset(Category(one) for one in self.needs))
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"needs is {self.needs!r}, expected categories: {error}") from error


@dataclass(frozen=True)
class Facts:
    """What rules look at."""

    findings: tuple[Finding, ...]
    topics: tuple[TopicFinding, ...]
    judged: bool
    trust: Trust
    settings: Settings
    context: Context

    def sure(self, categories: Iterable[Category]) -> list[Finding]:
        """Findings of these categories that count and that the settings say nothing about."""
        wanted = set(categories)
        return [
            one
            for one in self.findings
            if one.category in wanted
            and one.confidence >= self.settings.thresholds.of(one.category)
            and one.source is not Source.USER
            and self.own_outcome(one) is None
        ]

    def uncovered(self, found: Iterable[Finding]) -> list[Finding]:
        """Those that do not lie inside a finding which is masked anyway."""
        masked = self.sure(set(Category) - QUASI)
        masked.sort(key=lambda one: one.start)
        starts = [one.start for one in masked]
        ends = list(accumulate((one.end for one in masked), max, initial=-1))
        return [one for one in found if ends[bisect_right(starts, one.start)] < one.end]

    def own_outcome(self, finding: Finding) -> Outcome | None:
        """The outcome that the settings give to a finding's category."""
        return self.settings.categories.get(finding.category, {}).get(self.trust)

    def topics_about(self, *subjects: Subject) -> list[TopicFinding]:
        """Topics that count and whose subject is known to be one of these."""
        limits = self.settings.thresholds
        return [
            one
            for one in self.topics
            if one.confidence >= limits.topic
            and one.subject in subjects
            and one.subject_confidence >= limits.subject
        ]

    @property
    def personal(self) -> bool:
        """Whether the text is about the writer, or someone whom the writer knows."""
        limit = self.settings.thresholds.subject
        return any(
            one.subject is Subject.PERSONAL and one.subject_confidence >= limit
            for one in self.topics
        )


@dataclass(frozen=True)
class Evidence:
    """Why a rule holds."""

    findings: Sequence[Finding] = ()
    topics: Sequence[TopicFinding] = ()
    detail: str = ""
