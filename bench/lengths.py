"""Ten prompt lengths through Lily and its peers at full size: prefill, then 64 greedy steps.

Every engine loads once, in a process of its own, and stays; at each length they take turns, after a
run of that very length that does not count. Lily must say the same tokens in every round. A peer
that fails is left out from there on. Also: what Lily's device held at its most beside its plan.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from bench import lengths_table, machine
from bench.harness import Report, Summary
from bench.resident import MLX_LONGEST_PREFILL, Resident

LENGTHS = "256,512,1024,2048,4096,8192,16384,32768,65536,131072"
_NOTES = {
    "lily": "Lily: activations bf16, residual stream and state fp32; it picks every token, and its "
    "prefill ends when the first token is known.",
    "llama.cpp": "llama.cpp: Q4_K, flash attention, micro-batches of 2,048, K and V in f16; "
    "decodes given tokens and picks none, as llama-bench does, and waits for the logits.",
    "mlx-lm": "mlx-lm: the same files as Lily, by its own generation loop; its kernel for the "
    "delta rule exists for Metal only, so that on CUDA its prefill loops over tokens: run up to "
    f"{MLX_LONGEST_PREFILL:,}, and beyond that its cache is filled with noise to time the steps.",
}
MEMORY_TOLERANCE = 0.03  # of what the device holds beside the plan


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench lengths``."""
    parser.add_argument("--model", required=True, help="MLX 4-bit folder, for Lily")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--llama", help="path of a built llama_resident")
    parser.add_argument("--gguf", help="the same shapes, for llama.cpp")
    parser.add_argument("--llama-note", default="", help="how llama.cpp was built; recorded")
    parser.add_argument("--mlx", metavar="DIR", help="MLX folder, for mlx-lm")
    parser.add_argument("--mlx-python", default=sys.executable, help="a Python that has mlx-lm")
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600, help="begin no length after so many")
    parser.add_argument("--limit", type=float, default=900, help="seconds of a load or a sample")
    parser.add_argument("--name", default="lengths", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file, also where Lily fails or time is up (SIGINT)."""
    if bool(arguments.llama) != bool(arguments.gguf):
        raise ValueError("--llama and --gguf go together")
    lengths = [int(text) for text in arguments.lengths.split(",")]
    settings = {"steps": arguments.steps, "rounds": arguments.rounds, "lengths": lengths}
    report = Report("lengths", settings)
    engines: list[Resident] = []
    failure: RuntimeError | KeyboardInterrupt | None = None
    try:
        _start(report, engines, arguments, lengths)
        _run(report, engines, arguments, lengths)
    except (RuntimeError, KeyboardInterrupt) as error:
        failure = error
        report.note(f"ended early, lengths are missing: {error or 'interrupted'}")
    finally:
        for engine in engines:
            engine.close()
    print("\n".join(lengths_table.lines({"figures": report.figures, **report.extra})))
    report.write(arguments.name)
    if failure:
        raise failure


def _start(
    report: Report, engines: list[Resident], arguments: argparse.Namespace, lengths: list[int]
) -> None:
    """Lily first and alone, for what its device holds; then the peers."""
    context = max(lengths) + arguments.steps + 1
    before = machine.gpu_used_bytes()
    command = _python(sys.executable, "lily", arguments.model, context)
    lily = Resident("lily", [*command, "--device", arguments.device], arguments.limit)
    engines.append(lily)
    lily.run(lengths[0], arguments.steps, 0, arguments.limit)
    after = machine.gpu_used_bytes()
    used = None if before is None or after is None else after - before
    report.extra["memory"] = memory(lily.about["plan"], used)
    engines += _peers(report, arguments, context)
    report.extra["engines"] = {engine.name: engine.about["about"] for engine in engines}
    for engine in engines:
        report.note(_NOTES[engine.name])
    if arguments.llama_note:
        report.note(f"llama.cpp: {arguments.llama_note}")


def memory(plan: dict[str, int], used_bytes: int | None) -> dict[str, Any]:
    """The plan beside what the device held, which counts the driver's own memory too."""
    found: dict[str, Any] = {"plan": plan, "used_bytes": used_bytes}
    if used_bytes is not None:
        found["over_plan"] = round(used_bytes / plan["total_bytes"] - 1, 4)
        found["tolerance"] = MEMORY_TOLERANCE
        found["as_planned"] = abs(found["over_plan"]) <= MEMORY_TOLERANCE
    return found


def _peers(report: Report, arguments: argparse.Namespace, context: int) -> list[Resident]:
    commands = {}
    if arguments.llama:
        llama, gguf = os.path.abspath(arguments.llama), os.path.abspath(arguments.gguf)
        commands["llama.cpp"] = [llama, gguf, str(context)]
    if arguments.mlx:
        commands["mlx-lm"] = _python(arguments.mlx_python, "mlx", arguments.mlx, context)
    peers = []
    for name, command in commands.items():
        try:
            peers.append(Resident(name, command, arguments.limit))
        except RuntimeError as error:  # the others' figures count all the same
            report.note(f"{name} is left out: {error}")
    return peers


def _python(python: str, engine: str, model: str, context: int) -> list[str]:
    return [python, "-m", "bench", "resident", engine, os.path.abspath(model), str(context)]


def _run(
    report: Report, engines: list[Resident], arguments: argparse.Namespace, lengths: list[int]
) -> None:
    begin = time.perf_counter()
    for length in lengths:
        if time.perf_counter() - begin > arguments.seconds:
            report.note(f"stopped after {arguments.seconds:.0f} s: lengths are missing")
            break
        samples = _samples(report, engines, length, arguments)
        digests = {sample["digest"] for sample in samples["lily"]}
        if len(digests) > 1:
            raise RuntimeError(f"answers differ between rounds at {length:,} tokens: {digests}")
        _check_graphs(report, samples.get("llama.cpp", []), length, arguments.steps)
        _add_figures(report, samples, {"prefill": length, "decode": arguments.steps}, length)


def _samples(
    report: Report, engines: list[Resident], length: int, arguments: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """Of each engine, a sample a round; a peer that fails leaves `engines`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(arguments.rounds + 1):
        for engine in list(engines):
            try:
                sample = engine.run(length, arguments.steps, 0, arguments.limit)
            except RuntimeError as error:
                if engine.name == "lily":
                    raise
                report.note(f"at {length:,} tokens: {error}")
                engine.close()
                engines.remove(engine)
                found.pop(engine.name, None)
                continue
            if turn:
                found.setdefault(engine.name, []).append(sample)
    return found


def _check_graphs(report: Report, samples: list[dict[str, Any]], length: int, steps: int) -> None:
    """llama.cpp at its best replays CUDA graphs, but for a step or two at the beginning."""
    replayed = [sample.get("replayed_steps", 0) for sample in samples]
    if any(2 * count < steps for count in replayed):
        report.note(
            f"at {length:,} tokens llama.cpp replayed a CUDA graph in {replayed} of {steps} steps: "
            "its decode rate there is not its best, and no ratio to it may be quoted"
        )


def _add_figures(
    report: Report, samples: dict[str, list[dict[str, Any]]], tokens: dict[str, int], length: int
) -> None:
    for phase, count in tokens.items():
        own: Summary | None = None
        for name, of_engine in samples.items():
            seconds = [sample.get(f"{phase}_s") for sample in of_engine]
            if None in seconds:
                continue
            summary = Summary(tuple(count / second for second in seconds))
            own = own or summary
            derived: dict[str, Any] = {}
            if name != "lily":
                derived["lily_ratio"] = round(own.median / summary.median, 3)
            if phase == "decode" and "replayed_steps" in of_engine[0]:
                derived["replayed_steps"] = min(s["replayed_steps"] for s in of_engine)
            labels = {"phase": phase, "tokens": length, "engine": name}
            report.add(labels, "tok/s", summary, **derived)
