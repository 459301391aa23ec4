"""Hugging Face checkpoint -> MLX affine layout, as `mlx_lm.convert` writes it, plus `mtp.*`.

Owns the affine quantisation and the streaming: sources are memory-mapped, each output tensor is
computed in blocks of a few megabytes and written in place, so memory does not grow with the model.
What becomes of each tensor is `lily.convert_plan`'s, the safetensors container `lily.tensorfile`'s.
Imports NumPy only; knows neither the engine nor the hub.

Two things differ from mlx-lm, both on purpose: the MTP head is kept (quantised at 8 bits, so that
speculative decoding works from the converted folder; its norms are shifted like the others), and a
folder appears only when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lily.convert_plan import Job, plan
from lily.errors import InvalidInput, ModelError
from lily.tensorfile import (
    from_float32,
    open_checkpoint,
    to_float32,
    write_shard,
)

SHARD_BYTES = 5 << 30
BLOCK_ELEMENTS = 1 << 21  # elements converted at a time: 8 MiB in float32
# Files that travel unchanged, where the source has them.
SIDE_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "vocab.json",
              "generation_config.json", "merges.txt", "special_tokens_map.json",
              "added_tokens.json", "LICENSE", "LICENSE.txt")  # fmt: skip

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ConvertReport:
    """What was written."""

    path: Path
    tensors: int
    source_bytes: int
    written_bytes: int
    parameters: int
    bits: int
    group_size: int
    mtp: bool

    @property
    def bits_per_weight(self) -> float:
        return self.written_bytes * 8 / self.parameters


def convert(
    src: Path | str,
    dst: Path | str,
    *,
    bits: int = 4,
    group_size: int = 64,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert the checkpoint folder `src` into the new folder `dst`.

    `progress(done, total)` is called with source bytes after every tensor. Raises `InvalidInput`
    for arguments that cannot work (among them a `dst` that is not empty) and `ModelError` for a
    checkpoint that is damaged or of another kind. `dst` appears complete or not at all.

    Example:
        >>> report = convert("Qwen3.6-35B-A3B", "qwen-4bit")  # doctest: +SKIP
        >>> report.bits_per_weight  # doctest: +SKIP
        4.52
    """
    source, target = Path(src), Path(dst)
    _check_arguments(source, target, bits, group_size)
    config = _read_config(source)
    tensors = open_checkpoint(source)
    jobs = plan(tensors, config, bits, group_size)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the final rename stays on one file system.
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        written = _write(work, jobs, progress)
        _write_config(work, config, jobs, bits, group_size)
        for name in SIDE_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, work / name)
        work.chmod(0o755)
        if target.exists():
            target.rmdir()  # empty: checked above, and rmdir checks once more
        os.replace(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return ConvertReport(
        target, sum(len(j.outputs()) for j in jobs), _source_bytes(jobs), written,
        _parameters(jobs), bits, group_size, any(j.name.startswith("mtp.") for j in jobs),
    )  # fmt: skip


def _check_arguments(source: Path, target: Path, bits: int, group_size: int) -> None:
    if bits not in (4, 8):
        raise InvalidInput(f"bits must be 4 or 8, given {bits}")
    if group_size not in (32, 64, 128):
        raise InvalidInput(f"group size must be 32, 64 or 128, given {group_size}")
    if not source.is_dir():
        raise InvalidInput(f"no such folder: {source}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"the destination exists and is not an empty folder: {target}")


def _read_config(source: Path) -> dict[str, Any]:
    path = source / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in ("qwen3_5_moe", "qwen3_5_moe_text"):
        raise ModelError(f"{path}: model_type is {kind!r}, expected 'qwen3_5_moe'")
    if "quantization" in config or "quantization_config" in config:
        raise ModelError(f"{path}: the checkpoint is already quantised")
    read: dict[str, Any] = config | _generation_ends(source)
    return read


def _generation_ends(source: Path) -> dict[str, Any]:
    """generation_config.json knows all the tokens that end an answer; mlx-lm copies them."""
    try:
        text = (source / "generation_config.json").read_text(encoding="utf-8")
        ends = json.loads(text).get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return {}
    return {"eos_token_id": ends} if ends else {}


def quantise(w: np.ndarray, bits: int, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """MLX's affine quantisation of float32 rows [n, width]: (uint32 codes, scales, biases).

    The larger end of each group is met exactly by a whole number of steps, so that it and zero
    are both representable. All arithmetic is float32, as in MLX's CPU code.
    """
    rows = w.reshape(-1, group)
    top = np.float32(2**bits - 1)
    low, high = rows.min(axis=1), rows.max(axis=1)
    low_end = np.abs(low) > np.abs(high)
    step = np.maximum((high - low) / top, np.float32(1e-7))
    step = np.where(low_end, step, -step)
    edge = np.where(low_end, low, high)
    steps = np.rint(edge / step)
    exact = steps != 0
    scale = np.where(exact, edge / np.where(exact, steps, np.float32(1)), step)
    bias = np.where(exact, edge, np.float32(0))
    codes = np.rint((rows - bias[:, None]) / scale[:, None])
    codes = np.clip(codes, np.float32(0), top).astype(np.uint32)
    per_word = 32 // bits
    shifts = (np.arange(per_word, dtype=np.uint32) * np.uint32(bits))[None, :]
    words = np.bitwise_or.reduce(codes.reshape(-1, per_word) << shifts, axis=1)
    lead = w.shape[0]
    return words.reshape(lead, -1), scale.reshape(lead, -1), bias.reshape(lead, -1)


def _blocks(job: Job) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows of the flattened result, float32 values) in blocks, in the job's final type's values.

    The shift happens in the source's type and the cast afterwards, as in mlx-lm.
    """
    done = 0
    for source in job.sources:
        raw = source.array()
        if job.rows:
            raw = raw[..., job.rows[0] : job.rows[1], :]
        if job.move_conv:
            raw = np.moveaxis(raw, 2, 1)
        lead = raw.reshape(1, -1, raw.shape[-1]) if raw.ndim < 3 else raw
        lead = lead if lead.ndim == 3 else lead.reshape(-1, *lead.shape[-2:])
        for matrix in lead:
            height = max(1, BLOCK_ELEMENTS // max(1, matrix.shape[-1]))
            for i in range(0, matrix.shape[0], height):
                values = to_float32(matrix[i : i + height], source.dtype)
                if job.shift:
                    values = to_float32(from_float32(values + np.float32(1), source.dtype),
                                        source.dtype)  # fmt: skip
                yield slice(done, done + len(values)), values
                done += len(values)


def _fill(job: Job, outputs: list[np.ndarray]) -> None:
    """Compute one job into its mapped output arrays."""
    flat = [o.reshape(-1, o.shape[-1]) if o.ndim > 1 else o.reshape(1, -1) for o in outputs]
    for rows, values in _blocks(job):
        cast = from_float32(values, job.dtype)
        if not job.bits:
            flat[0][rows] = cast
            continue
        words, scales, biases = quantise(to_float32(cast, job.dtype), job.bits, job.group)
        flat[0][rows] = words
        flat[1][rows] = from_float32(scales, job.dtype)
        flat[2][rows] = from_float32(biases, job.dtype)


def _write(work: Path, jobs: list[Job], progress: Progress | None) -> int:
    """All shards and the index; returns the bytes of tensor data."""
    shards: list[list[Job]] = [[]]
    size = total = 0
    for job in jobs:
        need = sum(o.nbytes for o in job.outputs())
        if shards[-1] and size + need > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(job)
        size += need
        total += need
    everything, done = _source_bytes(jobs), 0
    where: dict[str, str] = {}
    for i, shard in enumerate(shards):
        name = "model.safetensors" if len(shards) == 1 else (
            f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors")  # fmt: skip
        specs = [o for job in shard for o in job.outputs()]
        with write_shard(work / name, specs, {"format": "mlx"}) as arrays:
            for job in shard:
                _fill(job, [arrays(o.name) for o in job.outputs()])
                done += _job_bytes(job)
                if progress:
                    progress(done, everything)
        where |= {o.name: name for o in specs}
    index = {"metadata": {"total_size": total, "total_parameters": _parameters(jobs)},
             "weight_map": dict(sorted(where.items()))}  # fmt: skip
    _write_json(work / "model.safetensors.index.json", index)
    return total


def _job_bytes(job: Job) -> int:
    whole: int = sum(s.nbytes for s in job.sources)
    return whole // 2 if job.rows else whole


def _source_bytes(jobs: list[Job]) -> int:
    return sum(_job_bytes(j) for j in jobs)


def _parameters(jobs: list[Job]) -> int:
    return sum(int(np.prod(j.shape, dtype=np.int64)) for j in jobs)


def _write_config(
    work: Path, config: dict[str, Any], jobs: list[Job], bits: int, group_size: int
) -> None:
    """config.json with `quantization`; what deviates is named tensor by tensor."""
    quantization: dict[str, Any] = {"group_size": group_size, "bits": bits, "mode": "affine"}
    for job in jobs:
        gate = job.base.endswith(("mlp.gate", "shared_expert_gate"))
        if job.bits and (gate or job.name.startswith("mtp.")):
            quantization[job.base] = {"group_size": job.group, "bits": job.bits}
    out = {k: v for k, v in config.items() if k not in ("_name_or_path", "vision_config")}
    out |= _as_mlx_reads_it(out)
    out |= {"quantization": quantization, "quantization_config": quantization}
    _write_json(work / "config.json", dict(sorted(out.items())))


def _as_mlx_reads_it(config: dict[str, Any]) -> dict[str, Any]:
    """What mlx-lm changes while reading (`rope_type` becomes `type`), and the name it knows."""
    if "text_config" in config:
        return {"text_config": config["text_config"] | _rope(config["text_config"])}
    return {"model_type": "qwen3_5_moe"} | _rope(config)


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict) or "type" in rope or "rope_type" not in rope:
        return {}
    rest = {k: v for k, v in rope.items() if k != "rope_type"}
    return {"rope_parameters": rest | {"type": rope["rope_type"]}}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False), encoding="utf-8")
