"""Who is measured: Lily's gate as it ships, and Presidio in a process of its own.

This file owns how each is called, and how their labels are put under common names. It knows no set
and no measure.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lily.gate import Gate, Settings, Verdict
from lily.gate.detectors import BuiltIn, Reading
from lily.gate.findings import Finding
from lily.gate.masking import Vault, mask
from lily.gate.neural import Reader

Spans = list[tuple[int, int, str]]
WORKER = Path(__file__).with_name("presidio_worker.py")
PEER_THRESHOLD = 0.35
PEER_CATEGORIES = {
    "PERSON": "person", "LOCATION": "location", "PHONE_NUMBER": "phone",
    "EMAIL_ADDRESS": "email", "URL": "url", "CREDIT_CARD": "payment_card", "IBAN_CODE": "iban",
    "US_SSN": "government_id", "IP_ADDRESS": "ip_address", "US_DRIVER_LICENSE": "driving_license",
    "DATE_TIME": "date", "NRP": "demographic", "ORGANIZATION": "organization",
    "US_PASSPORT": "passport", "US_BANK_NUMBER": "bank_account", "CRYPTO": "crypto_wallet",
}  # fmt: skip


class WithModel:
    """The package's detectors with a model from another folder."""

    def __init__(self, folder: Path) -> None:
        self._built_in = BuiltIn()
        self._reader = Reader.load(folder)

    def rules(self, text: str) -> Sequence[Finding]:
        """Findings of the rules."""
        return self._built_in.rules(text)

    def read(self, text: str) -> Reading:
        """What the reader says."""
        return self._reader.read(text)


class Lily:
    """A gate with the default settings; each text is a conversation of its own."""

    name = "lily"

    def __init__(self, model: Path | None) -> None:
        self.detectors = WithModel(model) if model else BuiltIn()
        self._settings = Settings()

    def gate(self) -> Gate:
        """A fresh one, with the detectors that are loaded already."""
        return Gate(self._settings, detectors=self.detectors)

    def verdict(self, text: str) -> Verdict:
        """What the gate says of a text that would go to an untrusted destination."""
        verdict = self.gate().inspect(text)
        if "detector.failed" in verdict.rules:
            raise RuntimeError(f"a detector failed: {verdict.reasons}")
        return verdict

    def spans(self, verdict: Verdict, text: str) -> Spans:
        """What it is sure of, without overlaps: what would be masked if every category were."""
        limits = self._settings.thresholds
        sure = [one for one in verdict.findings if one.confidence >= limits.of(one.category)]
        return [
            (*one.finding.span, one.finding.category.value)
            for one in mask(text, sure, Vault("bench")).masks
        ]

    def find(self, texts: Sequence[str]) -> list[Spans]:
        """Spans of each text."""
        return [self.spans(self.verdict(text), text) for text in texts]


@dataclass
class Presidio:
    """Presidio with the small spaCy model, in the Python that has both."""

    python: Path
    name = "presidio"
    version = ""

    def find(self, texts: Sequence[str]) -> list[Spans]:
        """Spans of each text."""
        found, _ = self.timed(texts)
        return found

    def timed(self, texts: Sequence[str]) -> tuple[list[Spans], list[float]]:
        """Spans and milliseconds of each text."""
        with tempfile.TemporaryDirectory(prefix="lily-gate-") as folder:
            source, out = Path(folder) / "in.json", Path(folder) / "out.json"
            source.write_text(json.dumps(list(texts)), "utf-8")
            command = [str(self.python), str(WORKER), str(source), str(out), str(PEER_THRESHOLD)]
            subprocess.run(command, check=True, capture_output=True, timeout=1800)
            document = json.loads(out.read_text("utf-8"))
        self.version = document["version"]
        spans = [
            [(start, end, PEER_CATEGORIES.get(kind, kind.lower())) for start, end, kind in one]
            for one in document["found"]
        ]
        return spans, document["took_ms"]
