"""Readers of the public sets, with their labels put into ours, and the rule that keeps test
halves out.

This file owns what may be trained on: half of the presidio-research templates (by
`is_training_template`), the train parts of TAB, BTC, WNUT-17, MEDDOCAN, CLINC150 and Banking77,
and llmprivacy's development file. UNER (EWT) and pii-anon are for evaluation only and have no
reader here but in `evaluate.py`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from grammar import Span
from labels import TOPICS

TITLE = re.compile(r"^(?:Mrs?|Ms|Miss|Dr|Prof|Judge|Messrs)\.?\s+")


@dataclass
class Example:
    """A text with spans, with what its source leaves unmarked, and with its document labels.

    `topics` has 1, 0 or -1 (unknown) for each topic; `subject` is an index of SUBJECTS or -1.
    """

    text: str
    spans: list[Span] = field(default_factory=list)
    unmarked: str = "all"
    topics: tuple[int, ...] = (-1,) * len(TOPICS)
    subject: int = -1


NONE = (0,) * len(TOPICS)

PRESIDIO = {
    "PERSON": "person", "STREET_ADDRESS": "address", "GPE": "location",
    "ORGANIZATION": "organization",
    "CREDIT_CARD": "payment_card", "DATE_TIME": "date", "PHONE_NUMBER": "phone", "AGE": "age",
    "NRP": "demographic",
    "EMAIL_ADDRESS": "email", "ZIP_CODE": "address", "DOMAIN_NAME": "url", "IBAN_CODE": "iban",
    "US_SSN": "government_id", "IP_ADDRESS": "ip_address", "US_DRIVER_LICENSE": "driving_license",
}  # fmt: skip
PRESIDIO_SLOT = {
    "person": "{name}", "name": "{name}", "first_name": "{first}", "last_name": "{last}",
    "address": "{addr}",
    "street_address": "{addr}", "gpe": "{city}", "city": "{city}", "country": "{country}",
    "organization": "{org}",
    "credit_card_number": "{card}", "credit_card": "{card}", "date_time": "{date}",
    "date": "{date}",
    "phone_number": "{phone}", "age": "{age}", "nrp": "{demo}", "nationality": "{demo}",
    "email": "{email}",
    "email_address": "{email}", "zipcode": "{zip}", "zip_code": "{zip}", "domain_name": "{url}",
    "url": "{url}",
    "iban": "{iban}", "iban_code": "{iban}", "ssn": "{ssn}", "us_ssn": "{ssn}",
    "ip_address": "{ip}",
    "us_driver_license": "{dl}", "date_of_birth": "{dob}", "first_name_female": "{first}",
    "first_name_male": "{first}", "prefix": "Mr.", "title": "Mr.", "job": "{job}",
    "state": "{city}",
    "last_name_male": "{last}", "last_name_female": "{last}", "name_male": "{name}",
    "name_female": "{name}",
    "prefix_male": "Mr.", "prefix_female": "Mrs.", "nation_woman": "{demo}",
    "nation_plural": "{demo}",
    "postcode": "{zip}", "state_abbr": "{city}", "secondary_address": "Apt. 12",
    "first_name_nonbinary": "{first}",
}  # fmt: skip
TAB = {
    "PERSON": "person", "CODE": "file_number", "LOC": "place", "ORG": "organization",
    "DEM": "trait",
    "DATETIME": "when", "QUANTITY": "quantity", "MISC": "unclear",
}  # fmt: skip
MEDDOCAN = {
    "NOMBRE_SUJETO_ASISTENCIA": "person", "NOMBRE_PERSONAL_SANITARIO": "person",
    "EDAD_SUJETO_ASISTENCIA": "age",
    "SEXO_SUJETO_ASISTENCIA": "demographic", "FECHAS": "when", "CALLE": "address",
    "TERRITORIO": "place",
    "PAIS": "location", "HOSPITAL": "organization", "INSTITUCION": "organization",
    "CENTRO_SALUD": "organization",
    "ID_SUJETO_ASISTENCIA": "number", "ID_TITULACION_PERSONAL_SANITARIO": "number",
    "ID_ASEGURAMIENTO": "number",
    "ID_CONTACTO_ASISTENCIAL": "number", "ID_EMPLEO_PERSONAL_SANITARIO": "number",
    "CORREO_ELECTRONICO": "email",
    "NUMERO_TELEFONO": "phone", "NUMERO_FAX": "phone", "PROFESION": "demographic", "URL_WEB": "url",
    "FAMILIARES_SUJETO_ASISTENCIA": "relation", "OTROS_SUJETO_ASISTENCIA": "relation",
    "OTRO_NUMERO_IDENTIF": "number", "NUMERO_IDENTIF": "number",
    "DIREC_PROT_INTERNET": "ip_address",
    "IDENTIF_VEHICULOS_NRSERIE_PLACAS": "license_plate", "IDENTIF_DISPOSITIVOS_NRSERIE": "other_id",
    "NUMERO_BENEF_PLAN_SALUD": "health_id",
}  # fmt: skip
COLUMNS = {
    "PER": "person", "person": "person", "ORG": "organization", "corporation": "organization",
    "group": "organization", "LOC": "place", "location": "place",
}  # fmt: skip


def topics_of(*names: str) -> tuple[int, ...]:
    """1 for the named topics, 0 for the others."""
    return tuple(int(topic in names) for topic in TOPICS)


def is_training_template(template: str) -> bool:
    """Whether a presidio-research template is in the training half; near copies fall together.

    The rule: the template in lower case, with every slot as one mark and without all that is no
    letter, goes by the parity of the first byte of its SHA-256. It looks at no data and never
    changes.
    """
    bare = re.sub(r"\{\{[^}]*\}\}", "#", template.lower())
    bare = re.sub(r"[^a-z#]+", "", bare)
    return hashlib.sha256(bare.encode()).digest()[0] % 2 == 0


def presidio_rows(folder: Path, training: bool) -> list[Example]:
    """The synthetic sentences of one half of the templates."""
    out = []
    for row in json.loads(
        (folder / "presidio_research/synth_dataset_v2.json").read_text(encoding="utf-8")
    ):
        if is_training_template(row["masked"]) != training:
            continue
        spans = [
            (s["start_position"], s["end_position"], PRESIDIO[s["entity_type"]])
            for s in row["spans"]
            if s["entity_type"] in PRESIDIO
        ]
        out.append(Example(row["full_text"], sorted(spans), "synthetic"))
    return out


def presidio_templates(folder: Path) -> list[str]:
    """The training half's templates with our slots; those with a slot that we lack are left out."""
    out = []
    text = (folder / "presidio_research/templates.txt").read_text(encoding="utf-8", errors="ignore")
    for line in text.splitlines():
        if not line.strip() or not is_training_template(line):
            continue
        names = re.findall(r"\{\{\s*(\w+)\s*\}\}", line)
        if all(name in PRESIDIO_SLOT for name in names):
            out.append(
                re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda m: PRESIDIO_SLOT[m.group(1)], line).replace(
                    "\\n", "\n"
                )
            )
    return out


