"""Lily from end to end: prefill and decode speed by length, time to first token, load and memory.

Runs the native session as the Python package does, without tokenizer and text. Lengths take turns;
no prompt shares a prefix with another.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from bench import machine
from bench.child import worker
from bench.harness import Report, Summary, interleave
from bench.worker import LilySession


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench engine``."""
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--prefill", default="128,512,2048", help="prompt lengths")
    parser.add_argument("--decode", default="0,512,2048", help="context lengths to decode at")
    parser.add_argument("--tokens", type=int, default=64, help="decode steps in one sample")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="engine", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    lengths, contexts = (
        [int(word) for word in text.split(",") if word]
        for text in (arguments.prefill, arguments.decode)
    )
    threads = arguments.threads or machine.usable_cores()
    settings = {
        "model": Path(arguments.model).name,
        "threads": threads,
        "rounds": arguments.rounds,
        "decode_steps": arguments.tokens,
    }
    report = Report("engine", settings)
    _load(report, arguments, threads)
    largest = max([*lengths, *(context + arguments.tokens for context in contexts)]) + 1
    session = LilySession(arguments.model, threads=threads, context=largest)
    report.extra["device"] = session.description
    _speeds(report, session, arguments, lengths, contexts)
    report.extra["memory"] = machine.resident_bytes()
    report.write(arguments.name)


def _load(report: Report, arguments: argparse.Namespace, threads: int) -> None:
    """In fresh processes; the first fills the system's file cache."""
    runs = [
        worker("load", arguments.model, "--threads", str(threads))
        for _ in range(arguments.rounds + 1)
    ]
    summary = Summary(tuple(found["seconds"][0] for found in runs[1:]))
    after = runs[-1]["after"]
    grown = {key: after[key] - runs[-1]["before"][key] for key in after}
    report.add({"what": "load"}, "s", summary, grown=grown)
    report.extra["plan"] = runs[-1]["plan"]


def _speeds(
    report: Report,
    session: LilySession,
    arguments: argparse.Namespace,
    lengths: list[int],
    contexts: list[int],
) -> None:
    prompts = iter(range(1, 1 << 30))
    digests: dict[int, set[str]] = {context: set() for context in contexts}

    def first_token(length: int) -> float:
        return session.first_token(length, next(prompts))

    def decode(context: int) -> float:
        # Prompts of decode repeat, so that their answers can be compared; they alternate with
        # others, so that nothing of them is left in the session.
        session.prefill(1, next(prompts))
        seconds, tokens = session.decode(arguments.tokens, context, 0)
        digests[context].add(hashlib.sha256(np.array(tokens, np.uint32).tobytes()).hexdigest()[:16])
        return seconds

    arms = {f"prefill {n}": (lambda n=n: first_token(n)) for n in lengths}
    arms |= {f"decode {n}": (lambda n=n: decode(n)) for n in contexts}
    found = interleave(arms, rounds=arguments.rounds)
    for length in lengths:
        times = found[f"prefill {length}"]
        rates = Summary(tuple(length / seconds for seconds in times.samples))
        ttft_ms = round(times.median * 1e3, 2)
        report.add(
            {"what": "prefill", "tokens": length}, "tok/s", rates, time_to_first_token_ms=ttft_ms
        )
    for context in contexts:
        times = found[f"decode {context}"]
        rates = Summary(tuple(arguments.tokens / seconds for seconds in times.samples))
        if len(digests[context]) != 1:
            raise RuntimeError(f"greedy answers at context {context} differ between rounds")
        labels = {"what": "decode", "context": context}
        report.add(labels, "tok/s", rates, digest=digests[context].pop())
