"""Ten prompt lengths through Lily and its peers at full size: prefill, then 64 greedy steps.

Every engine loads once, in a process of its own, and stays; at each length they take turns, after a
run of that very length that does not count. Lily must say the same tokens in every round. Also:
what Lily's device held at its most beside what its plan said.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from bench import machine
from bench.harness import Report, Summary
from bench.resident import MLX_LONGEST_PREFILL, Resident

LENGTHS = "256,512,1024,2048,4096,8192,16384,32768,65536,131072"
_NOTES = {
    "lily": "Lily: activations bf16, residual stream and state fp32; it picks every token, and its "
    "prefill ends when the first token is known.",
    "llama.cpp": "llama.cpp: Q4_K, flash attention, micro-batches of 2,048, K and V in f16; "
    "decodes given tokens and picks none, as llama-bench does, and waits for the logits.",
    "mlx": "mlx-lm: the same files as Lily; its kernel for the delta rule exists for Metal only, "
    f"so that on CUDA its prefill loops over tokens: run up to {MLX_LONGEST_PREFILL:,}, and beyond "
    "that its cache is filled with noise to time the steps.",
}
_PYTHON = [sys.executable, "-m", "bench", "resident"]
_SLOWEST = 100  # tokens a second of prefill below which an engine counts as hung


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench lengths``."""
    parser.add_argument("--model", required=True, help="MLX 4-bit folder, for Lily")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--llama", help="path of a built llama_resident")
    parser.add_argument("--gguf", help="the same shapes, for llama.cpp")
    parser.add_argument("--llama-note", default="", help="how llama.cpp was built; recorded")
    parser.add_argument("--mlx", metavar="DIR", help="MLX folder, for mlx-lm")
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600, help="begin no length after so many")
    parser.add_argument("--name", default="lengths", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    if bool(arguments.llama) != bool(arguments.gguf):
        raise ValueError("--llama and --gguf go together")
    lengths = [int(text) for text in arguments.lengths.split(",")]
    settings = {"steps": arguments.steps, "rounds": arguments.rounds, "lengths": lengths}
    report = Report("lengths", settings)
    context = max(lengths) + arguments.steps + 1
    begin = time.perf_counter()
    before = machine.gpu_used_bytes()
    engines = [_lily(arguments, context)]
    try:
        engines[0].run(lengths[0], arguments.steps, 0, 600)
        after = machine.gpu_used_bytes()
        report.extra["memory"] = {
            "plan": engines[0].about["plan"],
            "used_bytes": None if before is None or after is None else after - before,
        }
        engines += _peers(arguments, context)
        report.extra["engines"] = {engine.name: engine.about["about"] for engine in engines}
        for engine in engines:
            report.note(_NOTES[engine.name])
        if arguments.llama_note:
            report.note(f"llama.cpp: {arguments.llama_note}")
        for length in lengths:
            if time.perf_counter() - begin > arguments.seconds:
                report.note(f"stopped after {arguments.seconds:.0f} s: lengths are missing")
                break
            _measure(report, engines, length, arguments)
    finally:
        for engine in engines:
            engine.close()
    print(table(report.figures))
    report.write(arguments.name)


def _lily(arguments: argparse.Namespace, context: int) -> Resident:
    command = [*_PYTHON, "lily", os.path.abspath(arguments.model), str(context)]
    return Resident("lily", [*command, "--device", arguments.device])


def _peers(arguments: argparse.Namespace, context: int) -> list[Resident]:
    commands = {}
    if arguments.llama:
        commands["llama.cpp"] = [arguments.llama, os.path.abspath(arguments.gguf), str(context)]
    if arguments.mlx:
        commands["mlx"] = [*_PYTHON, "mlx", os.path.abspath(arguments.mlx), str(context)]
    peers = []
    for name, command in commands.items():
        try:
            peers.append(Resident(name, command))
        except RuntimeError as error:  # the others' figures count all the same
            print(f"{name} is left out: {error}", flush=True)
    return peers


def _measure(
    report: Report, engines: list[Resident], length: int, arguments: argparse.Namespace
) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(arguments.rounds + 1):
        for engine in list(engines):
            limit_s = 60 + length / _SLOWEST
            try:
                sample = engine.run(length, arguments.steps, 0, limit_s)
            except RuntimeError as error:
                if engine.name == "lily":
                    raise
                report.note(f"at {length:,} tokens: {error}")
                engines.remove(engine)
                found.pop(engine.name, None)
                continue
            if turn:
                found.setdefault(engine.name, []).append(sample)
    digests = {sample["digest"] for sample in found["lily"]}
    if len(digests) > 1:
        raise RuntimeError(f"greedy answers differ between rounds at {length:,} tokens: {digests}")
    rates = {"prefill": length, "decode": arguments.steps}
    for phase, tokens in rates.items():
        own: Summary | None = None
        for name, samples in found.items():
            seconds = [sample.get(f"{phase}_s") for sample in samples]
            if None in seconds:
                continue
            summary = Summary(tuple(tokens / second for second in seconds))
            own = own or summary
            derived = {}
            if name != "lily":
                derived["lily_ratio"] = round(own.median / summary.median, 3)
            labels = {"phase": phase, "tokens": length, "engine": name}
            report.add(labels, "tok/s", summary, **derived)


def table(figures: list[dict[str, Any]]) -> str:
    """Rates by length and engine, with Lily's ratio to each peer."""
    names = list(dict.fromkeys(figure["engine"] for figure in figures))
    peers = [name for name in names if name != "lily"]
    heads = ["prompt"]
    for phase in ("decode", "prefill"):
        heads += [f"{phase}: Lily", *(word for name in peers for word in (name, "ratio"))]
    lines = [f"| {' | '.join(heads)} |", "|" + "--:|" * len(heads)]
    by = {(f["phase"], f["tokens"], f["engine"]): f for f in figures}
    for length in dict.fromkeys(figure["tokens"] for figure in figures):
        cells = [f"{length:,}"]
        for phase in ("decode", "prefill"):
            cells.append(_rate(by.get((phase, length, "lily"))))
            for name in peers:
                figure = by.get((phase, length, name))
                cells += [_rate(figure), f"{figure['lily_ratio']:.2f}" if figure else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rate(figure: dict[str, Any] | None) -> str:
    return f"{figure['median']:,.4g}" if figure else ""
