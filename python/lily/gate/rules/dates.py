"""Dates, dates of birth, and ages.

This file owns how they are written in English, Spanish, German, French, Italian, Portuguese and
Dutch. A date alone is a weak finding; a word about birth makes it a date of birth. Times of
machines are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

_MONTHS = word_set(
    "january february march april may june july august september october november december "
    "enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre "
    "diciembre januar jänner februar märz mai juni juli oktober dezember janvier février "
    "fevrier mars avril juin juillet août aout septembre octobre novembre décembre decembre "
    "gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre janeiro fevereiro "
    "março maio junho julho setembro outubro novembro dezembro januari februari maart mei "
    "augustus jan feb mar apr jun jul aug sep sept oct nov dec ene abr ago dic mrz okt dez"
)
_MONTH = "(?:" + "|".join(sorted(set(_MONTHS), key=lambda m: (-len(m), m))) + r")\b\.?"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_YEAR = r"(?:1[6-9]\d\d|20\d\d)"
_NUMERIC = (
    rf"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    rf"|{_YEAR}[./](?:0?[1-9]|1[0-2])[./]{_DAY}"
    rf"|{_DAY}[./-](?:0?[1-9]|1[0-2])[./-](?:{_YEAR}|\d\d)"
    rf"|(?:0?[1-9]|1[0-2])[./-]{_DAY}[./-](?:{_YEAR}|\d\d)"
)
_IN_WORDS = (
    rf"{_DAY}(?:st|nd|rd|th|er|º|°|\.)?[ -](?:of |de |del )?{_MONTH}(?:,?[ -](?:de |del "
    rf")?(?:{_YEAR}|'?\d\d(?!\d)))?"
    rf"|{_MONTH} {_DAY}(?:st|nd|rd|th)?(?:,? {_YEAR})?(?!\d)"
    rf"|{_MONTH},? (?:de |del )?{_YEAR}"
)
_NUMERIC_DATE = re.compile(
    rf"(?<![\w./+-])(?<!\d:)(?:{_NUMERIC})(?:T\d\d:\d\d:\d\dZ?)?(?![\w/])(?!-\d)(?!\.\d)"
)
# Searched in the lower-case text, which is faster than a pattern that ignores case.
_DATE_IN_WORDS = re.compile(rf"(?<![\w.])(?:{_IN_WORDS})(?!\w)")
_MONTH_WORDS = frozenset(_MONTHS)
_BIRTH = re.compile(
    r"\b(?:born|birth|birthday|birthdate|dob|d\.o\.b|date of "
    r"birth|geb\.?|geboren|geburtsdatum|geburtstag|nacid[oa]|nacimiento|f\.? ?nac|née?|"
    r"naissance|nat[oa]|nascita|nascid[oa]|nascimento|geboortedatum|bday|dateofbirth|birth_date"
    r"|fn)\b"
)
_DATED = re.compile(
    r"(?:date|filed|visit|admitted|admission|appointment|effective|signed|discharged|fecha"
    r"|datum)[ :=\"]{1,4}$"
)


_LONG_AGO = re.compile(r"(?<!\d)1[0-8]\d\d(?!\d)")  # nobody born then is alive


def dates(scan: Scan) -> Iterator[Finding]:
    """Dates; those with a word about birth within forty characters before are dates of birth."""
    if not scan.has_digit:
        return
    patterns = [(_NUMERIC_DATE, scan.text)]
    if not _MONTH_WORDS.isdisjoint(scan.vocabulary):
        patterns.append((_DATE_IN_WORDS, scan.lower))
    for pattern, text in patterns:
        for match in pattern.finditer(text):
            start, end = match.span()
            birth = _is_birth(scan, start) and not _LONG_AGO.search(match.group())
            if birth:
                yield Finding(start, end, Category.DATE_OF_BIRTH, 0.95, "date_of_birth")
            elif not scan.guarded(start, end) or _DATED.search(scan.before(start, 24)):
                if pattern is _NUMERIC_DATE:
                    yield Finding(start, end, Category.DATE, 0.5, "date.numeric")
                elif match.group()[0].isdigit() or any(each.isdigit() for each in match.group()):
                    yield Finding(start, end, Category.DATE, 0.6, "date.words")


def _is_birth(scan: Scan, start: int) -> bool:
    before = scan.before(start, 40)
    words = list(_BIRTH.finditer(before))
    if not words:
        return False
    between = before[words[-1].end() :]
    return not re.search(r"\d{4}|[;\n|].*\w.*[:=]", between)


_AGE = re.compile(
    r"(?<![\w.$€£-])(?P<english>\d{1,3})(?:[ -]?(?:years?|yrs?|months?|mos?)[ -]?old|"
    r"[ -]?y/?o\b|[ ]?yo\b|[ ]years? of age|-year-old)"
    r"|\b(?:aged?|age of|age is|age:|edad:?|âgée? de|alter:?|età:?|idade:?|leeftijd:?|age\"?"
    r"[ ]?[:=])[ ]{0,2}[\"']?(?P<label>\d{1,3}(?:"
    r"[ ](?:años|anos|ans|jahre|anni|jaar|meses)\b)?)(?![\w%/-]|\.\d|[ ]?(?:%|gb|mb|to\b))"
    r"|(?<![\w.])(?P<other>\d{1,3})[ ](?:años(?: de edad)?|anos de idade|jahre "
    r"alt|jährige?[rn]?|ans(?=[ ,.;]|$)|anni(?=[ ,.;]|$)|jaar oud|meses de edad|jaar(?=[ ,.]))"
    r"|\b(?:i am|i'm|im|he is|he's|she is|she's|turned|turning|turns|just turned|i'll turn|will "
    r"turn|be turning|(?:son|daughter|wife|husband|"
    r"brother|sister|mother|father|mom|dad|kid|boy|girl) is)[ ](?:only |just |now |about |almost "
    r")?(?P<verb>\d{1,2}|1[01]\d)(?=[ ]?(?:[.,;!?)]|and\b|but\b|now\b|today\b|this\b|next\b|last\b"
    r"|tomorrow\b|years\b|y/o|$|\n))"
)
# Years of something else than a life.
_SPAN_AFTER = re.compile(
    r"\s(?:antes|atr[aá]s|de evoluci|despu[eé]s|m[aá]s tarde|de duraci|de tratamiento|de "
    r"seguimiento|plus tard|auparavant|d'exp)"
)
_SPAN_BEFORE = re.compile(
    r"(?:hace|durante|desde|tras|cada|pendant|depuis|il y a|durant|da|per)[ ]$"
)
_AGE_WORDS = word_set(
    "years year yrs yr old yo y age aged edad âgé âgée alter età idade leeftijd años anos jahre "
    "jährige jähriger jährigen ans anni jaar meses months turned turning turns turn am m im is "
    "s"
)
_THING = (
    r"(?:car|laptop|house|home|building|computer|company|bug|code|codebase|wine|whisky|scotch"
    r"|server|system|"
    r"tree|phone|project|machine|bike|boat|truck|tradition|mortgage|bond|treasury|contract|plan"
    r"|lease|"
    r"warranty|loan|cheese|tv|roof|furnace|church|database|app|account|tire|tyre|battery|fridge"
    r"|book|film|movie)s?"
)
_THINGS = re.compile(rf"^[ ]?(?:old )?{_THING}\b")
_THINGS_BEFORE = re.compile(
    rf"\b{_THING} (?:is|are|was|were)(?: about| over| almost| only| now)? "
    rf"$"
)


def _of_a_thing(scan: Scan, match: re.Match[str]) -> bool:
    before = _THINGS_BEFORE.search(scan.before(match.start(), 32))
    return before is not None or _THINGS.match(scan.after(match.end(), 20)) is not None


def ages(scan: Scan) -> Iterator[Finding]:
    """Ages of people; not of things."""
    if not scan.has_digit or _AGE_WORDS.isdisjoint(scan.vocabulary):
        return
    for match in _AGE.finditer(scan.lower):
        group = match.lastgroup or "english"
        value = int(re.match(r"\d{1,3}", match.group(group)).group())  # type: ignore[union-attr]
        if value > 120 or _of_a_thing(scan, match):
            continue
        if group == "other":
            after, before = scan.after(match.end()), scan.before(match.start(), 16)
            if not (_SPAN_AFTER.match(after) or _SPAN_BEFORE.search(before)):
                yield Finding(*match.span(), Category.AGE, 0.75, "age")
            continue
        yield Finding(*match.span(group), Category.AGE, 0.85, "age")


RECOGNIZERS = (dates, ages)
