"""Common first names where the words around them leave little else: before a surname, and behind a
verb of speech in texts without capitals.

This file owns the list, of names that are frequent in English-speaking countries and are neither
words nor places. The neural reader finds names that stand in no list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.people import NAME, is_name, trimmed
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

FIRST_NAMES = word_set(
    "james john robert michael william david richard charles joseph thomas christopher daniel paul "
    "donald george kenneth steven edward brian ronald anthony kevin jason matthew gary timothy "
    "jose larry jeffrey scott eric stephen andrew raymond gregory joshua jerry dennis walter "
    "patrick peter harold douglas henry carl arthur ryan roger joe juan albert jonathan justin "
    "terry gerald keith samuel willie ralph lawrence nicholas roy benjamin bruce brandon adam "
    "harry fred wayne billy steve louis jeremy aaron randy eugene carlos russell bobby victor "
    "ernest phillip todd jesse craig alan shawn clarence sean philip chris johnny jimmy antonio "
    "bryan tony luis mike stanley leonard nathan manuel rodney curtis norman marvin vincent "
    "glenn jeffery travis jeff chad jacob melvin alfred kyle francis bradley herbert frederick "
    "tom tim jim bob dave matt greg josh alex sam ben nick tommy danny kenny pete fritz karl "
    "mary patricia linda barbara elizabeth jennifer maria susan margaret dorothy lisa nancy karen "
    "betty helen sandra donna carol ruth sharon michelle laura sarah kimberly deborah jessica "
    "shirley cynthia angela melissa brenda amy anna rebecca kathleen pamela martha debra amanda "
    "stephanie carolyn christine marie janet catherine frances ann alice julie heather teresa "
    "doris gloria evelyn jean cheryl mildred katherine joan ashley judith rose janice kelly "
    "nicole judy christina kathy theresa beverly denise tammy irene jane lori rachel marilyn "
    "andrea kathryn louise sara anne jacqueline wanda bonnie julia lois tina phyllis norma paula "
    "diana annie lillian emily robin peggy gladys rita connie edna tiffany carmen kate lucy emma "
    "olivia sophie hannah megan laurie jenny katie beth liz maggie molly claire"
)
_NOT_FIRST = word_set("rose robin ben jean art chad")  # words, abbreviations and a country
_FULL = re.compile(rf"(?<![\w.@/-])(?P<name>(?P<first>[A-Z][a-z]{{2,11}})[ ]{NAME})(?![\w@])")
_SPOKEN_TO = re.compile(
    r"\b(?:tell|ask|text|message|remind|invite|phone|ping|email|call|thank|warn|with|from)[ ]"
    r"(?P<name>[a-z]{2,11})(?=[ ](?:that|to|about|if|when|how|why|what|and|for|i|we|he|she|not|on)"
    r"\b|[.,!?\n]|$)"
)


def first_names(scan: Scan) -> Iterator[Finding]:
    """Full names that begin with a known first name; lower-case ones behind a verb of speech."""
    if FIRST_NAMES.isdisjoint(scan.vocabulary):
        return
    for match in _FULL.finditer(scan.text):
        name = trimmed(match.group("name"))
        if match.group("first").lower() in FIRST_NAMES and " " in name and is_name(name, 2):
            start = match.start()
            yield Finding(start, start + len(name), Category.PERSON, 0.8, "person.first_name")
    for match in _SPOKEN_TO.finditer(scan.text):
        if match.group("name") in FIRST_NAMES - _NOT_FIRST:
            yield Finding(*match.span("name"), Category.PERSON, 0.7, "person.spoken_to")


RECOGNIZERS = (first_names,)
