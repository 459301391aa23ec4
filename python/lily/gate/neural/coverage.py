"""Whether a text is in a script and a language that the model has learned.

This file owns the test and its word lists. A language is told by its function words, which takes a
sentence or two; what is too short to tell counts as covered. It knows no network and no policy.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from functools import lru_cache

# Two letters side by side: a unit such as a micro sign or a variable of a formula stays alone.
_FOREIGN_RUN = 2
_LEAST_WORDS = 3  # function words of a language before it is believed
_WORD = re.compile(r"[^\W\d_]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

# The commonest words of each language that few of the others share.
_FUNCTION_WORDS = {
    "en": "the and of to is in that it for was with as on be at this have from are by not you "
    "which or had were they his her she he but we has been will would what there their if can my",
    "es": "el los las una que por con para del como pero más este esta son fue muy también donde "
    "cuando porque hay está tiene ser y",
    "fr": "le les des une est dans pour que qui sur avec pas au par je vous nous mais ou sont ce "
    "cette elle il aux du et être",
    "de": "der die das und ist nicht ein eine mit den dem von zu auf für ich sie es auch wie aus "
    "bei nach wird sich im",
    "it": "il gli che di per una sono con non della nel alla più questo come anche ma dei le è ho",
    "pt": "os uma que com não para por mais como mas foi ao das dos ele tem seu sua ou são está é",
    "nl": "de het een van en niet dat zijn op te voor met als aan er maar om hij ook bij wordt",
    "pl": "się nie na jest że do jak ale po co tak za od przez czy dla być oraz który",
    "sv": "och att det som en på är av för med den till inte jag var ett han om från",
    "da": "og det at en den til er som på de med han af for ikke der var jeg har",
    "fi": "ja on ei se että oli hän mutta ovat kun niin kuin myös joka ole mitä",
    "tr": "bir ve bu için ile çok ne daha gibi ama olan kadar değil var en sonra",
    "cs": "se na je že to jsem ale jak by pro tak jako když co které nebo",
    "hu": "az egy és hogy nem is ez volt meg csak már mint van ha kell",
    "ro": "și în nu cu este pe care din mai pentru sunt că la fost dar",
    "vi": "của và là không có được trong cho một người những với này đã",
    "id": "yang dan di itu dengan untuk ini tidak dari dalam akan pada juga saya",
}
_LANGUAGES_OF = {
    word: frozenset(name for name, words in _FUNCTION_WORDS.items() if word in words.split())
    for word in {word for words in _FUNCTION_WORDS.values() for word in words.split()}
}


def is_covered(text: str, languages: frozenset[str]) -> bool:
    """Whether the model can be trusted with this text: with every line, and with all together."""
    known = languages | {""}
    parts = (text, *text.splitlines())
    return not has_other_script(text) and all(language_of(part) in known for part in parts)


def has_other_script(text: str) -> bool:
    """Whether letters of a script other than Latin stand side by side."""
    for part in _NOT_ASCII.finditer(text):
        run = 0
        for each in part[0]:
            if each.isalpha():
                run = run + 1 if not _is_latin(each) else 0
            elif not unicodedata.combining(each) and unicodedata.category(each) != "Cf":
                run = 0
            if run == _FOREIGN_RUN:
                return True
    return False


def language_of(text: str) -> str:
    """The likely language as an ISO 639-1 code; "" where function words do not tell."""
    seen = Counter(word for word in map(str.lower, _WORD.findall(text)) if word in _LANGUAGES_OF)
    counts: defaultdict[str, float] = defaultdict(float)
    for word, count in seen.items():
        for language in _LANGUAGES_OF[word]:
            counts[language] += count / len(_LANGUAGES_OF[word])
    distinct = Counter(language for word in seen for language in _LANGUAGES_OF[word])
    best = max(counts, key=lambda language: counts[language], default="")
    if (
        not best
        or distinct[best] < _LEAST_WORDS
        or counts[best] <= 2 * counts["en"] * (best != "en")
    ):
        return ""
    return best


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    folded = unicodedata.normalize("NFKC", letter)  # full-width and mathematical letters
    return (
        all(not each.isalpha() or unicodedata.name(each, "").startswith("LATIN") for each in folded)
        or letter in "ªº"
    )
