"""E-mail addresses and telephone numbers.

This file owns their shapes. Telephone numbers are judged by `phonenumbers`, and only where a
candidate has the digits and either an international prefix, a national way of writing, or a word
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import phonenumbers

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan

# The local part may be in any script. Found from the sign outwards, so that long runs cost nothing.
_DOMAIN = re.compile(
    r"@(?:(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.){1,8}(?:xn--[a-z0-9-]{2,59}|[a-z]{2,24}(?![a-z0-9_@-])"
    r"|[^\W\d_a-z]{2,24}(?![\w@-]))|\[\d{1,3}(?:\.\d{1,3}){3}\])",
    re.IGNORECASE,
)
_LOCAL = re.compile(
    r"(?:[\w!#$%&'*+/=?^`{|}~-]{1,64}(?:\.[\w!#$%&'*+/=?^`{|}~-]{1,64}){0,8}|\"[^\"\n]{1,64}\")\Z"
)
_LEADING = re.compile(
    r"^[!#$%&'*+/=?^`{|}~-]{1,8}|^mailto:"
    r"|^[\u3040-\u30ff\uac00-\ud7af]{1,64}(?=[A-Za-z0-9])|^.{0,64}[=&?/|{}'`](?=[\w.+-]{1,64}$)"
)
_FILE = re.compile(
    r"@[\w-]{1,64}(?:\.[\w-]{1,64})?\.(?:py|js|ts|tsx|png|jpe?g|svg|css|json|ya?ml|md|txt|sh)$",
    re.IGNORECASE,
)


def emails(scan: Scan) -> Iterator[Finding]:
    """E-mail addresses."""
    if "@" not in scan.text:
        return
    for match in _DOMAIN.finditer(scan.text):
        at = match.start()
        local = _LOCAL.search(scan.text[max(0, at - 128) : at])
        if local is None or _FILE.search(match.group()):
            continue
        name = local.group()
        lead = _LEADING.match(name)
        start = at - len(name) + (lead.end() if lead else 0)
        if start >= at:
            continue
        before = scan.text[max(0, start - 96) : start]
        if re.search(r"://[^\s/@]{0,90}:$", before):
            continue  # the password of a link
        yield Finding(start, match.end(), Category.EMAIL, 1.0, "email")


_DIGITS_ALLOWED = r"\d(?:[ .\-/()\u00b7]{0,3}\d){5,16}"
_CANDIDATE = re.compile(
    rf"(?<![A-Za-z0-9_.@#$€£%&/+-])(?:tel:)?(?P<international>(?:\+|00(?=[1-9]))"
    rf"[ (]{{0,2}}{_DIGITS_ALLOWED})(?P<xi>{{ext}})?(?![\w@])".replace(
        "{ext}", r"(?:[ ,;]{0,2}(?:x|ext\.?|extension|#)[ ]?\d{1,6})"
    )
    + rf"|(?P<national>(?<![A-Za-z0-9_.@#$€£%&/+-])(?<!\d[ ,:])\(?{_DIGITS_ALLOWED})(?P<xn>(?:"
    rf"[ ,;]{{0,2}}(?:x|ext\.?|extension|#)[ ]?\d{{1,6}}))?(?![\w@%])(?![.,:/-]\d)",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"phone|tel\b|tel[.:]|t[eé]l[eé]?f|t[ée]l\b|telefon|mobile?|mobil|m[oó]vil|cell|call|dial|ring"
    r"|fax|"
    r"whatsapp|sms|text me|text at|handy|rufnummer|anruf|appel|contact|reach|pager|hotline"
    r"|landline|desk|"
    r"office|cel\b|fono|celular|portable|msisdn|my number|mon num[eé]ro|mi n[uú]mero|"
    r"meine nummer|answering at|電話|전화|电话|messages? (?:at|to|on)|voicemail|signal"
)
# National ways of writing a number that need no word: group patterns, digits as d.
_NATIONAL_SHAPES = re.compile(
    r"(?:\(d{3}\)[ -]?d{3}[ .-]d{4}|d{3}-d{3}-d{4}|d{3}\.d{3}\.d{4}|d{3} d{3} d{4}|1[ -.]d{3}"
    r"[ -.]d{3}[ -.]d{4}"
    r"|0d(?:[ .-]dd){4}|0d{2,3} d{3} dd dd|0d{2,5}[ /-]d{3,4}[ -]?d{3,4}|\(0d{1,5}\)"
    r"[ -]?d{3,9}(?:[ -]d{2,5}){0,3}|0d{2,4}[ /-]d{5,9}(?:-d{1,4})?"
    r"|0d{4} d{6}|0d{2} d{4} d{4}|07d{3} d{3} d{3}|d{3} dd dd dd|[6789]d{2} d{3} d{3}|\(dd\) "
    r"?d{4,5}-d{4})"
)
_ANY_REGION = (
    "US",
    "GB",
    "FR",
    "DE",
    "ES",
    "IT",
    "NL",
    "PT",
    "CH",
    "AT",
    "BE",
    "IN",
    "AU",
    "BR",
    "MX",
    "SE",
    "PL",
    "JP",
)
_REGION_OF_START = {"0": ("GB", "FR", "DE", "IT", "NL", "CH", "AT", "BE", "AU", "SE", "JP", "IN")}


def _parsed(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None


def _international(number: str) -> float:
    parsed = _parsed(re.sub(r"^00", "+", number.strip()).replace("(0)", ""), None)
    if parsed is None or not phonenumbers.is_possible_number(parsed):
        return 0.0
    return 1.0 if phonenumbers.is_valid_number(parsed) else 0.85


def _valid_somewhere(number: str, country: str | None) -> bool:
    regions = _REGION_OF_START.get(number.lstrip("(")[0], _ANY_REGION)
    for region in (country, *regions) if country else regions:
        parsed = _parsed(number, region)
        if parsed is not None and phonenumbers.is_valid_number(parsed):
            return True
    return False


def _shape_of(number: str) -> str:
    """Digits as d, but a leading 0, 1, 6-9 as it is where a pattern names it."""
    shown = re.sub(r"\d", "d", number)
    at = next(index for index, each in enumerate(number) if each.isdigit())
    return shown[:at] + number[at] + shown[at + 1 :]


def _looks_national(number: str) -> bool:
    plain = re.sub(r"\d", "d", number)
    return bool(_NATIONAL_SHAPES.fullmatch(plain) or _NATIONAL_SHAPES.fullmatch(_shape_of(number)))


def _national(scan: Scan, number: str, start: int, end: int) -> float:
    """How sure a national number is; 0 where it is none."""
    count = sum(each.isdigit() for each in number)
    if not 7 <= count <= 13 or number.count("(") != number.count(")"):
        return 0.0
    named = _WORD.search(scan.before(start, 36)) is not None
    country = scan.country
    if _looks_national(number):
        if _valid_somewhere(number, country):
            return 0.9
        # Fiction and documentation use numbers that nobody has; they look no different.
        return 0.8 if named or (count >= 10 and number[-5] == "-") else 0.0
    if named or (country and number[0] == "0"):
        if _valid_somewhere(number, country):
            return 0.88
        return 0.75 if named else 0.0
    return 0.0


def phones(scan: Scan) -> Iterator[Finding]:
    """Telephone numbers."""
    if not scan.has_digit:
        return
    for match in _CANDIDATE.finditer(scan.text):
        international = match.group("international")
        start = match.start("international" if international else "national")
        number = international or match.group("national")
        if scan.guarded(start, start + len(number)) or _DATE_LIKE.match(number):
            continue
        if international:
            confidence = _international(number)
        else:
            confidence = _national(scan, number, start, start + len(number))
        if confidence:
            yield Finding(start, match.end(), Category.PHONE, confidence, "phone")


_DATE_LIKE = re.compile(
    r"\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4}\b|(?:19|20)\d\d[ ]?[-–]"
    r"[ ]?(?:19|20)\d\d$"
)
_GLUED = re.compile(r"(?<=[A-Za-z])(?:\(\d{3}\)[ ]?|\d{3}[-.])\d{3}[-.]\d{4}(?![\w-])")


def glued_phones(scan: Scan) -> Iterator[Finding]:
    """North American numbers that stand right behind a letter."""
    for match in _GLUED.finditer(scan.text):
        if _valid_somewhere(match.group(), "US") and not scan.guarded(*match.span()):
            yield Finding(*match.span(), Category.PHONE, 0.9, "phone")


RECOGNIZERS = (emails, phones, glued_phones)
