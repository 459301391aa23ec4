"""The gate's encoder and reader: milliseconds by length, beside onnxruntime on the same weights.

Arms take turns in one process. onnxruntime runs the same network with the matrices decoded to
fp32, and in its own dynamic int8, with as many threads. Windows are full of random ids: what they
say does not change what they cost. The reader is timed on English text, which says something of a
trained model only.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from lily._native import Encoder
from lily.gate.neural import Reader
from lily.gate.neural.settings import read_settings

from bench import machine
from bench.ceilings import Ceilings
from bench.harness import Report, interleave, timed

# Windows of rows: 80 characters, 400 characters, and 25,000 tokens with their overlaps.
SHAPES = {"27 rows": [27], "112 rows": [112], "37,376 rows": [128] * 292}
CHARACTERS = (80, 400, 100_000)
_SHORT_S = 0.2  # a sample of a short arm repeats it for about this long
_TEXT = (
    "Please tell Maria Keller at 14 Linden Street in Leeds that her appointment has moved to the "
    "second of June, and ask whether her insurance covers the new tablets. She can call me back "
    "after five. Otherwise the report on last quarter's sales is ready for review, and nobody has "
    "said yet who will present it to the board. "
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench encoder``."""
    parser.add_argument("--model", type=Path, required=True, help="folder of the gate's model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=machine.usable_cores())
    parser.add_argument("--peers", action="store_true", help="needs torch, onnx and onnxruntime")
    parser.add_argument("--reader", action="store_true", help="also time whole readings")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--name", default="encoder", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    settings = {"threads": arguments.threads, "device": arguments.device}
    report = Report("encoder", settings | {"rounds": arguments.rounds})
    encoder = Encoder(str(arguments.model), device=arguments.device, threads=arguments.threads)
    runners: dict[str, Callable[..., object]] = {"lily q8": encoder.run}
    with tempfile.TemporaryDirectory(prefix="lily-onnx-") as folder:
        if arguments.peers:
            from bench.encoder_peer import sessions

            runners |= sessions(arguments.model, Path(folder), arguments.threads)
            report.note("peers: onnxruntime, fp32 and its dynamic int8 of the same network")
        ceilings = Ceilings(megabytes=64)
        ceilings.measure([arguments.threads])
        _encoder(report, runners, arguments, ceilings)
    _load(report, arguments)
    if arguments.reader:
        _reader(report, arguments)
    report.write(arguments.name)


def _encoder(
    report: Report,
    runners: dict[str, Callable[..., object]],
    arguments: argparse.Namespace,
    ceilings: Ceilings,
) -> None:
    settings, rng = read_settings(arguments.model), np.random.default_rng(0)
    peak = ceilings.limits(arguments.threads).get("fma_gflop_per_s")
    weights = _products(arguments.model)
    for shape, lengths in SHAPES.items():
        rows = sum(lengths)
        ids = rng.integers(0, settings.vocab, rows, dtype=np.uint32)
        inputs = (ids, np.zeros(rows, np.uint32), np.array(lengths, np.uint32))
        _check_alike(runners, inputs)
        arms = {name: _arm(run, *inputs) for name, run in runners.items()}
        for name, summary in interleave(arms, rounds=arguments.rounds).items():
            rate = 2 * weights * rows / summary.median / 1e6
            derived: dict[str, Any] = {"gflop_per_s": round(rate, 1)}
            if peak and name != "onnxruntime int8":  # whose arithmetic is not fp32
                derived["share_of_fma_peak"] = round(rate / peak, 3)
            report.add({"arm": name, "shape": shape}, "ms", summary, **derived)


def _check_alike(runners: dict[str, Callable[..., Any]], inputs: tuple[np.ndarray, ...]) -> None:
    """What is compared must compute the same."""
    if (peer := runners.get("onnxruntime fp32")) is None or len(inputs[2]) > 1:
        return
    own, other = runners["lily q8"](*inputs)[0], peer(*inputs)[0][0][0]
    if not np.abs(own - other).max() < 1e-3:
        raise RuntimeError(f"logits of Lily and onnxruntime differ by {np.abs(own - other).max()}")


def _products(folder: Path) -> int:
    """Weights that each row is multiplied with."""
    config = json.loads((folder / "config.json").read_text())
    hidden, inner = config["hidden"], config["intermediate"]
    return int(config["layers"] * (4 * hidden * hidden + 2 * hidden * inner))


def _load(report: Report, arguments: argparse.Namespace) -> None:
    def load(make: Callable[[], object]) -> Callable[[], float]:
        return lambda: timed(make) * 1e3

    model, threads = arguments.model, arguments.threads
    arms = {
        "encoder": load(lambda: Encoder(str(model), threads=threads)),
        "reader": load(lambda: Reader.load(model, threads=threads)),
    }
    for name, summary in interleave(arms, rounds=arguments.rounds).items():
        report.add({"load": name}, "ms", summary)


def _reader(report: Report, arguments: argparse.Namespace) -> None:
    reader = Reader.load(arguments.model, device=arguments.device, threads=arguments.threads)
    texts = {count: (_TEXT * (count // len(_TEXT) + 1))[:count] for count in CHARACTERS}
    arms = {f"{count:,} characters": _arm(reader.read, text) for count, text in texts.items()}
    for name, summary in interleave(arms, rounds=arguments.rounds).items():
        report.add({"reader": name}, "ms", summary)


def _arm(call: Callable[..., object], *inputs: object) -> Callable[[], float]:
    """Milliseconds of one call; many together where one is short."""
    once = timed(lambda: call(*inputs))
    repeats = max(1, int(_SHORT_S / once))

    def many() -> None:
        for _ in range(repeats):
            call(*inputs)

    return lambda: timed(many) / repeats * 1e3