def tab(folder: Path, part: str) -> list[Example]:
    """Court documents of `part` ("train" or "dev"), cut at paragraphs; titles are no part of a
    name."""
    out = []
    for line in (folder / "tab/tab_train_dev.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["metadata"]["provenance"]["dataset_type"] != part:
            continue
        spans = []
        for e in row["entities"]:
            start, label = e["start_offset"], TAB[e["entity_type"]]
            found = TITLE.match(row["text"][start : e["end_offset"]])
            if label == "person" and found:
                start += found.end()
            spans.append((start, e["end_offset"], label))
        out.append(Example(row["text"], sorted(spans), "all", topics_of("legal"), -1))
    return out


def meddocan(folder: Path, part: str) -> list[Example]:
    """Spanish clinical cases of `part`."""
    out = []
    for path in sorted((folder / f"meddocan/corpus/{part}/brat").glob("*.ann")):
        spans = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("T"):
                kind, start, end = line.split("\t")[1].split()[:3]
                spans.append((int(start), int(end), MEDDOCAN.get(kind, "unclear")))
        text = path.with_suffix(".txt").read_text(encoding="utf-8")
        out.append(Example(text, sorted(spans), "clinical", topics_of("health"), 0))
    return out


NO_SPACE_BEFORE = re.compile(r"^(?:[.,!?;:)\]%…]|'(?:s|m|re|ve|ll|d|t)$|n't$)")


def columns(path: Path, word: int, label: int) -> list[Example]:
    """Sentences of a CoNLL file; words are joined as they would be written."""
    out: list[Example] = []
    text, spans, after_open = "", [], False
    for line in [*path.read_text(encoding="utf-8").split("\n"), ""]:
        parts = line.split("\t")
        if (line.startswith("#") and len(parts) <= 1) or not line.strip():
            if text and not line.startswith("#"):
                out.append(Example(text, spans, "names"))
                text, spans = "", []
            continue
        if len(parts) <= max(word, label):
            continue
        token, mark = parts[word], parts[label]
        if text and not after_open and not NO_SPACE_BEFORE.match(token):
            text += " "
        start = len(text)
        text += token
        after_open = token in ("(", "[", "#", "$")
        kind = COLUMNS.get(mark[2:]) if len(mark) > 2 else None
        if kind and mark[0] == "I" and spans and spans[-1][2] == kind and start - spans[-1][1] <= 1:
            spans[-1] = (spans[-1][0], len(text), kind)
        elif kind:
            spans.append((start, len(text), kind))
    return out


def benign(folder: Path, part: str) -> list[Example]:
    """CLINC150 and Banking77 prompts of `part` ("train", "val" or "test"): nobody's secret."""
    data = json.loads((folder / "clinc150/data_full.json").read_text(encoding="utf-8"))
    texts = [text for text, _ in data[part] + data[f"oos_{part}"]]
    if part != "val":
        with (folder / f"banking77/{part}.csv").open(encoding="utf-8") as file:
            texts += [row["text"] for row in csv.DictReader(file)]
    return [Example(text, [], "text", NONE, 1) for text in texts]


def disclosing(folder: Path) -> list[Example]:
    """Posts of people who say more than they mean to; only place and money are sure topics."""
    sure = {"city_country": "location", "income": "finance"}
    out = []
    for line in (
        (folder / "llmprivacy/synthetic_dev.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        row = json.loads(line)
        known = tuple(1 if sure.get(row["feature"]) == topic else -1 for topic in TOPICS)
        out.append(Example(row["response"], [], "anything", known, 0))
    return out


def code() -> list[Example]:
    """Passages of the running Python's standard library that name nobody and show no address or
    key."""
    out = []
    suspicious = re.compile(
        r"[A-Z][a-z]+,? (?:[A-Z]\. ?)?[A-Z][a-z]+|@\w+\.|[Cc]opyright|[Aa]uthor"
        r"|\b(?:19|20)\d\d\b|\d{5}"
    )
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
        for i in range(0, len(lines), 7):
            text = "\n".join(lines[i : i + 3 + i % 5]).strip("\n")
            if len(text) > 30 and not suspicious.search(text):
                out.append(Example(text[:600], [], "all", NONE, 1))
    return out


def training(folder: Path) -> dict[str, list[Example]]:
    """Everything public that training may see, by source."""
    return {
        "presidio": presidio_rows(folder, training=True),
        "tab": tab(folder, "train"),
        "btc": columns(folder / "btc/btc.train", 0, 1),
        "wnut": columns(folder / "wnut17/wnut17train.conll", 0, 1),
        "meddocan": meddocan(folder, "train"),
        "benign": benign(folder, "train"),
        "disclosing": disclosing(folder),
        "code": code(),
    }
