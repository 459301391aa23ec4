"""Perplexity, top-1 agreement and greedy agreement of the 4-bit model against its peers.

This file owns the measures. Every arm scores the same positions of the held-out texts in
tools/tiny/held_out, each document on its own.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lily.tokenizer import Tokenizer
from numpy.typing import NDArray

from bench import harness, machine
from bench.quality.oracles import Lily, MlxLm, Oracle, Tokens, Transformers

TEXTS = Path(__file__).resolve().parents[2] / "tools" / "tiny" / "held_out"
GREEDY_TOKENS = 64
PROMPT_TOKENS = 48
# (what is compared, the arm that counts as right, what the pair says)
PAIRS = (
    ("lily 4-bit", "transformers 4-bit", "the engine, on the same 4-bit weights"),
    ("mlx-lm 4-bit", "transformers 4-bit", "noise floor: two other engines, same 4-bit weights"),
    ("lily 4-bit", "mlx-lm 4-bit", "the engine against mlx-lm, same 4-bit weights"),
    ("lily bf16", "transformers bf16", "the engine, on the bf16 parent"),
    ("lily 4-bit", "lily bf16", "the cost of 4 bits"),
)


@dataclass
class Scored:
    """What an arm said of every position of one set, and its greedy answers."""

    logprobs: NDArray[np.float64]
    best: NDArray[np.int64]
    first_logits: NDArray[np.float32]  # of the first document, for the largest difference
    greedy: list[list[int]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench quality``."""
    parser.add_argument("--model", type=Path, required=True, help="4-bit folder, MLX layout")
    parser.add_argument("--parent", type=Path, required=True, help="its bf16 folder, HF layout")
    parser.add_argument("--documents", type=int, help="only the first so many of each set")
    parser.add_argument("--prompts", type=int, default=8, help="greedy prompts a set")


def run(arguments: argparse.Namespace) -> None:
    """Score every arm, compare the pairs, and write bench/results/quality.json."""
    sets = {
        path.stem: read_documents(path, arguments.model)[: arguments.documents]
        for path in sorted(TEXTS.glob("*.jsonl"))
    }
    arms: dict[str, tuple[type, Path]] = {
        "lily 4-bit": (Lily, arguments.model),
        "lily bf16": (Lily, arguments.parent),
        "transformers 4-bit": (Transformers, arguments.model),
        "transformers bf16": (Transformers, arguments.parent),
        "mlx-lm 4-bit": (MlxLm, arguments.model),
    }
    scored: dict[str, dict[str, Scored]] = {}
    for arm, (engine, folder) in arms.items():
        oracle: Oracle = engine(folder)
        scored[arm] = {name: score(oracle, part, arguments.prompts) for name, part in sets.items()}
        shown = ", ".join(f"{name} {perplexity(s):.4f}" for name, s in scored[arm].items())
        print(f"{arm}: perplexity {shown}", flush=True)
    document = {
        "bench": "quality",
        "command": harness.shown_command(),
        "machine": machine.facts(),
        "settings": {
            "positions": {name: sum(len(d) - 1 for d in part) for name, part in sets.items()},
            "greedy_prompts": arguments.prompts * len(sets),
            "greedy_tokens": GREEDY_TOKENS,
        },
        "perplexity": {
            arm: {name: round(perplexity(s), 4) for name, s in parts.items()}
            for arm, parts in scored.items()
        },
        "pairs": [compare(scored, *pair) for pair in PAIRS],
        "quiet": True,  # nothing here depends on time
        "notes": [],
        "figures": [],
    }
    harness.write_document("quality", document)


def read_documents(path: Path, model: Path) -> list[Tokens]:
    """The texts of one set as token ids of the model; control tokens count as such."""
    tokenizer = Tokenizer(model)
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [np.array(tokenizer.encode(text, special=True), np.uint32) for text in texts]


def score(oracle: Oracle, documents: list[Tokens], prompts: int) -> Scored:
    """Run one arm over the documents of one set."""
    logprobs, best, first = [], [], np.empty(0, np.float32)
    for index, row in enumerate(documents):
        logits = oracle.logits(row[:-1])
        if not np.isfinite(logits).all():
            raise ValueError("logits are not finite")
        wide = logits.astype(np.float64)
        top = wide.max(-1)
        total = np.log(np.exp(wide - top[:, None]).sum(-1)) + top
        logprobs.append(wide[np.arange(len(row) - 1), row[1:]] - total)
        best.append(wide.argmax(-1))
        if index == 0:
            first = logits
    begun = [row[:PROMPT_TOKENS] for row in documents[:prompts]]
    greedy = [oracle.greedy(prompt, GREEDY_TOKENS) for prompt in begun]
    return Scored(np.concatenate(logprobs), np.concatenate(best), first, greedy)


def perplexity(scored: Scored) -> float:
    """exp of the mean negative log-likelihood."""
    return math.exp(-scored.logprobs.mean())


def compare(
    scored: dict[str, dict[str, Scored]], arm: str, right: str, says: str
) -> dict[str, Any]:
    """How far ``arm`` is from ``right``, over all sets."""
    sets = [(scored[arm][name], scored[right][name]) for name in scored[arm]]
    agree = np.concatenate([a.best == b.best for a, b in sets])
    lengths = [agreement(x, y) for a, b in sets for x, y in zip(a.greedy, b.greedy, strict=True)]
    losses = [
        -np.concatenate([s.logprobs for s in side]).mean() for side in zip(*sets, strict=True)
    ]
    return {
        "arm": arm,
        "against": right,
        "says": says,
        "top1_percent": round(100 * float(agree.mean()), 3),
        "perplexity_change_percent": round(100 * math.expm1(float(losses[0] - losses[1])), 4),
        "largest_logit_difference": float(
            max(np.abs(a.first_logits - b.first_logits).max() for a, b in sets)
        ),
        "greedy_tokens_equal_mean": round(float(np.mean(lengths)), 2),
        "greedy_answers_equal": f"{sum(n == GREEDY_TOKENS for n in lengths)} of {len(lengths)}",
    }


def agreement(a: list[int], b: list[int]) -> int:
    """Tokens before the first difference."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))
