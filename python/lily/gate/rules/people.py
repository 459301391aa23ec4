"""Names of people and companies where words around them say so, as helpers to the neural reader.

This file owns titles, introductions, labels and legal forms. It has no list of names: a name here
is what stands where a name must stand, so its confidence stays below 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.fields import LINKED, Field, Labels
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

_UP = "A-ZÀ-ÖØ-ÞŁŚŞČŠŽĐĞİŐŰĆŃŻŹŘĚĽ"
_CAPITAL = (
    rf"(?:(?:[DLO]['’]|Mc|Mac)?[{_UP}][^\W\d_]{{1,24}}(?:['’-][{_UP}]?[^\W\d_]{{1,24}}){{0,2}}"
    rf"|[DLO]['’][{_UP}][^\W\d_]{{1,24}})"
)
_INITIAL = rf"[{_UP}]\."
_PARTICLE = (
    r"(?:de la|de los|de las|van der|van den|von "
    r"der|de|del|della|di|da|dos|das|du|van|von|der|den|ter|la|le|el|al|bin|ibn|y|e)"
)
_SUFFIX = r"(?:,? (?:[JS]r\b\.?|[js]r\b\.?|I{2,3}\b|IV\b|PhD\b|Ph\.D\.|MD\b|M\.D\.))"
_FURTHER = rf"(?:[ ](?:{_PARTICLE}[ ]){{0,2}}(?:{_CAPITAL}|{_INITIAL})){{0,4}}"
NAME = (
    rf"(?:{_CAPITAL}|{_INITIAL}(?=[ ]?[{_UP}])[ ]?(?:{_INITIAL}"
    rf"[ ]?)?{_CAPITAL}){_FURTHER}{_SUFFIX}?"
)

# Not those of fame and fiction (Sir, Lady, Captain): there a name needs the reader's judgement.
_TITLE = (
    r"(?:Mr|Mrs|Ms|Mx|Miss|Dr|Prof|Professor|Judge|Rev|Sgt|"
    r"Sra|Srta|Dra|Dña|Herrn|Herr|Frau|Mme|Mlle|Madame|Monsieur|Maître|Sig|Sig\.ra|Signor|"
    r"Signora|Dott|Dott\.ssa|Dhr|Mevr|Mw|Senhor|Senhora|Nurse|Officer|Detective|Attorney"
    r"|Councillor)"
)
# Titles that without their dot are other words.
_DOTTED_TITLE = r"(?:Sr|Lt|Gen|Col|Fr|Hon|M|Me)\."
_OPTIONAL_TITLE = rf"(?:(?:{_TITLE}\.?|{_DOTTED_TITLE}|Dr\.[ ]?[Aa]\.)[ ]{{1,2}})?"
_TITLED = re.compile(
    rf"(?<![\w.])(?:{_TITLE}(?:\. ?|(?<=[a-zñ]) )|{_DOTTED_TITLE} ?)(?P<name>{NAME})"
)
_INTRODUCED = re.compile(
    r"\b(?:[Mm]y (?:full |legal |real |first |last |maiden )?name(?: is|'s|:)|[Nn]ame "
    r"is|[Nn]ame's|[Mm]e llamo|[Mm]i nombre es|[Ii]ch hei(?:ß|ss)e|[Mm]ein Name ist|[Jj]e "
    r"m'appelle|[Mm]on nom est|"
    r"[Mm]i chiamo|[Ii]l mio nome è|[Mm]eu nome é|[Mm]e chamo|[Mm]ijn naam is|[Ii]k "
    r"heet|[Hh](?:is|er) name is|and his is|and hers is|"
    rf"[Ss]igned(?: by|,|:)|[Ss]incerely,?|[Rr]egards,?|[Yy]ours "
    rf"(?:truly|faithfully),?|[Ss]aludos,|[Cc]ordialement,|[Gg]rü(?:ß|ss)e,?|[Rr]eviewed "
    rf"by|[Ss]igned|"
    rf"[Pp]repared by|[Aa]pproved by|[Ss]ent by|[Cc]alled by|[Ss]poke "
    rf"(?:to|with)|[Kk]unde|[Cc]ustomer is|[Cc]lient is|[Pp]atient is)"
    rf"[ \n]{{1,3}}{_OPTIONAL_TITLE}(?P<name>{NAME})(?!\w)"
)
_LOWER_INTRODUCED = re.compile(
    r"\b(?:my (?:full |legal |real )?name(?: is|'s)|me llamo|mi nombre es|ich hei(?:ß|ss)e|mein "
    r"name ist|je m'appelle|mi chiamo|meu nome é|mijn naam is)[ ]"
    r"(?P<name>[^\W\d_]{2,20}(?:[ -](?!and\b|but\b|i\b|my\b|from\b|is\b|on\b|the\b|with\b|at\b"
    r"|in\b|to\b|for\b|y\b|und\b|et\b|so\b|what\b|can\b|please\b|not\b)[^\W\d_]{2,20}){0,2})"
    r"(?=[ ,.;!?\n]|$)"
)
_NO_LOWER_NAME = word_set(
    "not the a an on in spelled wrong misspelled incorrect different what correct going being "
    "changed my your listed too getting written still"
)
_CONTACTED = re.compile(
    rf"\b(?:[Tt]his is|[Aa]ttn:?|From:|To:|C[Cc]:|[Aa]lert for|[Cc]ontact|[Aa]sk "
    rf"for|[Cc]all|[Ee]mail|[Mm]eet|[Nn]otify|[Ii]nform|[Dd]ear|[Hh]ola|[Qq]uerid[oa]|[Ll]iebe[r]?"
    rf"|[Cc]her|[Cc]hère)[ ]{_OPTIONAL_TITLE}(?P<name>{NAME})(?!\w)"
)

# Words that stand where a name could, in titles of things, jobs and greetings.
_NO_NAME = word_set(
    "support sales customer service services team us center centre office department manager "
    "admin administrator human resources desk help sir madam all everyone everybody hiring "
    "committee board friend friends colleagues members valued customers user users client the "
    "this that your my our new world city state street bank company group inc ltd llc test "
    "build deploy release publish lint check run docker setup install node python pages github "
    "gitlab google microsoft apple amazon openai windows linux ubuntu api http https json yaml "
    "error warning info debug today tomorrow monday tuesday wednesday thursday friday saturday "
    "sunday january february march april may june july august september october november "
    "december date address phone email mobile fax number name id none null true false unknown "
    "not available please thank thanks regards confidential private account order invoice "
    "hospital clinic university school college church hotel restaurant airport court police "
    "emergency poison control technical product engineering security billing general public "
    "project data code type status value key field string action actions workflow job jobs step "
    "main hi hello hey dear dr mr mrs ms prof certified practitioner training me maybe accounts "
    "payable receivable attention reporter specialist urgent asap sincerely re fw fwd dra sr "
    "sra av avda residente instituto universitario edificio centro sexo edad domicilio fecha "
    "médico servicio calle país localidad provincia cp nhc nass correo remitido informe "
    "apellidos nombre paciente is was has are if in on at for what how why when where who can "
    "could would should do does did i you he she it we they and or but no yes an a"
)


_CAMEL = re.compile(
    r"(?<!Mc)(?<!Mac)(?<!Fitz)(?<!\bDe)(?<!\bLe)(?<!\bLa)(?<!\bDi)(?<!\bVan)(?<=[a-z])[A-Z]"
)  # an identifier of code


def is_name(name: str, least_words: int = 1) -> bool:
    """Whether it is written as a name, and no word of it stands in other places only."""
    words = [word for word in re.split(r"[ .\-]{1,3}", name) if word]
    if any(_CAMEL.search(word) for word in words):
        return False
    capital = [word for word in words if word[:1].isupper()]
    if name.isupper() and len(words) == 1 and name.isascii():
        return False  # an acronym or a shout
    other_script = (
        bool(name) and name[0].isalpha() and not name[0].isupper() and not name[0].islower()
    )
    return (len(capital) >= least_words or other_script) and not any(
        word.lower() in _NO_NAME for word in words
    )


def trimmed(name: str) -> str:
    """A name without words behind it that are none."""
    words = name.split(" ")
    for index, word in enumerate(words[1:], 1):
        if word.lower().strip(".,") in _NO_NAME or _CAMEL.search(word):
            del words[index:]
            break
    while len(words) > 1 and words[-1][:1].islower() and not re.fullmatch(_SUFFIX, f" {words[-1]}"):
        words.pop()
    return " ".join(words)


_AFTER_NAME = re.compile(rf"[{_UP}][\w.]{{0,30}} \Z")  # an "M." that is a middle initial


def introduced(scan: Scan) -> Iterator[Finding]:
    """Names behind titles, introductions and words of contact."""
    plans = (
        (_TITLED, 0.9, 1, "person.title"),
        (_INTRODUCED, 0.85, 1, "person.introduced"),
        (_CONTACTED, 0.7, 2, "person.contacted"),
    )
    for pattern, confidence, least, rule in plans:
        for match in pattern.finditer(scan.text):
            name, start = trimmed(match.group("name")), match.start("name")
            middle = scan.text[match.start() : match.start() + 2] == "M." and _AFTER_NAME.search(
                scan.text[max(0, match.start() - 32) : match.start()]
            )
            if is_name(name, least) and not middle:
                yield Finding(start, start + len(name), Category.PERSON, confidence, rule)
    for match in _LOWER_INTRODUCED.finditer(scan.lower):
        if match.group("name").split()[0] not in _NO_LOWER_NAME:
            yield Finding(*match.span("name"), Category.PERSON, 0.8, "person.introduced")


# Names in scripts without capitals count only behind a label.
_OTHER_SCRIPT = (
    r"[\u0370-\u1fff\u3040-\u9fff\uac00-\ud7af]{1,16}(?:"
    r"[ \u00b7\u30fb][\u0370-\u1fff\u3040-\u9fff\uac00-\ud7af]{1,16}){0,3}"
)
_FULL_NAME = re.compile(rf"{_OPTIONAL_TITLE}({NAME}|{_OTHER_SCRIPT})(?![\w@(\[])")
_LABELLED = Labels((
    Field(Category.PERSON, "person.label", (
        "full name", "first name", "last name", "surname", "given name", "family name", "nombre",
        "apellidos", "apellido", "vorname", "nachname", "nom",
        "prénom", "nome", "cognome", "sobrenome", "achternaam", "voornaam", "patient",
        "patient name", "paciente", "customer name", "client name", "employee name",
        "cardholder", "name on card", "cardholder name", "account holder", "beneficiary", "payee",
        "applicant", "claimant", "plaintiff", "defendant", "tenant",
        "landlord", "witness", "guardian", "emergency contact", "next of kin", "spouse",
        "attending", "physician", "doctor", "médico", "remitido por",
        "responsable clínico", "pt", "insured", "policyholder", "employee", "student", "attorney",
        "counsel", "provider", "contact", "contact person",
        "attention", "attn", "recipient", "sender", "author", "reporter", "assignee",
        "customer", "client", "cliente", "kunde", "kundin", "signed", "firmado",
    ), _FULL_NAME, 0.8, link=LINKED),
))  # fmt: skip
_NAME_LABEL = Labels(
    (Field(Category.PERSON, "person.label", ("name", "naam"), _FULL_NAME, 0.75, link=LINKED),)
)


def labelled(scan: Scan) -> Iterator[Finding]:
    """Names in forms and tables. A bare "name" also labels things, so it takes two words."""
    for labels, least in ((_LABELLED, 1), (_NAME_LABEL, 2)):
        for finding in labels.find(scan):
            name = trimmed(scan.text[finding.start : finding.end])
            if is_name(name, least):
                yield Finding(
                    finding.start,
                    finding.start + len(name),
                    finding.category,
                    finding.confidence,
                    finding.rule,
                )


_MAIL_NAME = re.compile(r"(?<![\w.])(?P<first>[a-z]{2,20})[._-](?P<last>[a-z]{2,20})\d{0,4}@")
_MAX_MAIL_NAMES = 64
_DISPLAY_NAME = re.compile(rf"(?<!\w)(?P<name>{NAME})\"?[ ]<[^<>\s@]{{1,64}}@")


def of_addresses(scan: Scan) -> Iterator[Finding]:
    """Names that an e-mail address spells ("dana.singh@..."), wherever they stand in the text."""
    if "@" not in scan.text:
        return
    for shown in _DISPLAY_NAME.finditer(scan.text):
        if is_name(shown.group("name")):
            yield Finding(*shown.span("name"), Category.PERSON, 0.85, "person.display_name")
    names = {(m.group("first"), m.group("last")) for m in _MAIL_NAME.finditer(scan.lower)}
    for first, last in sorted(names)[:_MAX_MAIL_NAMES]:
        if first in _NO_NAME or last in _NO_NAME:
            continue
        for match in re.finditer(
            rf"(?<![\w.@-]){first}[ ](?:[^\W\d_]\.?[ ])?{last}(?![\w@])", scan.lower
        ):
            yield Finding(*match.span(), Category.PERSON, 0.9, "person.of_address")


_LEGAL_FORM = (
    r"(?:Inc\b\.?|LLC\b|L\.L\.C\.|Ltd\b\.?|Limited\b|GmbH\b(?: & Co\. "
    r"KG)?|AG\b|S\.A\.U?\.?|S\.L\.U?\.?|SARL\b|SAS\b|B\.V\.|BV\b|N\.V\.|PLC\b|plc\b|Corp\b\.?"
    r"|Corporation\b|LLP\b|"
    r"Pty Ltd\b|Oyj?\b|ApS\b|A/S\b|KG\b|OHG\b|e\.V\.|S\.p\.A\.|SpA\b|S\.r\.l\.|Srl\b|Lda\b\.?"
    r"|Ltda\b\.?)"
)
_COMPANY_WORD = rf"[{_UP}0-9][\w&'’.-]{{0,30}}"
_COMPANY = re.compile(
    rf"(?<![\w&]){_COMPANY_WORD}(?:[ ](?:&|and|und|et|y|of|[-–])[ ]{_COMPANY_WORD}|"
    rf"[ ]{_COMPANY_WORD}){{0,4}}?,?[ ]{_LEGAL_FORM}(?!\w)"
)


_NOTICE = re.compile(r"copyright|©|\(c\)|licen[cs]ed|trademark")


def companies(scan: Scan) -> Iterator[Finding]:
    """Companies with their legal form."""
    for match in _COMPANY.finditer(scan.text):
        if "copyright" in match.group().lower() or _NOTICE.search(scan.before(match.start())):
            continue  # a notice names its holder in public
        yield Finding(*match.span(), Category.ORGANIZATION, 0.8, "organization.legal_form")


RECOGNIZERS = (introduced, labelled, of_addresses, companies)
