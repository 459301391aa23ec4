"""Chooses the operating point of the gate's model on development data, for config.json.

This file owns the rules of the choice. Recall comes first: the token head gets the offset of O
with which it finds most while it still leaves benign prompts and the development tweets alone;
the document head gets one threshold for all topics from harmless development prompts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import decode
import evaluate
import export
import numpy as np
import sources
from labels import LABELS, TOPICS
from safetensors.torch import load_file
from tokenizers import Tokenizer

OFFSETS = np.arange(1.0, -3.01, -0.25)  # of O's logit; lower finds more
BENIGN_SPANS = 0.01  # CLINC150 validation prompts with a name, contact, number or secret
NAME_PRECISION = 0.83  # characters of persons in the development parts of BTC and WNUT-17
HARMLESS_DOCUMENTS = 0.06  # of the harmless development prompts may count as sensitive
BENIGN_DOCUMENTS = 0.015  # of CLINC150's validation prompts


def outside_offset(names: tuple, benign: list[decode.Reading], settings: dict) -> float:  # type: ignore[type-arg]
    """The lowest of OFFSETS that keeps both promises; above it they are kept too."""
    examples, readings = names
    best = float(OFFSETS[0])
    for offset in OFFSETS:
        decoder = settings | {"outside_offset": float(offset)}
        found = [[span[:3] for span in decode.spans(r, decoder)] for r in readings]
        figures = evaluate.span_figures(examples, found, {"person": "person"})
        flagged = [
            any(label in evaluate.HARD for _, _, label, _ in decode.spans(r, decoder))
            for r in benign
        ]
        share = sum(flagged) / len(flagged)
        print(
            f"{offset:6.2f} names {figures['char_precision']:.3f} {figures['char_recall']:.3f}",
            end="",
        )
        print(f" f1 {figures['f1']:.3f} benign {share:.4f}")
        if figures["char_precision"] < NAME_PRECISION or share > BENIGN_SPANS:
            break
        best = float(offset)
    return best


def document_threshold(
    harmless: list[decode.Reading], benign: list[decode.Reading], settings: dict
) -> float:  # type: ignore[type-arg]
    """The lowest threshold that keeps both promises."""
    ones = settings | {"thresholds": dict.fromkeys(TOPICS, 1.0)}
    limits = (
        np.quantile(evaluate.document_scores(harmless, ones), 1 - HARMLESS_DOCUMENTS),
        np.quantile(evaluate.document_scores(benign, ones), 1 - BENIGN_DOCUMENTS),
    )
    return float(max(limits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a folder of FORMAT.md")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    state = export.restored(load_file(args.model / "model.safetensors"))
    reader = decode.Reader(state, tokenizer)
    settings = export.uncalibrated()
    tweets = sources.columns(args.data / "btc/btc.dev", 0, 1)[:500]
    tweets += sources.columns(args.data / "wnut17/emerging.dev.conll", 0, 1)[:500]
    benign = reader.read([e.text for e in sources.benign(args.data, "val")[:1500]])
    names = (tweets, reader.read([e.text for e in tweets]))
    offset = outside_offset(names, benign, settings["decode"])
    prompts = evaluate.held_out_prompts("development")
    harmless = reader.read([e.text for e in prompts if e.subject != 0 or not any(e.topics)])
    threshold = document_threshold(harmless, benign, settings["document"])
    settings["decode"] |= {"outside_offset": offset, "thresholds": dict.fromkeys(LABELS, 0.3)}
    settings["document"] |= {"thresholds": dict.fromkeys(TOPICS, round(threshold, 4))}
    args.out.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    print(f"outside_offset {offset}, document threshold {threshold:.4f}")


if __name__ == "__main__":
    main()
