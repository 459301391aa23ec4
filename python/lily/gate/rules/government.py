"""Numbers that states give to people and companies: social security, national and tax numbers.

This file owns their labels and shapes by country; the checksums are those of `python-stdnum`. A
number counts without a label only where its shape and checksum together are rare by chance, or
where the country is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.checks import Check, any_of, stdnum
from lily.gate.rules.fields import Field, Labels
from lily.gate.rules.labels import GROUPED
from lily.gate.rules.scan import Scan

_GOVERNMENT, _HEALTH = Category.GOVERNMENT_ID, Category.HEALTH_ID


def _value(shape: str) -> re.Pattern[str]:
    return re.compile(rf"({shape})(?![\w])(?!-\d)", re.IGNORECASE)


_GAP = r"[ ./-]?"  # what may be typed between the groups of a number


def _labelled(
    rule: str, labels: str, shape: str, check: Check | None, *, strict: bool = False,
    category: Category = _GOVERNMENT, confidence: float = 0.92,
    refuses: frozenset[str] = frozenset(),
) -> Field:  # fmt: skip
    return Field(
        category,
        f"government.{rule}",
        tuple(labels.split("|")),
        _value(shape),
        confidence,
        check,
        strict,
        refuses=refuses,
    )


# Numbers of sample cards and of advertisements; whole numbers, not prefixes.
SAMPLE_SSN = frozenset({"078-05-1120", "219-09-9999", *(f"987-65-432{last}" for last in range(10))})
FIELDS = (
    _labelled("us_ssn", "ssn|social security|social security number|social|soc sec|ss "
        "number|social security no",
              r"\d{3}[ -]?\d{2}[ -]?\d{4}", stdnum("us.ssn"), refuses=SAMPLE_SSN),
    _labelled("us_itin", "itin|tin|taxpayer id|taxpayer identification number|ssn",
    r"9\d{2}[ -]?[5-9]\d[ -]?\d{4}", stdnum("us.itin"), strict=True),
    _labelled("us_ein", "ein|employer identification number|federal tax id|tax id|tin|fein",
    r"\d{2}-?\d{7}", stdnum("us.ein")),
    _labelled("vat", "vat|vat number|vat id|vat no|ust idnr|ustid|tva|btw",
    r"[A-Z]{2} ?[A-Z0-9]{8,12}",
              stdnum("eu.vat")),
    _labelled("gb_nino", "nino|ni number|national insurance|national insurance number|national "
        "insurance no",
              r"[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D]", None, confidence=0.95),
    _labelled("gb_utr", "utr|unique taxpayer reference", r"\d{5} ?\d{5}", stdnum("gb.utr")),
    _labelled("gb_nhs", "nhs|nhs number|nhs no", r"\d{3}[ -]?\d{3}[ -]?\d{4}", stdnum("gb.nhs"),
    category=_HEALTH),
    _labelled("ca_sin", "sin|social insurance number|social insurance|nas",
    rf"\d{{3}}{_GAP}\d{{3}}{_GAP}\d{{3}}", stdnum("ca.sin")),
    _labelled("de_idnr", "steuer id|steueridentifikationsnummer|steuer "
        "identifikationsnummer|idnr|steuernummer|steuer nr|tax id",
              r"\d{2}[ /]?\d{3}[ /]?\d{3,4}[ /]?\d{3,5}", any_of("de.idnr", "de.stnr")),
    _labelled("de_svnr", "sozialversicherungsnummer|rentenversicherungsnummer|versicherungsnummer"
        "|sv nummer", r"\d{2} ?\d{6} ?[A-Z] ?\d{3}", None),
    _labelled("de_personalausweis", "personalausweis|personalausweisnummer|ausweisnummer|ausweis",
    r"[CFGHJKLMNPRTVWXYZ0-9]{9,10}", None),
    _labelled("es_dni", "dni|nif|nie|cif|documento nacional de identidad|documento de identidad",
    r"[XYZ]?-?\d[\d.]{6,9} ?-?[A-Z]", any_of("es.nif", "es.dni", "es.nie")),
    _labelled("fr_nir", "nir|insee|numéro de sécurité sociale|sécurité sociale|numero de securite "
        "sociale|sécu",
              r"[12] ?\d\d ?\d\d ?(?:\d\d|2[AB]) ?\d{3} ?\d{3}(?: ?\d\d)?", stdnum("fr.nir")),
    _labelled("fr_nif", "numéro fiscal|spi|numero fiscal", r"\d{2} ?\d{2} ?\d{3} ?\d{3} ?\d{3}",
    stdnum("fr.nif")),
    _labelled("it_codice_fiscale", "codice fiscale|cf|cod fisc",
    r"[A-Z]{6} ?\d\d[A-Z]\d\d ?[A-Z]\d{3}[A-Z]", stdnum("it.codicefiscale"), confidence=0.95),
    _labelled("it_iva", "partita iva|p iva|piva", r"(?:IT)?\d{11}", stdnum("it.iva")),
    _labelled("nl_bsn", "bsn|burgerservicenummer|sofinummer",
    rf"\d{{4}}{_GAP}\d{{2}}{_GAP}\d{{3}}|\d{{9}}", stdnum("nl.bsn")),
    _labelled("be_nn", "rijksregisternummer|numéro national|registre national|nn",
    r"\d\d[. ]?\d\d[. ]?\d\d[- ]?\d{3}[. ]?\d\d", stdnum("be.nn")),
    _labelled("pt_nif", "nif|contribuinte|número de contribuinte", r"\d{3} ?\d{3} ?\d{3}",
    stdnum("pt.nif")),
    _labelled("pt_cc", "cartão de cidadão|cc número|bi", r"\d{8} ?\d ?[A-Z0-9]{2}\d",
    stdnum("pt.cc")),
    _labelled("br_cpf", "cpf|cnpj", r"\d{3}\.?\d{3}\.?\d{3}-?\d\d|\d\d\.?\d{3}\.?\d{3}/?\d{4}-?\d"
        r"\d", any_of("br.cpf", "br.cnpj")),
    _labelled("mx_curp", "curp|rfc", r"[A-Z]{3,4} ?\d{6} ?[A-Z0-9]{3,8}", any_of("mx.curp",
    "mx.rfc")),
    _labelled("in_aadhaar", "aadhaar|aadhar|uidai|uid", r"\d{4}[ -]?\d{4}[ -]?\d{4}",
    stdnum("in_.aadhaar")),
    _labelled("in_pan", "pan|pan card|permanent account number", r"[A-Z]{5}\d{4}[A-Z]",
    stdnum("in_.pan")),
    _labelled("pl_pesel", "pesel", r"\d{11}", stdnum("pl.pesel")),
    _labelled("pl_nip", "nip", r"\d{3}-?\d{3}-?\d\d-?\d\d", stdnum("pl.nip")),
    _labelled("se_personnummer", "personnummer|person number|samordningsnummer",
    r"(?:19|20)?\d{6}[-+]?\d{4}", stdnum("se.personnummer")),
    _labelled("dk_cpr", "cpr|cpr nummer|personnummer", r"\d{6}[- ]?\d{4}", stdnum("dk.cpr")),
    _labelled("no_fodselsnummer", "fødselsnummer|fodselsnummer|personnummer", r"\d{6} ?\d{5}",
    stdnum("no.fodselsnummer")),
    _labelled("fi_hetu", "hetu|henkilötunnus|henkilotunnus", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-Z]",
    stdnum("fi.hetu")),
    _labelled("ch_ahv", "ahv|avs|ahv nummer|numéro avs|ssn", r"756\.?\d{4}\.?\d{4}\.?\d\d",
    stdnum("ch.ssn")),
    _labelled("at_svnr", "svnr|sozialversicherungsnummer|sv nummer", r"\d{4} ?\d{6}",
    stdnum("at.vnr")),
    _labelled("ie_pps", "pps|ppsn|pps number", r"\d{7}[A-W][A-IW]?", stdnum("ie.pps")),
    _labelled("tr_tckn", "tckn|tc kimlik|kimlik no|t c kimlik no", r"\d{11}",
    stdnum("tr.tckimlik")),
    _labelled("cz_rc", "rodné číslo|rodne cislo|rč", r"\d{6}/?\d{3,4}", any_of("cz.rc", "sk.rc")),
    _labelled("ro_cnp", "cnp", r"\d{13}", stdnum("ro.cnp")),
    _labelled("bg_egn", "egn|егн", r"\d{10}", stdnum("bg.egn")),
    _labelled("hr_oib", "oib", r"\d{11}", stdnum("hr.oib")),
    _labelled("gr_amka", "amka|αμκα", r"\d{11}", stdnum("gr.amka")),
    _labelled("il_id", "teudat zehut|israeli id|mispar zehut", r"\d{8,9}", stdnum("il.idnr")),
    _labelled("za_id", "south african id|sa id|rsa id", r"\d{6} ?\d{4} ?\d{3}", stdnum("za.idnr")),
    _labelled("au_tfn", "tfn|tax file number", r"\d{3} ?\d{3} ?\d{2,3}", stdnum("au.tfn")),
    _labelled("au_abn", "abn|acn", r"\d{2} ?\d{3} ?\d{3} ?\d{3}|\d{3} ?\d{3} ?\d{3}",
    any_of("au.abn", "au.acn")),
    _labelled("nz_ird", "ird|ird number", r"\d{2,3}-?\d{3}-?\d{3}", stdnum("nz.ird")),
    _labelled("jp_my_number", "my number|マイナンバー|個人番号", r"\d{4}[ -]?\d{4}[ -]?\d{4}",
    stdnum("jp.in_")),
    _labelled("kr_rrn", "rrn|주민등록번호|resident registration number", r"\d{6}-?\d{7}",
    stdnum("kr.rrn")),
    _labelled("cn_ric", "身份证|身份证号|resident id|居民身份证", r"\d{17}[\dX]", stdnum("cn.ric")),
    _labelled("sg_nric", "nric|fin", r"[STFGM]\d{7}[A-Z]", None),
    _labelled("hk_hkid", "hkid|hong kong id", r"[A-Z]{1,2}\d{6}\(?[\dA]\)?", None),
    _labelled("my_nric", "mykad|nric|ic number", r"\d{6}-?\d{2}-?\d{4}", stdnum("my.nric")),
    _labelled("co_nit", "nit|cédula|cedula|cédula de ciudadanía", r"\d[\d.]{5,12}(?:-\d)?",
    stdnum("co.nit")),
    _labelled("cl_rut", "rut|run", r"\d{1,2}\.?\d{3}\.?\d{3}-?[\dk]", stdnum("cl.rut")),
    _labelled("ar_cuit", "cuit|cuil", r"\d{2}-?\d{8}-?\d", stdnum("ar.cuit")),
    Field(_GOVERNMENT, "government.label", (
        "national id", "national identity", "national identification number", "national id number",
        "identity card", "id card",
        "id card number", "national insurance id", "government id", "tax id", "tax number",
        "tax identification number", "carte d'identité",
        "cni", "documento d'identità", "carta d'identità", "cédula de identidad", "steuer",
        "state id", "alien number", "green card",
    ), GROUPED, 0.8),
)  # fmt: skip


@dataclass(frozen=True)
class _Shape:
    """A number that speaks for itself."""

    rule: str
    pattern: re.Pattern[str]
    check: Check | None
    confidence: float = 1.0
    country: str | None = None  # counts only where this is the country
    category: Category = _GOVERNMENT


def _shape(rule: str, shape: str, check: Check | None, confidence: float = 1.0,
country: str | None = None,
           category: Category = _GOVERNMENT) -> _Shape:  # fmt: skip
    return _Shape(
        f"government.{rule}",
        re.compile(rf"(?<![\w.+/-])(?:{shape})(?![\w-])(?!\.\d)"),
        check,
        confidence,
        country,
        category,
    )


_NINO = r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]"
SHAPES = (
    _shape("us_ssn", r"\d{3}-\d{2}-\d{4}", stdnum("us.ssn")),
    _shape("us_ssn", r"\d{3} \d{2} \d{4}", stdnum("us.ssn"), 0.85),
    _shape("us_itin", r"9\d{2}-[5-9]\d-\d{4}", stdnum("us.itin"), 0.9),
    _shape("gb_nino", _NINO, None, 0.9),
    _shape(
        "it_codice_fiscale",
        r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]",
        stdnum("it.codicefiscale"),
    ),
    _shape("es_dni", r"\d{8}-?[A-HJ-NP-TV-Z]", stdnum("es.dni"), 0.9),
    _shape("es_nie", r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", stdnum("es.nie")),
    _shape(
        "fr_nir",
        r"[12] ?\d\d ?(?:0[1-9]|1[0-2]) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d",
        stdnum("fr.nir"),
    ),
    _shape("mx_curp", r"[A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z0-9]\d", stdnum("mx.curp")),
    _shape("br_cpf", r"\d{3}\.\d{3}\.\d{3}-\d\d", stdnum("br.cpf")),
    _shape("br_cnpj", r"\d\d\.\d{3}\.\d{3}/\d{4}-\d\d", stdnum("br.cnpj")),
    _shape("cl_rut", r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]", stdnum("cl.rut")),
    _shape("ar_cuit", r"(?:20|23|24|27|30|33)-\d{8}-\d", stdnum("ar.cuit")),
    _shape("se_personnummer", r"(?:19|20)?\d{6}[-+]\d{4}", stdnum("se.personnummer")),
    _shape("fi_hetu", r"\d{6}[-+A]\d{3}[0-9A-Z]", stdnum("fi.hetu")),
    _shape("be_nn", r"\d\d\.\d\d\.\d\d-\d{3}\.\d\d", stdnum("be.nn")),
    _shape("ch_ahv", r"756\.\d{4}\.\d{4}\.\d\d", stdnum("ch.ssn")),
    _shape("kr_rrn", r"\d{6}-[1-8]\d{6}", stdnum("kr.rrn")),
    _shape(
        "cn_ric",
        r"[1-6]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dX]",
        stdnum("cn.ric"),
    ),
    _shape("in_aadhaar", r"[2-9]\d{3} \d{4} \d{4}", stdnum("in_.aadhaar"), 0.9),
    _shape("in_pan", r"[A-Z]{3}P[A-Z]\d{4}[A-Z]", stdnum("in_.pan"), 0.85),
    _shape(
        "cz_rc",
        r"\d{2}(?:[0257]\d|[16][0-2])(?:0[1-9]|[12]\d|3[01])/\d{4}",
        any_of("cz.rc", "sk.rc"),
        0.9,
    ),
    _shape(
        "za_id",
        r"\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{4}[01][89]\d",
        stdnum("za.idnr"),
        0.9,
        "ZA",
    ),
    _shape(
        "my_nric",
        r"\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])-\d{2}-\d{4}",
        stdnum("my.nric"),
        0.9,
    ),
    _shape("de_idnr", r"\d{2} \d{3} \d{3} \d{3}", stdnum("de.idnr"), 0.9),
    _shape("de_idnr", r"\d{11}", stdnum("de.idnr"), 0.85, "DE"),
    _shape("pl_pesel", r"\d{11}", stdnum("pl.pesel"), 0.85, "PL"),
    _shape("nl_bsn", r"\d{9}", stdnum("nl.bsn"), 0.8, "NL"),
    _shape("br_cpf", r"\d{11}", stdnum("br.cpf"), 0.85, "BR"),
    _shape("no_fodselsnummer", r"\d{6} ?\d{5}", stdnum("no.fodselsnummer"), 0.85, "NO"),
    _shape("tr_tckn", r"\d{11}", stdnum("tr.tckimlik"), 0.85, "TR"),
    _shape("ca_sin", r"\d{3}[ -]\d{3}[ -]\d{3}", stdnum("ca.sin"), 0.85, "CA"),
    _shape("au_tfn", r"\d{3} \d{3} \d{3}", stdnum("au.tfn"), 0.85, "AU"),
    _shape("sg_nric", r"[STFG]\d{7}[A-Z]", None, 0.85),
    _shape("gb_nhs", r"\d{3} \d{3} \d{4}", stdnum("gb.nhs"), 0.9, "GB", _HEALTH),
)

_LABELS = Labels(FIELDS)
# All shapes hold one of these; only there are they tried.
_NUMBERS = re.compile(r"(?:\d[ ./A-Za-z-]{0,2}){6}|[A-Z]{5}\d{4}")
_BEFORE, _AFTER = 12, 64  # characters around it that a shape can take
_RUN_ON = re.compile(r"[\w./-]{0,64}")


def shapes(scan: Scan) -> Iterator[Finding]:
    """Numbers whose shape and checksum suffice."""
    if not scan.has_digit:
        return
    usable = [shape for shape in SHAPES if shape.country in (None, scan.country)]
    done = 0
    for numbers in _NUMBERS.finditer(scan.text):
        if numbers.end() <= done:
            continue
        low = max(0, numbers.start() - _BEFORE)
        whole = _RUN_ON.match(scan.text, min(len(scan.text), numbers.end() + _AFTER))
        done = whole.end() if whole else len(scan.text)
        for shape in usable:
            for match in shape.pattern.finditer(scan.text, low, done):
                if shape.check is not None and not shape.check(match.group()):
                    continue
                if not scan.guarded(*match.span()):
                    yield Finding(*match.span(), shape.category, shape.confidence, shape.rule)


RECOGNIZERS = (_LABELS.find, shapes)
