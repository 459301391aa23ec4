"""Load of a checkpoint as large as the real model, from a sparse file: proof that it is not read.

The checkpoint has the real model's 4-bit layout, 40 layers and 256 experts; its tensors are holes
that occupy no disk. Whoever read them would show it in time and in resident memory.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lily.tensorfile import TensorSpec

from bench import machine
from bench.checkpoint_files import (
    mlx_config,
    mlx_tensors,
    write_index,
    write_safetensors,
)
from bench.child import worker
from bench.harness import Report, Summary
from bench.shapes import MODELS

_SHARD_BYTES = 5_000_000_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench load``."""
    parser.add_argument("--model", default="real", choices=MODELS)
    parser.add_argument("--folder", type=Path, help="where the sparse files go; default: a new one")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="load", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Make the checkpoint, load it in fresh processes, write the result file, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="lily-load-", dir=arguments.folder))
    try:
        _measure(arguments, folder)
    finally:
        shutil.rmtree(folder)


def _measure(arguments: argparse.Namespace, folder: Path) -> None:
    size_bytes = _write_sparse(folder, arguments.model)
    allocated_bytes = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    settings = {
        "model": arguments.model,
        "context": arguments.context,
        "rounds": arguments.rounds,
        "checkpoint_bytes": size_bytes,
        "checkpoint_bytes_on_disk": allocated_bytes,
    }
    report = Report("load", settings)
    if allocated_bytes > size_bytes // 100:
        raise RuntimeError(f"this file system has no holes: {allocated_bytes} bytes were written")
    options = ["--context", str(arguments.context), "--threads", str(machine.usable_cores())]
    runs = [
        worker("load", str(folder), *options) for _ in range(arguments.rounds + 1)
    ]  # the first is the warm-up
    _report_loads(report, runs[1:])
    report.write(arguments.name)


def _report_loads(report: Report, runs: list[dict[str, Any]]) -> None:
    def grown(key: str) -> Summary:
        # At least one byte: a measurement of nothing is a positive figure, too.
        return Summary(tuple(max(run["after"][key] - run["before"][key], 1) for run in runs))

    report.add({"what": "load"}, "s", Summary(tuple(run["seconds"][0] for run in runs)))
    for key, what in (
        ("rss_bytes", "resident memory gained"),
        ("file_bytes", "of which pages of mapped files"),
    ):
        if key in runs[0]["after"]:
            report.add({"what": what}, "bytes", grown(key))
    report.extra["plan"] = runs[-1]["plan"]
    report.extra["last_run"] = {key: runs[-1][key] for key in ("before", "after")}


def _write_sparse(folder: Path, model: str) -> int:
    shape = MODELS[model]
    shards: list[list[TensorSpec]] = [[]]
    for spec in mlx_tensors(shape):
        if sum(known.nbytes for known in shards[-1]) + spec.nbytes > _SHARD_BYTES:
            shards.append([])
        shards[-1].append(spec)
    if len(shards) == 1:
        named = {"model.safetensors": shards[0]}
    else:
        names = [f"model-{n + 1:05}-of-{len(shards):05}.safetensors" for n in range(len(shards))]
        named = dict(zip(names, shards, strict=True))
    for name, specs in named.items():
        write_safetensors(folder / name, specs, {"format": "mlx"}, lambda spec: None)
    write_index(folder, named, mlx_config(shape))
    return sum(spec.nbytes for specs in shards for spec in specs)
