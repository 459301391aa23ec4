"""What a user may tell the gate, from one TOML file.

This file owns the names, defaults and checks of the settings. It knows no rule of the policy and no
detector. Whatever it does not know is an error that names the nearest word: a misspelt rule must
not silently protect nothing.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from lily.errors import InvalidInput
from lily.gate.findings import Category, Outcome, Topic
from lily.gate.patterns import Pattern

_Word = TypeVar("_Word", bound=Enum)
_MAX_ENTRIES = 10_000
_BANDS = (("unsure", "mask"), ("topic_unsure", "topic"), ("subject_unsure", "subject"))
_ON_FAILURE = ("local", "warn")


class Trust(str, Enum):
    """How far a destination is trusted."""

    LOCAL = "local"  # this machine: everything is allowed
    TRUSTED = "trusted"  # a service that the user has named as such
    UNTRUSTED = "untrusted"  # any other, and every name that the settings do not have


@dataclass(frozen=True)
class Destination:
    """Where a text would go."""

    name: str
    trust: Trust


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Confidences, 0 to 1.

    Attributes:
        mask: from here on a finding counts.
        unsure: from here on, up to ``mask``, it is asked about; below, it is ignored.
        topic: from here on a topic counts; ``topic_unsure`` as above.
        subject: from here on the subject of a topic counts; ``subject_unsure`` as above.
        categories: ``mask`` of single categories.
    """

    mask: float = 0.5
    unsure: float = 0.35
    topic: float = 0.5
    topic_unsure: float = 0.35
    subject: float = 0.5
    subject_unsure: float = 0.35
    categories: Mapping[Category, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        given |= {
            f"categories.{one.value}": limit for one, limit in given.pop("categories").items()
        }
        for name, value in given.items():
            if not _is_number(value) or not 0 < value <= 1:
                raise InvalidInput(f"thresholds.{name} is {value!r}, expected above 0, up to 1")
        for low, high in _BANDS:
            if given[low] > given[high]:
                raise InvalidInput(
                    f"thresholds.{low} is {given[low]}, expected at most "
                    f"thresholds.{high} ({given[high]})"
                )

    def of(self, category: Category) -> float:
        """The confidence from which a finding of this category counts."""
        return self.categories.get(category, self.mask)


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """Where the audit log goes.

    Attributes:
        file: its path; relative to the settings file. None: no log.
        on_failure: "local" keeps a text here that could not be logged, "warn" only says so.
        max_bytes: the file is put aside when it would grow over this.
        keep: how many such files are kept.
    """

    file: Path | None = None
    on_failure: str = "local"
    max_bytes: int = 10 * 2**20
    keep: int = 5

    def __post_init__(self) -> None:
        if self.on_failure not in _ON_FAILURE:
            raise InvalidInput(
                f"audit.on_failure is {self.on_failure!r}, expected {' or '.join(_ON_FAILURE)}"
            )
        for name, low in (("max_bytes", 4096), ("keep", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidInput(f"audit.{name} is {value!r}, expected a whole number from {low}")


PerTrust = Mapping[Trust, Outcome]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a gate behaves.

    Attributes:
        country: ISO 3166 code whose national numbers need no word beside them.
        max_chars: a longer text is not judged, and so stays here.
        time_budget_s: a text that is not judged within it stays here.
        thresholds: see ``Thresholds``.
        destinations: names with their trust; "local" and "cloud" are there from the beginning.
        categories: outcomes in place of the policy's own, for each trust that is not local.
        topics: the same for topics about a person.
        allow: values that are no findings; they never clear a secret.
        deny: words that must not leave.
        deny_outcome: what happens where one of them stands.
        patterns: further things to find.
        audit: see ``AuditSettings``.
    """

    country: str | None = None
    max_chars: int = 1_000_000
    time_budget_s: float = 20.0
    thresholds: Thresholds = field(default_factory=Thresholds)
    destinations: Mapping[str, Trust] = field(default_factory=dict)
    categories: Mapping[Category, PerTrust] = field(default_factory=dict)
    topics: Mapping[Topic, PerTrust] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    deny_outcome: Outcome = Outcome.REFUSE
    patterns: tuple[Pattern, ...] = ()
    audit: AuditSettings = field(default_factory=AuditSettings)

    def __post_init__(self) -> None:
        if self.country is not None and not (
            isinstance(self.country, str) and len(self.country) == 2 and self.country.isalpha()
        ):
            raise InvalidInput(f"country is {self.country!r}, expected two letters such as 'DE'")
        if isinstance(self.max_chars, bool) or not isinstance(self.max_chars, int):
            raise InvalidInput(f"max_chars is {self.max_chars!r}, expected a whole number")
        if self.max_chars < 1:
            raise InvalidInput(f"max_chars is {self.max_chars}, expected 1 or more")
        if not _is_number(self.time_budget_s) or not 0 < self.time_budget_s <= 3600:
            raise InvalidInput(f"time_budget_s is {self.time_budget_s!r}, expected up to 3600")
        for name in ("allow", "deny"):
            entries = getattr(self, name)
            if len(entries) > _MAX_ENTRIES:
                raise InvalidInput(
                    f"{name} has {len(entries)} entries, expected up to {_MAX_ENTRIES}"
                )
            if not all(isinstance(entry, str) and entry.strip() for entry in entries):
                raise InvalidInput(f"{name} has an entry that is no text, or an empty one")
        if self.destinations.get("local", Trust.LOCAL) is not Trust.LOCAL:
            raise InvalidInput("destinations.local is this machine; its trust cannot be changed")

    def destination(self, name: str) -> Destination:
        """The destination of that name; one that nobody has named is untrusted."""
        known = {"local": Trust.LOCAL, **self.destinations}
        return Destination(name, known.get(name, Trust.UNTRUSTED))

    @staticmethod
    def load(path: str | Path) -> Settings:
        """Read a file. Raises InvalidInput that names file, place, what was given and expected."""
        path = Path(path)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"settings of the gate cannot be read: {error}") from error
        try:
            return parse(text, path.parent)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error


def parse(text: str, folder: Path | None = None) -> Settings:
    """Settings from TOML; paths in it are relative to ``folder``. Raises InvalidInput."""
    given = _toml(text)
    lists = _table(given.pop("lists", {}), "lists", ("allow", "deny", "deny_outcome"))
    plain = ("country", "max_chars", "time_budget_s")
    tables = ("thresholds", "destinations", "categories", "topics", "patterns", "audit")
    _known(given, (*plain, *tables, "lists"), "")
    made: dict[str, Any] = {name: given[name] for name in plain if name in given}
    for name in ("allow", "deny"):
        if name in lists:
            made[name] = _texts(lists[name], f"lists.{name}")
    if "deny_outcome" in lists:
        made["deny_outcome"] = _word(Outcome, lists["deny_outcome"], "lists.deny_outcome")
    names = tuple(one.name for one in fields(Thresholds))
    limits = dict(_table(given.get("thresholds", {}), "thresholds", names))
    limits["categories"] = {
        _word(Category, name, "thresholds.categories"): value
        for name, value in _table(
            limits.get("categories", {}), "thresholds.categories", None
        ).items()
    }
    made["thresholds"] = Thresholds(**limits)
    made["destinations"] = {
        name: _word(Trust, value, f"destinations.{name}")
        for name, value in _table(given.get("destinations", {}), "destinations", None).items()
    }
    made["categories"] = _outcomes(Category, given.get("categories", {}), "categories")
    made["topics"] = _outcomes(Topic, given.get("topics", {}), "topics")
    made["patterns"] = _patterns(given.get("patterns", []))
    made["audit"] = _audit(given.get("audit", {}), folder)
    return Settings(**made)


def _toml(text: str) -> dict[str, Any]:
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ImportError as error:
        raise InvalidInput(
            "settings of the gate need tomli: pip install 'lily-engine[gate]'"
        ) from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"no TOML: {error}") from error


def _outcomes(words: type[_Word], given: Any, where: str) -> dict[_Word, PerTrust]:
    """``email = "mask"``, or ``email = { trusted = "allow", untrusted = "mask" }``."""
    made: dict[_Word, PerTrust] = {}
    for name, value in _table(given, where, None).items():
        key = _word(words, name, where)
        place = f"{where}.{name}"
        if isinstance(value, dict):
            trusts = (Trust.TRUSTED.value, Trust.UNTRUSTED.value)
            found = {
                Trust(trust): _word(Outcome, outcome, f"{place}.{trust}")
                for trust, outcome in _table(value, place, trusts).items()
            }
        else:
            outcome = _word(Outcome, value, place)
            found = {Trust.TRUSTED: outcome, Trust.UNTRUSTED: outcome}
        if Outcome.ALLOW in found.values() and isinstance(key, Category) and key.is_secret:
            raise InvalidInput(f"{place} is 'allow', expected a stricter outcome: it is a secret")
        made[key] = found
    return made


def _patterns(given: Any) -> tuple[Pattern, ...]:
    if not isinstance(given, list):
        raise InvalidInput("patterns is no list; write [[patterns]] above each")
    made = []
    for index, entry in enumerate(given):
        where = f"patterns[{index}]"
        table = _table(entry, where, ("name", "pattern", "category", "outcome"))
        for name in ("name", "pattern"):
            if not isinstance(table.get(name), str):
                raise InvalidInput(f"{where}.{name} is {table.get(name)!r}, expected text")
        made.append(
            Pattern(
                name=table["name"],
                pattern=table["pattern"],
                category=_word(Category, table.get("category", "other_id"), f"{where}.category"),
                outcome=_word(Outcome, table.get("outcome", "mask"), f"{where}.outcome"),
            )
        )
    names = [one.name for one in made]
    if len(set(names)) != len(names):
        raise InvalidInput("patterns has two of one name")
    return tuple(made)


def _audit(given: Any, folder: Path | None) -> AuditSettings:
    table = dict(_table(given, "audit", tuple(one.name for one in fields(AuditSettings))))
    if "file" in table:
        if not isinstance(table["file"], str) or not table["file"]:
            raise InvalidInput(f"audit.file is {table['file']!r}, expected a path")
        table["file"] = (folder or Path()) / Path(table["file"]).expanduser()
    return AuditSettings(**table)


def _table(given: Any, where: str, names: tuple[str, ...] | None) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidInput(f"{where} is {type(given).__name__}, expected a table")
    if names is not None:
        _known(given, names, f"{where}.")
    return given


def _known(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in names:
            raise InvalidInput(f"{where}{name} is not known{nearest(name, names)}")


def _word(words: type[_Word], given: Any, where: str) -> _Word:
    names = [word.value for word in words]
    if not isinstance(given, str) or given not in names:
        raise InvalidInput(f"{where}: {given!r} is not known{nearest(str(given), names)}")
    return words(given)


def _texts(given: Any, where: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(entry, str) for entry in given):
        raise InvalidInput(f"{where} is {given!r}, expected a list of texts")
    return tuple(given)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def nearest(name: str, names: tuple[str, ...] | list[str]) -> str:
    """ "; did you mean 'x'?", or all names where none is near."""
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else f", expected one of {', '.join(names)}"
