"""Values out of shape: spelled digits, "at" and "dot", spaced letters, broken lines.

This file owns the words for digits and signs and gives edits that put a value back into its usual
shape. It knows no recogniser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.readings import Edit
from lily.gate.vocabulary import word_set

_DIGITS = {
    "en": "zero one two three four five six seven eight nine",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun",
    "it": "zero uno due tre quattro cinque sei sette otto nove",
    "pt": "zero um dois três quatro cinco seis sete oito nove",
    "nl": "nul een twee drie vier vijf zes zeven acht negen",
}
_DIGIT_OF = {
    word: str(value) for words in _DIGITS.values() for value, word in enumerate(words.split())
} | {"oh": "0", "zwo": "2"}
_SIGN_OF = {"dash": "-", "hyphen": "-", "minus": "-", "plus": "+", "dot": ".", "space": " "}
_REPEATS = {"double": 2, "triple": 3}
_MIN_SPELLED = 4  # words that make a run of digits spelled out

_SPOKEN = "|".join(sorted([*_DIGIT_OF, *_SIGN_OF, *_REPEATS], key=lambda word: (-len(word), word)))
_SPOKEN_RUN = re.compile(
    rf"(?<!\w)(?:(?:{_SPOKEN}|\d{{1,4}})(?:[ \t]?[,.\-][ \t]?|[ \t]{{1,3}}|\r?\n)){{6,64}}"
    rf"(?:{_SPOKEN}|\d{{1,4}})(?!\w)",
    re.IGNORECASE,
)
_SPOKEN_WORD = re.compile(rf"{_SPOKEN}|\d{{1,4}}", re.IGNORECASE)


def _spoken_digits(text: str) -> Iterator[Edit]:
    for run in _SPOKEN_RUN.finditer(text):
        words = list(_SPOKEN_WORD.finditer(run.group()))
        spelled = sum(word.group().lower() in _DIGIT_OF for word in words)
        values = [_DIGIT_OF.get(word.group().lower()) for word in words]
        counting = "".join(value or " " for value in values)
        if spelled < _MIN_SPELLED or counting in "01234567890" or counting in "9876543210":
            continue
        base, done, repeat = run.start(), 0, 1
        for word in words:
            spoken = word.group().lower()
            if done < word.start():
                yield base + done, base + word.start(), ""
            shown = _DIGIT_OF.get(spoken) or _SIGN_OF.get(spoken)
            if spoken in _REPEATS:
                repeat, shown = _REPEATS[spoken], ""
            elif shown is not None:
                shown, repeat = shown * repeat, 1
            if shown is not None:
                yield base + word.start(), base + word.end(), shown
            done = word.end()


_AT = r"(?:at|arroba|arobase|chiocciola|aroba|klammeraffe|ät)"
_DOT = r"(?:dot|punto|point|punkt|ponto|punt|period)"
_OPEN, _CLOSE = r"[\[({<]?", r"[\])}>]?"
_LOCAL_STOP = word_set(
    "look looking me us you it them him her is are was be visit live lives lived hosted located "
    "here there available based found meet work works arrived back stay shop buy only up check "
    "see that this over out people not and or the a site page website online also right hosting "
    "docs arrive aimed pointed laugh good bad"
)
_SPOKEN_MAIL = re.compile(
    r"(?<![\w@.+-])(?P<local>[\w+-]{1,64}(?:(?:\.|[ \t]{1,3}(?:dot|punto|point|punkt|ponto)"
    r"[ \t]{1,3})"
    r"[\w+-]{1,64}){0,3})"
    rf"(?P<at>[ \t]{{0,3}}{_OPEN}[ \t]?(?:(?<=[\[({{< \t]){_AT}|@)[ \t]?{_CLOSE}[ \t]{{0,3}})"
    r"(?P<domain>[\w-]{1,63}(?:(?:\.|[ \t]{0,3}[\[({<]?[ \t]?(?<=[\[({< \t])"
    rf"{_DOT}(?=[\])}}> \t])[ \t]?[\])}}>]?[ \t]{{0,3}})[\w-]{{2,63}}){{1,4}})(?!\w)",
    re.IGNORECASE,
)
_SPOKEN_DOT = re.compile(
    rf"[ \t]{{0,3}}(?:[\[({{<][ \t]?(?:{_DOT}|\.)[ \t]?[\])}}>][ \t]{{0,3}}|(?<=[ \t]){_DOT}"
    rf"[ \t]{{1,3}})",
    re.IGNORECASE,
)
_FOREIGN_DOT = re.compile(r"[ ](?:punto|point|ponto|punt|period)[ ]", re.IGNORECASE)
_MAIL_CONTEXT = re.compile(
    r"\b(?:e-?mail|mail|correo|courriel|reach|contact|write|address|adresse|schreib|ping"
    r"|message)\w{0,4}\b",
    re.IGNORECASE,
)


def _spoken_addresses(text: str) -> Iterator[Edit]:
    for match in _SPOKEN_MAIL.finditer(text):
        at, domain = match.group("at"), match.group("domain")
        if at.strip(" \t[](){}<>").lower() == "at" and _FOREIGN_DOT.search(domain):
            continue  # "at this point if" is a sentence
        spoken_at, spoken_dot = "@" not in at, _SPOKEN_DOT.search(domain) is not None
        if not spoken_at and not spoken_dot and at.strip() == at:
            continue  # an ordinary address
        bracketed = any(each in at for each in "[({<")
        local = match.group("local").lower().split()[-1]
        if spoken_at and not bracketed:
            if local in _LOCAL_STOP or domain.lower().split(" ")[0] in _LOCAL_STOP:
                continue
            before = text[max(0, match.start() - 48) : match.start()]
            if not spoken_dot and not _MAIL_CONTEXT.search(before):
                continue
        if "@" in at and not spoken_dot and not any(each in at for each in "[("):
            continue
        for dot in _SPOKEN_DOT.finditer(match.group("local")):
            yield match.start("local") + dot.start(), match.start("local") + dot.end(), "."
        yield match.start("at"), match.end("at"), "@"
        for dot in _SPOKEN_DOT.finditer(domain):
            yield match.start("domain") + dot.start(), match.start("domain") + dot.end(), "."


_SPACED = re.compile(r"(?<!\S)(?:[\w@.+-](?:[ \t]|[ \t]{3})){6,256}[\w@.+-](?!\S)")


def _spaced_letters(text: str) -> Iterator[Edit]:
    for match in _SPACED.finditer(text):
        for gap in re.finditer(r"[ \t]{1,3}", match.group()):
            wide = len(gap.group()) == 3
            yield match.start() + gap.start(), match.start() + gap.end(), " " if wide else ""


# An address over a line break: the sign, a dot or a hyphen stands at the break.
_KNOWN_END = (
    "(?:com|org|net|edu|gov|io|dev|co|uk|de|fr|es|it|nl|pt|eu|ch|at|be|us|ca|au|in|br|mx|jp)"
)
_BROKEN = re.compile(
    r"(?<=@)[ \t]{0,4}\r?\n[> \t]{0,8}(?=[A-Za-z0-9-]{1,63}\.)"
    rf"|(?<=[\w.+-])[ \t]{{0,4}}\r?\n[> \t]{{0,8}}(?=@"
    rf"(?:[A-Za-z0-9-]{{1,63}}\.){{1,4}}{_KNOWN_END}\b)"
    r"|(?<=[A-Za-z0-9][.-])\r?\n[> \t]{0,8}(?=[a-z]{2,24}\b)"
)
_HALF_ADDRESS = re.compile(
    r"@[A-Za-z0-9-]{1,63}(?P<gap>[ \t]{0,4}\r?\n[> \t]{0,8})[a-z0-9-]{0,30}\.[a-z]{2,24}\b"
)
_MAIL_BEFORE = re.compile(r"@[A-Za-z0-9-]{1,63}[.-]\Z")


def _broken_lines(text: str) -> Iterator[Edit]:
    if "@" not in text or "\n" not in text:
        return
    for match in _BROKEN.finditer(text):
        if text[match.start() - 1] in ".-" and not _MAIL_BEFORE.search(
            text[max(0, match.start() - 254) : match.start()]
        ):
            continue
        yield match.start(), match.end(), ""
    for match in _HALF_ADDRESS.finditer(text):
        yield match.start("gap"), match.end("gap"), ""


# Letters for digits in a number of card or IBAN length; only a checksum can tell.
_LOOSE_NUMBER = re.compile(r"(?<![\w])(?:[0-9OoIl|][ .-]?){12,18}[0-9OoIl|](?![\w])")
_AS_DIGIT = str.maketrans("OoIl|", "00111")


def _letter_digits(text: str) -> Iterator[Edit]:
    for match in _LOOSE_NUMBER.finditer(text):
        number = match.group()
        letters = sum(each in "OoIl|" for each in number)
        if 0 < letters <= sum(each.isdigit() for each in number) // 2:
            for index, character in enumerate(number):
                if character in "OoIl|":
                    at = match.start() + index
                    yield at, at + 1, character.translate(_AS_DIGIT)


_ANY_WORD = re.compile(r"[^\W\d_]{2,12}")
_AT_WORDS = frozenset(_AT[3:-1].split("|"))
_DOT_WORDS = frozenset(_DOT[3:-1].split("|"))
_AT_SIGN = re.compile(r"(?i)[(\[{<][ \t]?(?:@|at\b|arroba\b)|@[\w.-]{0,64}[ \t(\[{<]")


def spelling_edits(text: str) -> list[Edit]:
    """All edits, sorted; `edit` drops what overlaps an earlier one."""
    words = _ANY_WORD.findall(text.lower())
    vocabulary = set(words)
    makers = [_spaced_letters, _broken_lines, _letter_digits]
    if (
        not vocabulary.isdisjoint(_DIGIT_OF)
        and sum(word in _DIGIT_OF for word in words) >= _MIN_SPELLED
    ):
        makers.append(_spoken_digits)
    if not (vocabulary.isdisjoint(_AT_WORDS) or vocabulary.isdisjoint(_DOT_WORDS)) or (
        "mail" in text.lower() or _AT_SIGN.search(text)
    ):
        makers.append(_spoken_addresses)
    return sorted({each for maker in makers for each in maker(text)})
