"""What `lily.convert` will write: each tensor's new name, shape, precision and origin.

Owns the naming of both layouts, the norms that are shifted and the choice of bits, as mlx-lm makes
it. Reads headers only; touches no tensor data. The two additions to mlx-lm's choice are the MTP
head, kept at 8 bits, and experts stored one by one, which are stacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lily.errors import InvalidInput, ModelError
from lily.tensorfile import Source, TensorSpec

HIGH_BITS = 8  # router, shared gate and the MTP head
HIGH_GROUP = 64
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
SHIFTED_NORMS = (".input_layernorm.weight", ".post_attention_layernorm.weight",
                 "model.norm.weight", ".q_norm.weight", ".k_norm.weight", "mtp.norm.weight",
                 ".pre_fc_norm_embedding.weight", ".pre_fc_norm_hidden.weight")  # fmt: skip
NEVER_QUANTISED = (".conv1d.weight", "norm.weight", ".dt_bias", ".A_log")


@dataclass
class Job:
    """One tensor of the result and how it comes from one or more source tensors.

    `rows` cuts a source's second to last axis (half of a fused gate_up); several sources are
    stacked along a new first axis (experts stored one by one).
    """

    name: str
    sources: list[Source]
    rows: tuple[int, int] | None = None
    shift: bool = False
    move_conv: bool = False
    bits: int = 0  # 0: not quantised
    group: int = 0
    dtype: str = ""  # of the result, or of its scales and biases
    shape: tuple[int, ...] = ()

    @property
    def base(self) -> str:
        return self.name.removesuffix(".weight")

    def outputs(self) -> list[TensorSpec]:
        """The one to three tensors of the file, in mlx-lm's names."""
        if not self.bits:
            return [TensorSpec(self.name, self.dtype, self.shape)]
        *lead, width = self.shape
        packed = TensorSpec(self.name, "U32", (*lead, width * self.bits // 32))
        small = (*lead, width // self.group)
        return [packed, TensorSpec(f"{self.base}.scales", self.dtype, small),
                TensorSpec(f"{self.base}.biases", self.dtype, small)]  # fmt: skip


def _config_dtype(config: dict[str, Any]) -> str | None:
    """The type that mlx-lm casts to: `torch_dtype`, or the text configuration's `dtype`."""
    named = config.get("torch_dtype") or config.get("text_config", {}).get("dtype")
    return DTYPES.get(named) if isinstance(named, str) else None


def plan(
    tensors: dict[str, Source], config: dict[str, Any], bits: int, group_size: int
) -> list[Job]:
    """Every tensor of the result, in the order of the model."""
    conv = [t for name, t in tensors.items() if name.endswith("conv1d.weight")]
    if not conv:
        raise ModelError("no linear_attn.conv1d.weight: not a checkpoint of this model family")
    hub_layout = any(t.shape[-1] != 1 for t in conv)
    wanted = _config_dtype(config)
    jobs: list[Job] = []
    for job in _renamed(tensors):
        leaf = job.sources[0]
        job.shift = hub_layout and job.name.endswith(SHIFTED_NORMS) and len(leaf.shape) == 1
        job.move_conv = job.name.endswith("conv1d.weight") and leaf.shape[-1] != 1
        job.dtype = leaf.dtype if job.name.endswith("A_log") or not wanted else wanted
        job.shape = _shape(job)
        job.bits, job.group = _precision(job, bits, group_size)
        jobs.append(job)
    if len({j.name for j in jobs}) != len(jobs):
        raise ModelError("two source tensors have the same converted name")
    return sorted(jobs, key=lambda j: _order(j.name))


def _shape(job: Job) -> tuple[int, ...]:
    shape = job.sources[0].shape
    if any(s.shape != shape for s in job.sources):
        raise ModelError(f"{job.name}: its experts differ in shape")
    if job.rows:
        shape = (*shape[:-2], job.rows[1] - job.rows[0], shape[-1])
    if len(job.sources) > 1:
        shape = (len(job.sources), *shape)
    if job.move_conv:
        shape = (shape[0], shape[2], shape[1])
    return shape


def _precision(job: Job, bits: int, group_size: int) -> tuple[int, int]:
    """(bits, group) or (0, 0): what mlx-lm's predicate decides, and 8 bits for the MTP head."""
    plain = not job.name.endswith(".weight") or job.name.endswith(NEVER_QUANTISED)
    if plain or len(job.shape) < 2 or job.shape[-1] % group_size:
        return 0, 0
    fits = job.shape[-1] % HIGH_GROUP == 0
    if job.name.startswith("mtp."):
        return (HIGH_BITS, HIGH_GROUP) if fits else (0, 0)
    if job.base.endswith(("mlp.gate", "shared_expert_gate")):
        if not fits:
            raise InvalidInput(f"{job.name}: width {job.shape[-1]} is no multiple of {HIGH_GROUP}")
        return HIGH_BITS, HIGH_GROUP
    return bits, group_size


_ONE_EXPERT = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.(gate|up|down)_proj\.weight")


def _renamed(tensors: dict[str, Source]) -> Iterator[Job]:
    """Jobs with their MLX names; vision tensors are left out."""
    single: dict[str, dict[int, Source]] = {}
    for key, tensor in tensors.items():
        if key.startswith(("vision_tower", "model.visual", "visual.")):
            continue
        name = _mlx_name(key)
        if name.endswith("mlp.experts.gate_up_proj"):
            stem, half = name.removesuffix("experts.gate_up_proj"), tensor.shape[-2] // 2
            yield Job(f"{stem}switch_mlp.gate_proj.weight", [tensor], rows=(0, half))
            yield Job(f"{stem}switch_mlp.up_proj.weight", [tensor], rows=(half, 2 * half))
        elif name.endswith("mlp.experts.down_proj"):
            stem = name.removesuffix("experts.down_proj")
            yield Job(f"{stem}switch_mlp.down_proj.weight", [tensor])
        elif match := _ONE_EXPERT.fullmatch(name):
            stacked = f"{match[1]}.switch_mlp.{match[3]}_proj.weight"
            single.setdefault(stacked, {})[int(match[2])] = tensor
        else:
            yield Job(name, [tensor])
    for name, experts in single.items():
        if sorted(experts) != list(range(len(experts))):
            raise ModelError(f"{name}: some experts are missing")
        yield Job(name, [experts[i] for i in range(len(experts))])


def _mlx_name(key: str) -> str:
    for prefix in ("model.mtp.", "language_model.mtp."):
        if key.startswith(prefix):
            return "mtp." + key.removeprefix(prefix)
    if key.startswith(("mtp.", "language_model.")):
        return key
    if key.startswith("model.language_model."):
        return "language_model.model." + key.removeprefix("model.language_model.")
    return "language_model." + key


def _order(name: str) -> tuple[int, int, str]:
    """Embedding, layers by number, final norm, head, MTP."""
    layer = re.search(r"layers\.(\d+)\.", name)
    if name.startswith("mtp."):
        return 4, int(layer[1]) if layer else -1, name
    if layer:
        return 1, int(layer[1]), name
    return (0 if "embed_tokens" in name else 3 if "lm_head" in name else 2), 0, name
