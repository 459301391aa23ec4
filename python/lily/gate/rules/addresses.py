"""Postal addresses: streets with their numbers, post codes with their towns.

This file owns how addresses are written in English, German, French, Spanish, Italian, Dutch and
Portuguese. A street needs a number or a post code beside it: a street alone is a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

_UP = "A-ZÀ-ÖØ-ÞŁŚŞČŠŽĐĞİŐŰ"
_CAP = rf"[{_UP}][^\W\d_]{{1,24}}(?:['’.-][^\W\d_]{{1,24}}){{0,2}}"
# What stands between the parts.
_SP = r"(?:[ \t]{1,3}|[ \t]{0,3},[ \t]{0,3}|,?[ \t]{0,3}\r?\n[>? \t]{0,8})"

_US_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM"
    "|NY|NC|ND|OH|OK|OR|PA|RI|SC|SD|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC|PR"
)
_STATE = (
    rf"(?:{_US_STATES}|Alabama|Alaska|Arizona|Arkansas|California|Colorado|Connecticut|Delaware"
    rf"|Florida|Georgia|Hawaii|Idaho|Illinois|Indiana|Iowa|Kansas|Kentucky|"
    r"Louisiana|Maine|Maryland|Massachusetts|Michigan|Minnesota|Mississippi|Missouri|Montana"
    r"|Nebraska|Nevada|New (?:Hampshire|Jersey|Mexico|York)|"
    r"(?:North|South) (?:Carolina|Dakota)|Ohio|Oklahoma|Oregon|Pennsylvania|Rhode "
    r"Island|Tennessee|Texas|Utah|Vermont|Virginia|Washington|West Virginia|Wisconsin|"
    r"Wyoming|NSW|VIC|QLD|TAS|ACT|ON|QC|BC|AB|MB|SK|NS|NB)"
)
_UK_POSTCODE = (
    r"(?:GIR ?0AA|[A-PR-UWYZ](?:\d[\dA-HJKPSTUW]?|[A-HK-Y]\d[\dABEHMNPRVWXY]?) "
    r"?\d[ABD-HJLNP-UW-Z]{2})"
)
_CA_POSTCODE = r"[ABCEGHJ-NPRSTVXY]\d[ABCEGHJ-NPRSTV-Z][ -]?\d[ABCEGHJ-NPRSTV-Z]\d"
_ZIP = r"\d{5}(?:-\d{4})?"
_CITY = rf"{_CAP}(?:[ ](?:{_CAP}|de|la|del|am|an der|upon|on|of|sur|le|les|sous)){{0,3}}"

_EN_KIND = (
    r"(?:Street|St|Avenue|Ave|Av|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square"
    r"|Sq|Terrace|Ter|Way|Parkway|Pkwy|Highway|Hwy|Circle|Cir|Trail|Trl|"
    r"Close|Crescent|Cres|Gardens|Gdns|Grove|Row|Mews|Hill|Walk|Alley|Plaza|Loop|Crossing|Turnpike"
    r"|Expressway|Ridge|Park|Green|Rise|Vale|View|Bypass|Broadway|Wharf|Quay|Parade|Yard)"
)
_UNIT = (
    r"(?:Apt|Apartment|Suite|Ste|Unit|Flat|Floor|Fl|Room|Rm|Bldg|Building|No|#)\.?"
    r"[ ]?#?[A-Z]?\d{0,5}[A-Z]?|#[ ]?\d{1,5}[A-Z]?"
)
_EN_STREET = (
    rf"(?:(?:{_UNIT}),?[ ])?\d{{1,6}}[A-Za-z]?(?:-\d{{1,5}})?"
    rf"[ ](?:(?:[NSEW]|NE|NW|SE|SW|North|South|East|West|Upper|Lower|Old|Great|St)\.?[ ])?"
    rf"(?:(?:{_CAP}|\d{{1,3}}(?:st|nd|rd|th)|of|the)[ ]){{1,4}}{_EN_KIND}\b\.?(?:"
    rf"[ ](?:[NSEW]|NE|NW|SE|SW|North|South|East|West)\b\.?)?"
)
_EN_TOWN = (
    rf"(?:{_SP}(?:{_UNIT})(?!\w))?(?:{_SP}{_CITY}(?:{_SP}{_CITY})?)?(?:{_SP}(?:{_STATE}))?(?:{_SP}"
    rf"(?:{_ZIP}|{_UK_POSTCODE}|{_CA_POSTCODE}|\d{{4}}))?(?![\w])"
)
_ENGLISH = re.compile(rf"(?<![\w.,/$€£-])(?P<a>{_EN_STREET})(?:{_EN_TOWN})?")
_HOUSE = r"\d{1,5}[ ]?[a-zA-Z]?(?:[ ]?[-/][ ]?\d{1,4}[a-zA-Z]?)?(?!\w)"
_EU_TOWN = (
    rf"(?:{_SP}(?:[A-Z]{{1,2}}[- ])?(?:\d{{4}}[ ]?[A-Z]{{2}}|\d{{4}}-\d{{3}}|\d{{5}}|\d{{4}})(?:"
    rf"[ ]{_CITY})?)?"
)
_GERMAN = re.compile(
    rf"(?<!\w)(?:[{_UP}][^\W\d_]{{1,30}}(?:[ -][{_UP}][^\W\d_]{{1,20}}){{0,3}}?"
    rf"[ -]?(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|damm|ufer|Straße|Strasse|Str\.|Weg"
    rf"|Platz|Allee|Gasse|"
    rf"straat|laan|plein|gracht|kade|dijk|singel|hof|pad|steeg|markt|berg|stieg|chaussee|graben)"
    rf"|(?:Am|An der|Auf der|Im|Zum|Zur|Unter den)[ ]{_CAP}(?:[ ]{_CAP})?)[ ]{_HOUSE}{_EU_TOWN}"
)
_FRENCH = re.compile(
    rf"(?<![\w./-])\d{{1,4}}(?:[ ]?(?:bis|ter|quater|[A-D]))?,?"
    rf"[ ](?:rue|avenue|av\.|boulevard|bd|bld|place|pl\.|chemin|impasse|allée|allee|quai|cours"
    rf"|route"
    rf"|passage|square|faubourg|sentier|villa|"
    rf"Rue|Avenue|Boulevard|Place|Chemin|Impasse|Allée|Quai|Cours|Route|Passage)"
    rf"[ ](?:(?:de|du|des|la|le|les|l['’]|d['’]|de la|aux?|{_CAP}|\d{{1,2}})[ ]?){{1,6}}{_EU_TOWN}"
)
_ROMANCE = re.compile(
    rf"(?<!\w)(?:Calle|C/|Cl\.|Avda\.?|Av\.|Avenida|Avinguda|Plaza|Plaça|Pza\.?|Pl\.|Paseo|Passeig"
    rf"|P\.º|Pº|Ctra\.?|Carretera|Camino|Ronda|Travesía|Glorieta|Callejón|Urbanización|Urb\."
    rf"|Carrer|"
    rf"Via|Viale|V\.le|Piazza|P\.za|Piazzale|Corso|Largo|Vicolo|Strada|Rua|R\.|Travessa|Praça"
    rf"|Estrada|Alameda|Largo|calle|avenida|plaza|paseo|via|rua)[ ]?"
    rf"(?:(?:de|del|de la|de los|las|los|la|el|da|do|dos|das|dei|degli|della|delle|di|i|y|e|{_CAP}"
    rf"|(?:Dr|Dra|Sta|Sto|Gral|Fco|Mª|D)\.|[IVX]{{1,6}}\b|\d{{1,2}}[ ](?:de|di)\b|[A-Z]\.)"
    rf"[ ]?){{1,7}}"
    rf"(?:,?[ ]?(?:n\.?[ ]?[º°o]\.?|núm\.?|nº|no\.|número)?[ ]?\d{{1,4}}(?:"
    rf"[ ]?[a-zA-Z](?!\w))?(?:[,-]?[ ]?(?:\d{{1,2}}\.?[ ]?[ºª°oa]?(?:[ ]?[A-Z]\b|"
    rf"[ ](?:izq|dcha|dcho|izda)\w{{0,6}}\.?)?|[Pp]iso[ ]\d{{1,2}}|bajo\b|s/n))?|,?[ ]s/n)"
    rf"(?!\w){_EU_TOWN}"
)
_LIVES = re.compile(
    rf"\b(?:lives?|living|live|residing|resides?|located|address "
    rf"is|staying|moved|deliver(?:ed)?|ship(?:ped)?|based|house is|office is|meet)"
    rf"[ ](?:at|to|in|is)?[ ]?"
    rf"(?P<a>\d{{1,6}}[A-Za-z]?[ ](?:(?:{_CAP}|de|la|del|der|den|of|ul\.)"
    rf"[ ]?){{1,5}}(?:\d{{1,5}}\b)?(?:[ ](?:{_UNIT}))?(?:{_SP}{_CITY})?(?:{_SP}(?:{_STATE}))?"
    rf"(?:{_SP}\d{{4,6}})?)(?!\w)"
)
_BOX = re.compile(
    r"\b(?:P\.?[ ]?O\.?[ ]?Box|Post Office Box|Postfach|Apartado(?: de correos)?|Boîte "
    r"postale|Casella postale)[ ]?\d{1,7}(?!\w)",
    re.IGNORECASE,
)
_TOWN_ZIP = re.compile(rf"(?<!\w){_CITY},[ ]?(?:{_STATE})[ ]{{1,2}}{_ZIP}(?![\w-])")
_MILITARY = re.compile(
    rf"\b(?:PSC|Unit|CMR|USNS|USNV|USCGC|USS)[ ](?:\d{{1,6}}"
    rf"|{_CAP})[^\n]{{0,24}}?,?\s{{1,4}}(?:APO|FPO|DPO),?[ ](?:AA|AE|AP)[ ]\d{{5}}"
)
_CODE_ONLY = re.compile(
    rf"(?<![\w-])(?:{_UK_POSTCODE.replace(' ?', ' ')}|{_CA_POSTCODE.replace('[ -]?', ' ')}"
    rf"|[1-9]\d{{3}} (?!AM|PM|US|UK|EU|TB|GB|MB|KB|BC|AD|CE)[A-Z]{{2}}(?=,?[ ]{_CAP}))(?![\w-])"
)
_NAMED_CODE = re.compile(
    r"(?:\b(?:zip|zip ?code|postal ?code|postcode|post code|plz|postleitzahl|code postal|código "
    r"postal|codigo postal|c\.p\.|cp|cap|cep|zipcode)(?!\w)[\"']?(?: is)?[ ]?[:=]?[ \"']{0,3})"
    rf"(?P<code>{_ZIP}|{_UK_POSTCODE.lower()}|\d{{5}}-\d{{3}}|\d{{4}}-\d{{3}}|[a-z]\d[a-z]"
    rf"[ -]?\d[a-z]\d|\d{{3}}[ ]\d{{2}}|\d{{4}}(?:[ ]?[a-z]{{2}}\b)?)(?![\w-])"
)
_KIND_WORDS = word_set(
    "street st avenue ave av road rd boulevard blvd lane ln drive dr court ct place pl square "
    "sq terrace ter way parkway pkwy highway hwy circle cir trail trl close crescent cres "
    "gardens gdns grove row mews hill walk alley plaza loop crossing turnpike expressway ridge "
    "park green rise vale view bypass broadway wharf quay parade yard"
)  # fmt: skip
_FRENCH_WORDS = word_set(
    "rue avenue av boulevard bd bld place pl chemin impasse allée allee quai cours route "
    "passage square faubourg sentier villa"
)
_ROMANCE_WORDS = word_set(
    "calle c cl avda av avenida avinguda plaza plaça pza pl paseo passeig p pº po ctra "
    "carretera camino ronda travesía glorieta callejón urbanización urb carrer via viale v "
    "piazza piazzale corso largo vicolo strada rua r travessa praça estrada alameda"
)  # fmt: skip
_GERMAN_HINT = re.compile(
    r"(?:stra(?:ß|ss)e|str\.|weg|platz|allee|gasse|ring|damm|ufer|straat|laan|plein|gracht|kade"
    r"|dijk|singel|hof|pad|steeg|markt|berg|stieg|chaussee|graben)[ ]\d|(?:am|an der|auf "
    r"der|im|zum|zur|unter den) "
)
_CODE_WORDS = word_set(
    "zip zipcode code postal postcode post plz postleitzahl código codigo cp c cap cep"
)


def _plans(scan: Scan) -> Iterator[tuple[re.Pattern[str], float]]:
    """The patterns that can match, judged by the words that occur."""
    vocabulary = scan.vocabulary
    if not _KIND_WORDS.isdisjoint(vocabulary):
        yield _ENGLISH, 0.9
    if not _FRENCH_WORDS.isdisjoint(vocabulary):
        yield _FRENCH, 0.9
    if not _ROMANCE_WORDS.isdisjoint(vocabulary):
        yield _ROMANCE, 0.85
    if _GERMAN_HINT.search(scan.lower):
        yield _GERMAN, 0.85
    if not vocabulary.isdisjoint(("box", "postfach", "apartado", "postale")):
        yield _BOX, 0.9
    if not vocabulary.isdisjoint(("apo", "fpo", "dpo")):
        yield _MILITARY, 0.9
    yield _TOWN_ZIP, 0.9
    yield _CODE_ONLY, 0.85


def addresses(scan: Scan) -> Iterator[Finding]:
    """Streets with numbers, boxes, towns with codes, and codes."""
    if not scan.has_digit:
        return
    for pattern, confidence in _plans(scan):
        for match in pattern.finditer(scan.text):
            end = match.start() + len(match.group().rstrip(" ,\n\r\t"))
            if pattern is _CODE_ONLY and scan.guarded(*match.span()):
                continue
            yield Finding(match.start(), end, Category.ADDRESS, confidence, "address")
    for match in _LIVES.finditer(scan.text):
        end = match.start("a") + len(match.group("a").rstrip(" ,"))
        yield Finding(match.start("a"), end, Category.ADDRESS, 0.8, "address.lives")
    if not _CODE_WORDS.isdisjoint(scan.vocabulary):
        for match in _NAMED_CODE.finditer(scan.lower):
            yield Finding(*match.span("code"), Category.ADDRESS, 0.8, "address.code")


RECOGNIZERS = (addresses,)
