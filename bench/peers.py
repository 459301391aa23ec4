"""Lily and its peers side by side: the same model, threads and lengths, in one run, taking turns.

Every sample is a fresh process that loads, warms up at the exact shape, and times its repetitions
(llama-bench's first repetition counts as such a warm-up and is dropped). A round runs one test
through all engines before the next, so that neighbours in time are compared. What the engines do
not share is written down as notes.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import machine
from bench.child import read_json, worker
from bench.harness import Report, interleave
from bench.worker import Test

_DEFAULT_TESTS = "pp128,pp512,tg64,tg64@512"
_NOTES = {
    "lily": "Lily picks each token on the device (arg-max); llama-bench decodes random tokens and "
    "picks none.",
    "llama.cpp": "llama.cpp Q4_0 has 4.5 bits a weight (groups of 32, fp16 scale), MLX 4-bit 4.5 "
    "(groups of 64, bf16 scale and bias); llama.cpp rounds activations to 8 bits, and its K cache "
    "and V cache are f16.",
    "transformers": "transformers runs the bf16 weights of the parent, about four times the bytes.",
    "mlx": "mlx-lm on a CPU chooses its own number of threads; it is built for Apple GPUs.",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench peers``."""
    parser.add_argument("--model", required=True, help="MLX 4-bit folder, for Lily")
    parser.add_argument("--llama-bench", help="path of llama.cpp's llama-bench")
    parser.add_argument("--gguf", help="the same model, for llama.cpp")
    parser.add_argument("--llama-note", default="", help="how llama.cpp was built; recorded")
    parser.add_argument("--transformers", metavar="DIR", help="HF bf16 folder, for transformers")
    parser.add_argument("--mlx", metavar="DIR", help="MLX folder, for mlx-lm")
    parser.add_argument("--tests", default=_DEFAULT_TESTS, help="as llama-bench names them")
    parser.add_argument("--threads", type=int, default=0, help="for every engine; 0: all cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="timed repetitions in a process")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between processes")
    parser.add_argument("--name", default="peers", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    if bool(arguments.llama_bench) != bool(arguments.gguf):
        raise ValueError("--llama-bench and --gguf go together")
    if arguments.rounds < 5:
        print("note: fewer than 5 rounds are for trying out, not for publishing")
    tests = [Test.parse(text) for text in arguments.tests.split(",")]
    threads = arguments.threads or machine.usable_cores()
    settings = {"threads": threads, "rounds": arguments.rounds, "repeats": arguments.repeats}
    report = Report("peers", settings)
    bench = _Peers(report, arguments, threads)
    for test in tests:
        bench.measure(test)
    report.extra["engines"] = bench.about
    for name in bench.engines:
        report.note(_NOTES[name])
    if arguments.llama_note:
        report.note(f"llama.cpp: {arguments.llama_note}")
    report.write(arguments.name)


class _Peers:
    def __init__(self, report: Report, arguments: argparse.Namespace, threads: int) -> None:
        self._report, self._arguments, self._threads = report, arguments, threads
        self.about: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self.engines: dict[str, Callable[[Test], float]] = {
            "lily": partial(self._worker, "lily", arguments.model)
        }
        if arguments.llama_bench:
            self.engines["llama.cpp"] = self._llama_bench
        for name in ("transformers", "mlx"):
            if folder := getattr(arguments, name):
                self.engines[name] = partial(self._worker, name, folder)

    def measure(self, test: Test) -> None:
        """One test through all engines, and Lily's ratio to each peer."""
        arms = {name: partial(self._sample, name, test) for name in self.engines}
        # No warm-up round: each process warms up on its own.
        found = interleave(
            arms, rounds=self._arguments.rounds, warm_ups=0, pause_s=self._arguments.pause
        )
        lily = found["lily"]
        for name, summary in found.items():
            derived = {}
            if name != "lily":
                # Of neighbours in time, too: what disturbs the machine disturbs both.
                pairs = [a / b for a, b in zip(lily.samples, summary.samples, strict=True)]
                derived = {
                    "lily_ratio": round(lily.median / summary.median, 4),
                    "lily_ratio_paired": round(statistics.median(pairs), 4),
                    "lily_ratio_min": round(min(pairs), 4),
                    "lily_ratio_max": round(max(pairs), 4),
                }
            self._report.add({"test": str(test), "engine": name}, "tok/s", summary, **derived)

    def _sample(self, engine: str, test: Test) -> float:
        rate = self.engines[engine](test)
        print(f"  {test} {engine} {rate:,.4g} tok/s", flush=True)
        return rate

    def _worker(self, engine: str, model: str, test: Test) -> float:
        options = ["--threads", str(self._threads), "--repeats", str(self._arguments.repeats)]
        found = worker(engine, model, str(test), *options)
        self.about[engine] = found["about"]
        if "digest" in found:
            known = self._digests.setdefault(f"{engine} {test}", found["digest"])
            if known != found["digest"]:
                raise RuntimeError(f"{engine}: greedy tokens of {test} differ between rounds")
        return float(test.tokens / statistics.median(found["seconds"]))

    def _llama_bench(self, test: Test) -> float:
        counts = {
            "pp": ["-p", str(test.tokens), "-n", "0"],
            "tg": ["-p", "0", "-n", f"{test.tokens}"],
        }
        command = [
            os.path.abspath(self._arguments.llama_bench),
            *("-m", os.path.abspath(self._arguments.gguf)),
            *("-t", str(self._threads)),
            *counts[test.kind],
            *("-d", str(test.context)),
            *("-r", str(self._arguments.repeats + 1)),
            *("-o", "json"),
        ]
        (found,) = read_json(command)
        self.about["llama.cpp"] = {
            key: found[key]
            for key in (
                "build_commit", "build_number", "backends", "model_type", "model_size",
                "model_n_params", "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn",
            )
            if key in found
        }  # fmt: skip
        return float(statistics.median(found["samples_ts"][1:]))
