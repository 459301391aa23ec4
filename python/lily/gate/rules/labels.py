"""The labels of forms, records and sentences, and what the values behind them look like.

This file owns words and value shapes; `fields.py` matches them. Numbers that states give, with
their checksums, are `government.py`; names of people are `people.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.checks import dea, npi, stdnum, vin
from lily.gate.rules.fields import FORM, LINKED, Field, Labels
from lily.gate.rules.scan import Scan
from lily.gate.vocabulary import word_set

# Identifiers: digits with letters around them, no sentence and no date.
_NO_DATE = r"(?!\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4})"
IDENTIFIER = re.compile(
    rf"({_NO_DATE}(?=[A-Za-z/.:-]{{0,12}}\d)(?=[\w/.:-]{{0,12}}\d[A-Za-z/.:-]{{0,6}}\d)[A-Za-z0-9]"
    r"[\w/:-]{2,35}(?<![:/_-]))(?![\w@])(?!\.\w)"
)
CODE = re.compile(r"((?=[A-Za-z-]{0,8}\d)[A-Za-z0-9][A-Za-z0-9-]{3,24}(?<!-))(?![\w@])(?!\.\w)")
GROUPED = re.compile(
    rf"({_NO_DATE}[A-Z]{{0,4}}[ -]?\d{{2,12}}(?:"
    rf"[ -]\d{{2,12}}){{0,7}}(?![\w@])|{_NO_DATE}[A-Z]{{1,5}}[-]?\d[\dA-Z-]{{4,20}}\b)"
    r"(?!\.\d)"
)
_LINE = re.compile(r"([^\W\d_][^\n\r|\"<>;{}=()]{2,60}?)(?=[ \t]{0,4}(?:[\n\r|\"<>;.(]|,\s|$))")
_PLATE = re.compile(
    r"((?=[A-ZÄÖÜ]{0,4}[ -]{0,2}[A-Z]{0,3}[ -]?\d)[A-ZÄÖÜ0-9]{1,8}(?:"
    r"[ -]{1,2}[A-Z0-9]{1,6}){0,2})(?!\w)"
)
_VIN = re.compile(r"([A-HJ-NPR-Za-hj-npr-z0-9]{17})(?!\w)")
_MONEY = (
    r"(?:(?:USD|EUR|GBP|CHF|[$€£¥₹])[ ]?\d[\d.,' ]{0,14}\d?(?:"
    r"[ ]?[kKmM]\b)?|\d[\d.,']{2,14}\d?(?:[ ]?[kKmM]\b)?"
    r"(?:[ ]?(?:USD|EUR|GBP|CHF|dollars|euros?|pounds|[$€£]))?|\d{2,3}[ ]?[kK]\b)"
)
MONEY = re.compile(rf"({_MONEY}(?<![ .,]))(?![\w%])")
_HANDLE = re.compile(r"(@?[A-Za-z0-9][\w.-]{2,31}(?<![.-]))(?![\w@(\[:/-])(?!\.\w)")
_CARD_CODE = re.compile(r"(\d{3,4})(?![\w.])")
_SORT_CODE = re.compile(r"(\d\d[ -]?\d\d[ -]?\d\d)(?![\w-])")

_NOBODY = word_set(
    "root admin administrator guest nobody www-data postgres ubuntu user users username null "
    "none true false string str text varchar char required optional undefined default test demo "
    "anonymous system self the and not name password email your yourname int integer bool "
    "object type field input value must should can will cannot has does missing invalid unknown "
    "empty here already taken available too with for from"
)

_IDS = (
    Field(Category.BANK_ACCOUNT, "bank.account", (
        "account", "accounts", "acct", "account number", "bank account", "account no", "konto",
        "kontonummer", "kto",
        "cuenta", "cuenta bancaria", "número de cuenta", "numero de cuenta", "compte",
        "numéro de compte",
        "conto", "conto corrente", "conta", "rekening", "rekeningnummer", "checking account",
        "savings account",
        "bank account number",
    ), re.compile(rf"({_NO_DATE}\d[\d -]{{4,22}}\d)(?![\w.@])"), 0.92),
    Field(Category.BANK_ACCOUNT, "bank.routing", (
        "routing", "routing number", "aba", "rtn", "aba routing", "transit number", "bank code",
        "blz", "bankleitzahl", "ifsc",
        "bsb", "routing code",
    ), re.compile(r"(\d{3}-?\d{3}(?:\d{2,3})?|[A-Z]{4}0[A-Z0-9]{6})(?![\w-])"), 0.85,
    stdnum("us.rtn")),
    Field(Category.IBAN, "iban.label", ("iban",),
          re.compile(r"([A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,4})?)(?!\w)"), 0.85),
    Field(Category.BANK_ACCOUNT, "bank.sort_code", ("sort code", "sortcode", "sort"), _SORT_CODE,
    0.9),
    Field(Category.BANK_ACCOUNT, "bank.bic", ("bic", "swift", "swift code", "bic code", "swift bic",
    "bic swift"),
          re.compile(r"([A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)(?!\w)"), 0.95),
    Field(Category.PAYMENT_CARD, "card.code", ("cvv", "cvc", "cvv2", "cvc2", "security code",
    "card code"), _CARD_CODE, 0.9),
    Field(Category.PAYMENT_CARD, "card.expiry", ("expiry", "exp", "expires", "exp date", "expiring",
    "valid until", "gültig bis",
    "expiry date", "expiration", "valid thru"),
          re.compile(r"((?:0[1-9]|1[0-2])[ ]?/[ ]?(?:20)?[2-4]\d)(?![\w/])"), 0.7),
    Field(Category.PAYMENT_CARD, "card.label", (
        "card", "credit card", "debit card", "card number", "cc", "ccn", "kreditkarte",
        "kartennummer", "tarjeta",
        "carte", "carte bancaire", "carta",
    ), re.compile(r"(\d{4}(?:[ .-]?\d{4}){2}(?:[ .-]?\d{3,7})?|\d{12,19}|3\d{3}[ .-]?\d{6}"
        r"[ .-]?\d{5})(?![\w-])"), 0.85, stdnum("luhn")),
    Field(Category.HEALTH_ID, "health.record", (
        "mrn", "medical record", "medical record number", "patient id", "patient number",
        "patient no", "chart number", "chart",
        "hospital number", "nhc", "historia clínica", "historia clinica", "número de historia",
        "nº historia",
        "patientennummer", "dossier médical", "health record", "prescription", "rx", "rx number",
        "episodio",
    ), IDENTIFIER, 0.9),
    Field(Category.HEALTH_ID, "health.insurance", (
        "insurance", "insurance id", "health insurance", "health plan", "member id",
        "subscriber id", "medicare", "medicaid",
        "medicare number", "medicaid id", "nass", "cipa", "tarjeta sanitaria", "nuss",
        "versichertennummer", "krankenkasse",
        "krankenversicherung", "carte vitale", "group number", "beneficiary id", "insurance policy",
    ), GROUPED, 0.85),
    Field(Category.HEALTH_ID, "health.practitioner", (
        "npi", "provider id",
    ), re.compile(r"(\d{10})(?!\w)"), 0.85, npi),
    Field(Category.HEALTH_ID, "health.dea", ("dea", "dea number"),
    re.compile(r"([A-Z][A-Z9]\d{7})(?!\w)"), 0.9, dea),
    Field(Category.HEALTH_ID, "health.licence", (
        "medical license", "medical licence", "no col", "colegiado", "número de colegiado",
        "nº de colegiado", "lanr",
        "medical license number", "nursing license", "gmc", "gmc number", "no colegiado",
    ), re.compile(r"((?:[A-Z]{1,4}[- ]?)?\d[\dA-Z-]{1,14}(?:[ ]\d{2,6}){0,3}(?<=\d{3}))(?![\w-])"),
    0.85),
    Field(Category.PASSPORT, "passport.label", (
        "passport", "passport number", "passport no", "passeport", "pasaporte", "reisepass",
        "reisepassnummer", "passaporto",
        "passaporte", "paspoort", "visa number", "visa no", "travel document",
    ), re.compile(r"((?=[A-Za-z0-9]{0,4}\d)(?=(?:[A-Z]{0,4}\d){3})[A-Z0-9]{2}"
        r"[ ]?[A-Z0-9]{4,8})(?!\w)"), 0.9),
    Field(Category.DRIVING_LICENSE, "driving_license.label", (
        "driver license", "drivers license", "driver licence", "driving licence", "driving license",
        "driver license number",
        "dl", "dln", "führerschein", "führerscheinnummer", "permiso de conducir",
        "carnet de conducir", "permis de conduire",
        "patente di guida", "carta de condução", "rijbewijs", "license", "licence",
        "license number", "licence number",
    ), re.compile(r"((?=[A-Z-]{0,6}\d)(?=(?:[ -]?[A-Z0-9]){6})(?=[A-Z0-9 "
        r"-]{0,8}\d[A-Z0-9-]{0,3}\d)[A-Z0-9]{1,8}(?:[ -]?[A-Z0-9]{2,8}){1,4})(?!\w)(?!\.\d)"), 0.8),
    Field(Category.VEHICLE_ID, "vehicle.vin", ("vin", "vehicle identification number",
    "fahrgestellnummer", "bastidor", "chassis"),
          _VIN, 0.9, vin),
    Field(Category.LICENSE_PLATE, "plate.label", (
        "license plate", "licence plate", "number plate", "plate", "plates", "registration plate",
        "kennzeichen", "nummernschild",
        "matrícula", "matricula", "immatriculation", "plaque", "targa", "kenteken",
        "vehicle registration", "car registration",
    ), _PLATE, 0.85),
    Field(Category.CASE_NUMBER, "case.label", (
        "case no", "case number", "case", "docket", "docket number", "cause no", "aktenzeichen",
        "az", "application no",
        "applications nos", "file no", "claim number", "claim no", "police report",
        "incident number", "expediente", "dossier",
        "proc", "processo", "zaak", "report number", "procedimiento", "civil action no",
        "notary license", "citation",
    ), re.compile(r"((?=[A-Za-z:/-]{0,8}\d)[A-Za-z0-9]{1,8}(?:[:/-][A-Za-z0-9]{1,8}){1,4}"
        r"|[A-Z]{0,4}\d{4,12})(?![\w])"), 0.85),
    Field(Category.OTHER_ID, "id.label", (
        "customer id", "customer number", "customer no", "client id", "client number", "account id",
        "member number",
        "membership number", "membership", "subscriber number", "loyalty number", "employee id",
        "employee number", "employee no",
        "emp id", "empid", "staff id", "badge number", "badge", "student id", "student number",
        "matriculation number", "matrikelnummer",
        "kundennummer", "mitgliedsnummer", "personalnummer", "número de cliente",
        "numero de cliente", "número de empleado",
        "numéro client", "numéro de client", "codice cliente", "user id", "profile id", "device id",
        "serial number", "serial no",
        "booking reference", "booking", "reservation", "confirmation number", "confirmation code",
        "invoice number", "invoice no",
        "invoice", "policy number", "policy no", "policy", "policy id", "frequent flyer",
        "meter number", "bar number", "bar no",
        "bar", "license id", "tracking number", "biometric id", "agent id", "contract number",
        "case id", "person id", "id number",
    ), IDENTIFIER, 0.8),
    Field(Category.OTHER_ID, "id.imei", ("imei",),
    re.compile(r"(\d{2}[ -]?\d{6}[ -]?\d{6}[ -]?\d)(?!\w)"), 0.9, stdnum("imei")),
)  # fmt: skip

_PERSONAL = (
    Field(Category.USERNAME, "username.label", (
        "username", "user name", "userid", "login", "screen name", "benutzername", "usuario",
        "nombre de usuario",
        "nom d'utilisateur", "gebruikersnaam", "nutzername", "nickname", "gamertag", "twitter",
        "instagram",
        "telegram", "discord", "snapchat", "tiktok", "github user", "handle", "skype", "steam",
    ), _HANDLE, 0.75, link=LINKED, refuses=_NOBODY),
    Field(Category.USERNAME, "username.numbered", ("user", "db user", "admin user", "ssh user"),
          re.compile(r"([A-Za-z][A-Za-z._-]{2,24}\d{1,6})(?![\w@(\[:/-])"), 0.7, refuses=_NOBODY),
    Field(Category.USERNAME, "username.query", ("user",),
    re.compile(r"(?<=\?user=|&user=)([\w.-]{3,32})(?![\w@])"), 0.75,
          link=LINKED, refuses=_NOBODY),
    Field(Category.DEMOGRAPHIC, "demographic.label", (
        "gender", "sex", "sexo", "geschlecht", "sexe", "nationality", "nacionalidad",
        "nationalität", "nationalité", "nazionalità",
        "ethnicity", "race", "religion", "marital status", "estado civil", "familienstand",
        "political affiliation",
        "sexual orientation",
    ), re.compile(r"([^\W\d_][\w-]{0,20})(?!\w)"), 0.7, link=LINKED, refuses=_NOBODY),
    Field(Category.HEALTH, "health.label", (
        "diagnosis", "diagnoses", "primary diagnosis", "chief complaint", "allergies", "allergy",
        "medical history",
        "diagnóstico", "diagnose", "diagnostic", "medical condition", "health condition",
        "admitted for", "cc", "cie",
    ), _LINE, 0.75, link=FORM, refuses=_NOBODY),
    Field(Category.MEDICATION, "medication.label", ("medication", "medications",
    "current medications", "prescribed", "meds", "current medication", "tratamiento"),
          _LINE, 0.75, link=FORM, refuses=_NOBODY),
    Field(Category.ORGANIZATION, "organization.label", (
        "employer", "company", "company name", "organization", "organisation", "vendor", "firm",
        "empresa", "empleador", "arbeitgeber",
        "firma", "employeur", "entreprise", "current employer", "employer name",
    ), re.compile(r"([A-ZÀ-ÖØ-Þ][\w&.'-]{1,30}(?:[ ][A-ZÀ-ÖØ-Þ&][\w&.'-]{0,30}){0,4})(?![\w@(])"),
    0.7, link=FORM, refuses=_NOBODY),
    Field(Category.URL, "url.label", ("website", "homepage", "home page", "blog", "portfolio",
    "personal site", "web site", "webseite", "sitio web"),
          re.compile(r"((?:https?://)?(?:www\.)?[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}"
              r"(?:/[^\s\"'<>)]{0,200})?)(?![\w@])"), 0.75, link=LINKED),
    Field(Category.ADDRESS, "address.label", (
        "address", "mailing address", "home address", "street address", "billing address",
        "shipping address", "postal address", "residence",
        "domicilio", "dirección", "direccion", "anschrift", "adresse", "wohnhaft", "indirizzo",
        "adres", "morada", "endereço", "residing at",
    ), re.compile(r"((?=[^\n]{0,80}\d)(?=[^\n]{0,60}[A-ZÀ-Þ][a-zß-ÿ]{2})[A-ZÀ-Þ\d][^\n\"<>"
        r"|{}@;=]{6,110}?)(?=[ \t]{0,4}(?:[.]?\s{0,4}\Z|\.?\n|[\"<>|;]|\.[ ][A-Z]))"), 0.75,
        link=FORM),
    Field(Category.AMOUNT, "amount.label", (
        "salary", "annual salary", "base salary", "gross salary", "net salary", "wages", "income",
        "annual income", "net worth",
        "compensation", "sueldo", "salario", "gehalt", "salaire", "stipendio", "balance",
        "account balance", "debt", "annual wage",
        "monthly income",
    ), MONEY, 0.75, link=LINKED),
)  # fmt: skip

# Identifiers that begin with what they are.
_CODED = re.compile(
    r"(?<![\w-])(?P<kind>MRN|PAT|NHC|RX|INS|HIN|NPI|MED|EMP|STAFF|CUST|CLI|CLNT|MEM|STU|USR|ACC"
    r"|ACCT|ACCOUNT|POL|INV|NID|DL|CASE|BIO|SUB|LOAN|CLAIM|CLM)"
    r"[-_#](?:[A-Z]{1,4}[-_])?(?=[A-Za-z-]{0,10}\d)"
    r"(?=[\w-]{0,8}\d[A-Za-z-]{0,4}\d)[A-Za-z0-9-]{3,24}(?![\w-])",
    re.IGNORECASE,
)
_CODED_CATEGORY = {
    **dict.fromkeys(("MRN", "PAT", "NHC", "RX", "INS", "HIN", "NPI", "MED"), Category.HEALTH_ID),
    **dict.fromkeys(("ACC", "ACCT", "ACCOUNT", "LOAN"), Category.BANK_ACCOUNT),
    **dict.fromkeys(("CASE", "CLAIM", "CLM"), Category.CASE_NUMBER),
    "DL": Category.DRIVING_LICENSE,
    "NID": Category.GOVERNMENT_ID,
}

# A running number and a year, as courts write it; not the years of a season.
_COURT = re.compile(r"(?<![\w/.:-])(?!(?:19|20)\d\d/)\d{4,6}/\d\d(?![\w/-]|\.\d)")
_HASHED = re.compile(
    r"\b(?:employee|customer|client|member|patient|student|account|acct|policy|loan|badge"
    r"|claim)[ ]?#"
    r"[ ]?(?P<id>[a-z]{0,4}-?\d{4,12})(?![\w-])"
)
_DOCKET = re.compile(
    r"(?<![\w/.:-])(?:\d{1,2}:)?\d{2}-(?:cv|cr|mc|mj|md|bk|ap|civ|crim|cm"
    r"|po)-\d{3,6}(?:-[A-Z]{2,4}){0,3}"
    r"(?![\w-])",
    re.IGNORECASE,
)
_LABELS = Labels((*_IDS, *_PERSONAL))


def coded(scan: Scan) -> Iterator[Finding]:
    """Identifiers with the kind as their prefix ("MRN-4949223", "EMP-24755")."""
    if not scan.has_digit:
        return
    for match in _CODED.finditer(scan.text):
        category = _CODED_CATEGORY.get(match.group("kind").upper(), Category.OTHER_ID)
        if not scan.guarded(*match.span()):
            yield Finding(*match.span(), category, 0.75, "id.coded")
    for match in _HASHED.finditer(scan.lower):
        yield Finding(*match.span("id"), Category.OTHER_ID, 0.8, "id.hash")
    for pattern, confidence in ((_COURT, 0.7), (_DOCKET, 0.9)):
        for match in pattern.finditer(scan.text):
            if not scan.guarded(*match.span()):
                yield Finding(*match.span(), Category.CASE_NUMBER, confidence, "case.bare")


RECOGNIZERS = (_LABELS.find, coded)
