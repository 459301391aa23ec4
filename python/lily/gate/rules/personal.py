"""What a text tells of a person in plain words: measurements, conditions, medication, pay.

This file owns the phrases. They need a person beside them ("my weight is 120"), since the same
words about nobody are general knowledge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.labels import MONEY
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

_WHOSE = (
    r"(?:my|our|his|her|their|mom's|dad's|mother's|father's|wife's|husband's|son's|daughter's"
    r"|patient's|the patient's|mi|mein|meine|mon|ma|su)"
)
_WHO = (
    r"(?:i|he|she|they|we|my (?:mom|mum|mother|dad|father|wife|husband|son|daughter|brother|sister"
    r"|partner|boyfriend|girlfriend|friend|kid|child|boss|"
    r"grandmother|grandfather|grandma|grandpa|uncle|aunt|cousin|colleague|coworker|neighbor"
    r"|neighbour|roommate)|the patient|patient|pt)"
)
_MEASURE = (
    r"(?:weight|height|bmi|body fat|blood pressure|bp|heart rate|pulse|resting heart "
    r"rate|glucose|blood sugar|blood glucose|fasting glucose|cholesterol|"
    r"a1c|hba1c|hemoglobin a1c|temperature|fever|ldl|hdl|triglycerides|psa|tsh|ferritin|hemoglobin"
    r"|haemoglobin|oxygen|spo2|creatinine|egfr|vitamin d|"
    r"iron|b12|sperm count|cd4 count|viral load|iq|testosterone|estrogen|peso|gewicht|poids"
    r"|blutdruck|tension)"
)
_READING = (
    r"\d{1,4}(?:[.,]\d{1,2})?(?:/\d{2,3})?(?:[ ]?(?:kg|kgs|lbs?|pounds|cm|mg/dl|mmol/l|mmhg|bpm"
    r"|ng/ml|%|°[cf]|stone))?"
)
_MEASURED = re.compile(
    rf"\b{_WHOSE} (?:\w{{1,12}} )?{_MEASURE}(?: "
    rf"(?:level|levels|count|reading|result|results|score))?(?: (?:is|was|came back at|came back "
    rf"as|came back|has been|of|at|reads|read|went up to|"
    rf"dropped to|es|ist|est|test was))?(?: (?:about|around|at|only|now|currently|up to))?"
    rf"[ :=]{{1,2}}(?P<measured>{_READING})(?![\w/])"
    rf"|\b{_WHO} weighs? (?:about |around |only |now )?(?P<weighs>{_READING})(?![\w/])"
    rf"|\b(?:bp|hr|rr|spo2|temp|wt|ht|bmi)[ :]{{1,2}}(?P<vital>\d{{2,3}}(?:\.\d)?(?:/\d{{2,3}})?"
    rf"(?:[ ]?(?:%|kg|c|f|cm)\b)?)(?![\w/])"
)
_MEASURE_WORDS = word_set(
    "weight height bmi fat pressure bp rate pulse glucose sugar cholesterol temperature fever "
    "ldl hdl triglycerides psa tsh ferritin hemoglobin haemoglobin oxygen spo creatinine egfr "
    "vitamin iron count load iq testosterone estrogen peso gewicht poids blutdruck tension "
    "weigh weighs hr rr temp wt ht a hba b"
)
_ILL = re.compile(
    rf"\b{_WHO}(?: \w{{1,10}})?(?:'ve been| (?:have been|has been|had "
    rf"been|was|were|am|is|are|got|being|just got|recently))? ?(?:diagnosed with|suffers? "
    rf"from|suffering from|being treated for|"
    rf"treated for|tested positive for|allergic to|hospitali[sz]ed (?:for|with)|recovering "
    rf"from|in remission from)"
    rf" (?:an? |the |my |his |her )?(?P<condition>[^\W\d_][\w'-]{{1,24}}(?: "
    rf"(?!and\b|but\b|so\b|in\b|at\b|on\b|last\b|when\b|by\b|for\b|that\b|which\b|who\b|can\b"
    rf"|what\b|this\b|since\b|after\b|because\b)[\w'-]{{1,24}}){{0,3}})"
)
_ILL_WORDS = word_set(
    "diagnosed suffer suffers suffering treated positive allergic hospitalized hospitalised "
    "recovering remission"
)
_DOSE = re.compile(
    r"(?<![\w-])(?P<drug>[A-Za-zÀ-ÿ][a-zà-ÿ]{4,24}(?:[ -](?:XR|ER|SR|XL|CR))?"
    r"[ ]?\d{1,4}(?:[.,]\d{1,2})?[ ]?(?:mg|mcg|µg|ug|iu)(?:/(?:ml|day|kg|d[ií]a))?)(?!\w)(?!/d?l)"
)
_NO_DRUG = word_set(
    "about least contains between approximately around roughly maximum minimum dosage doses "
    "dose taking takes under above sodium caffeine total daily every calcium protein sugar "
    "cholesterol until below after before added dosis hasta cada entre menos sobre"
)


# Words that put a person beside a reading or a dose; without one it is general knowledge.
_SOMEONE = word_set(
    "i my me mine he his him she her they their patient patients pt mr mrs ms mrn dob takes taking "
    "took prescribed wife husband son daughter mother father mom dad paciente toma mi su patientin "
    "ich mein meine er sie je mon ma il elle vitals admitted started"
)


def health(scan: Scan) -> Iterator[Finding]:
    """Measurements and conditions of a person, and doses of medicines."""
    vocabulary = scan.vocabulary
    about_someone = not _SOMEONE.isdisjoint(vocabulary)
    if scan.has_digit and not _MEASURE_WORDS.isdisjoint(vocabulary):
        for match in _MEASURED.finditer(scan.lower):
            group = match.lastgroup or 0
            if group != "vital" or about_someone:
                yield Finding(*match.span(group), Category.HEALTH, 0.8, "health.measured")
    if not _ILL_WORDS.isdisjoint(vocabulary):
        for match in _ILL.finditer(scan.lower):
            yield Finding(*match.span("condition"), Category.HEALTH, 0.75, "health.condition")
    if about_someone and not vocabulary.isdisjoint(("mg", "mcg", "ug", "µg", "iu")):
        for match in _DOSE.finditer(scan.text):
            if match.group("drug").split(" ")[0].lower() not in _NO_DRUG:
                yield Finding(*match.span("drug"), Category.MEDICATION, 0.6, "medication.dose")


_PAY = re.compile(
    rf"\b(?:{_WHOSE} (?:\w{{1,12}} ){{0,2}}?(?:salary|income|pay|wage|wages|net "
    rf"worth|debt|savings|mortgage|bonus|rent|pension|take-home|balance|raise|severance|gehalt"
    rf"|sueldo|salaire)"
    rf"(?: (?:is|was|of|at|will be|went up to|went from|went down to|has "
    rf"been|are|es|ist|est|before tax|after tax|per year|a year))?|(?:{_WHO} |and )(?:only "
    rf"|currently |now "
    rf"|used to |just )?(?:make|makes|earn|earns|made|earned|"
    rf"owe|owes|owed|am paid|is paid|get paid|gets paid|got paid|inherited|have saved|saved up))"
    rf"[ :]{{1,2}}(?:about |around |only |over |under |roughly |almost |nearly )?"
)
_PAY_WORDS = word_set(
    "salary income pay wage wages worth debt savings mortgage bonus rent pension take balance "
    "raise severance gehalt sueldo salaire make makes earn earns made earned owe owes owed paid "
    "inherited saved"
)


def amounts(scan: Scan) -> Iterator[Finding]:
    """What a person earns, owns or owes."""
    if not scan.has_digit or _PAY_WORDS.isdisjoint(scan.vocabulary):
        return
    for match in _PAY.finditer(scan.lower):
        money = MONEY.match(scan.text, match.end())
        if money is not None and len(money.group(1)) > 2:
            yield Finding(*money.span(1), Category.AMOUNT, 0.75, "amount.personal")


_SEX = re.compile(
    r"\b(?P<before>varón|mujer|hombre|niño|niña)(?= de \d{1,3} (?:años|meses|días))"
    r"|(?<=[ -]year-old )(?P<after>(?:[a-z]{4,12} )?(?:male|female|man|woman|boy|girl))\b"
)


def sexes(scan: Scan) -> Iterator[Finding]:
    """The sex of a person beside an age."""
    if scan.has_digit:
        for match in _SEX.finditer(scan.lower):
            yield Finding(*match.span(), Category.DEMOGRAPHIC, 0.6, "demographic.sex")


RECOGNIZERS = (health, amounts, sexes)
