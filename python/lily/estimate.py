"""How fast a chip that is not here might decode: an estimate, counted and not measured.

This file owns the table of Apple's chips, the bytes that one token reads and writes, the dispatches
that it takes, and what is assumed about both. Pure functions: it opens no file, imports nothing of
Lily but its errors, and does not know how its figures are shown.

The bytes follow src/model/weights.cpp, the dispatches `Forward::record_decode` in
src/model/forward.cpp. Whatever is assumed is said in words by `assumptions`, with its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lily.errors import InvalidInput

USUAL_CONTEXTS = (0, 4_096, 16_384, 32_768, 131_072)
_SMALL_BYTES = 100_000_000  # some chips' caches hold about as much


@dataclass(frozen=True)
class Chip:
    """A chip by Apple's own specification: GPU cores as sold, memory bandwidth in GB/s."""

    name: str
    gpu_cores: str
    gb_per_s: int
    other: str = ""  # the same chip with another bandwidth


# Bandwidths as Apple states them ("up to", in its announcements and technical specifications).
# There is no M4 Ultra. GPU cores are for the reader: nothing here is computed from them.
CHIPS = {
    "m1-pro": Chip("Apple M1 Pro", "14 or 16", 200),
    "m1-max": Chip("Apple M1 Max", "24 or 32", 400),
    "m1-ultra": Chip("Apple M1 Ultra", "48 or 64", 800),
    "m2-pro": Chip("Apple M2 Pro", "16 or 19", 200),
    "m2-max": Chip("Apple M2 Max", "30 or 38", 400),
    "m2-ultra": Chip("Apple M2 Ultra", "60 or 76", 800),
    "m3-pro": Chip("Apple M3 Pro", "14 or 18", 150),
    "m3-max": Chip("Apple M3 Max", "40", 400, other="m3-max-30"),
    "m3-max-30": Chip("Apple M3 Max", "30", 300, other="m3-max"),
    "m3-ultra": Chip("Apple M3 Ultra", "60 or 80", 819),
    "m4-pro": Chip("Apple M4 Pro", "16 or 20", 273),
    "m4-max": Chip("Apple M4 Max", "40", 546, other="m4-max-32"),
    "m4-max-32": Chip("Apple M4 Max", "32", 410, other="m4-max"),
    "m5-pro": Chip("Apple M5 Pro", "16 or 20", 307),
    "m5-max": Chip("Apple M5 Max", "40", 614, other="m5-max-32"),
    "m5-max-32": Chip("Apple M5 Max", "32", 460, other="m5-max"),
    "m5-ultra": Chip("Apple M5 Ultra", "64 or 80", 1200),
}


@dataclass(frozen=True)
class Case:
    """One set of assumptions: the share of the bandwidth reached, and a dispatch's own cost."""

    bandwidth_share: float
    dispatch_us: float


CASES = {"low": Case(0.51, 2.05), "likely": Case(0.69, 1.3), "high": Case(0.87, 0.5)}

# What one token dispatches: once, and in a layer of each kind.
ONCE = ("embed_rows", "sample_logits", "sample_draw")
DELTA = ("linear_norm", "delta_step", "linear_add")
ATTENTION = ("linear_norm", "attention_decode", "attention_merge", "linear_add")
EXPERTS = ("moe_router", "moe_gate_up", "moe_down")

HEADLINE = (
    "This is an ESTIMATE. No Mac measured it: bytes and dispatches are counted, everything else "
    "is assumed."
)


def find_chip(name: str) -> Chip:
    """The chip of a name as on the command line.

    Raises InvalidInput, with the known names, for any other.

    Example:
        >>> find_chip("M5 Max").gb_per_s
        614
    """
    chip = CHIPS.get("-".join(name.lower().replace("-", " ").split()).removeprefix("apple-"))
    if chip is None:
        raise InvalidInput(f"no chip '{name}' in the table; known are {', '.join(CHIPS)}")
    return chip


@dataclass(frozen=True)
class Formats:
    """How each weight matrix is stored, as config.json tells it."""

    plain_bits: int
    standard: Mapping[str, Any] | None  # bits and group_size; None where nothing is quantised
    overrides: Mapping[str, Any]  # "layers.0.mlp.gate" -> the same, or whether at all

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Formats:
        """Read them from the content of a config.json that the native reader accepts."""
        text = text_config(config)
        dtype = text.get("dtype") or config.get("dtype") or config.get("torch_dtype")
        quantised: Mapping[str, Any] | None = None
        for level in (config, text):
            for key in ("quantization", "quantization_config"):
                quantised = quantised or level.get(key)
        named = {_short(module): found for module, found in (quantised or {}).items()}
        return cls(32 if dtype == "float32" else 16, quantised, named)

    def matrix_bytes(self, module: str, rows: int, cols: int) -> int:
        """Bytes of a matrix; where it is quantised, with a bf16 scale and bias for each group."""
        own = self.overrides.get(module, True)
        found = self.standard if own is True else own
        if not found or cols % found["group_size"]:
            return rows * cols * self.plain_bits // 8
        bits, group = int(found["bits"]), int(found["group_size"])
        return rows * (cols * bits // 8 + cols // group * 4)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config.json."""
    nested: Mapping[str, Any] | None = config.get("text_config")
    return config if nested is None else nested


def _short(module: str) -> str:
    """A module's name without what the checkpoint's layout puts before it."""
    for prefix in ("language_model.model.", "model.language_model.", "model.", "language_model."):
        if module.startswith(prefix):
            return module.removeprefix(prefix)
    return module


@dataclass(frozen=True)
class Decode:
    """What decoding one token takes."""

    parts: Mapping[str, int]  # bytes read and written with an empty context
    kv_bytes_per_token: int  # read for each token of the context
    dispatches: int

    def bytes_at(self, context: int) -> int:
        """Bytes that one token moves after `context` tokens."""
        return sum(self.parts.values()) + context * self.kv_bytes_per_token

    def milliseconds(self, chip: Chip, case: Case, context: int) -> float:
        """The time of one token, reads and dispatches one after the other."""
        reads = self.bytes_at(context) / (chip.gb_per_s * 1e6 * case.bandwidth_share)
        return reads + self.dispatches * case.dispatch_us / 1e3


def count(facts: Mapping[str, Any], config: Mapping[str, Any]) -> Decode:
    """Count one token's bytes and dispatches.

    `facts` are those of `lily._native.describe`, `config` the content of the same config.json.
    """
    dims, text = facts["config"], text_config(config)
    formats = Formats.of(config)
    parts: dict[str, int] = {}

    def add(matrices: Sequence[tuple[str, str, int, int]], layer: int | None = None) -> None:
        for part, module, rows, cols in matrices:
            full = module if layer is None else f"layers.{layer}.{module}"
            parts[part] = parts.get(part, 0) + formats.matrix_bytes(full, rows, cols)

    add([("embedding, one row", "embed_tokens", 1, dims["hidden"])])
    for layer, attention in enumerate(_attention_layers(text, dims["layers"])):
        add(_attention_matrices(dims) if attention else _delta_matrices(dims), layer)
        add(_expert_matrices(dims), layer)
    head = "embed_tokens" if dims["tie_word_embeddings"] else "lm_head"
    add([("lm_head", head, dims["vocab"], dims["hidden"])])
    parts |= _unquantised_bytes(dims)
    parts["KV cache, the token's own rows, written"] = facts["kv_bytes_per_token"]
    mixers = dims["delta_layers"] * len(DELTA) + dims["attention_layers"] * len(ATTENTION)
    dispatches = len(ONCE) + mixers + dims["layers"] * len(EXPERTS)
    return Decode(parts, facts["kv_bytes_per_token"], dispatches)


def _attention_layers(text: Mapping[str, Any], layers: int) -> list[bool]:
    """For each layer whether it has full attention."""
    if kinds := text.get("layer_types"):
        return [kind == "full_attention" for kind in kinds]
    return [layer % int(text["full_attention_interval"]) == 0 for layer in range(1, layers + 1)]


def _delta_matrices(dims: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    hidden, heads = dims["hidden"], dims["delta_value_heads"]
    keys, values = dims["delta_key_heads"] * dims["delta_key_dim"], heads * dims["delta_value_dim"]
    read = "delta layers: q, k, v, z, b, a"
    return [
        (read, "linear_attn.in_proj_qkv", 2 * keys + values, hidden),
        (read, "linear_attn.in_proj_z", values, hidden),
        (read, "linear_attn.in_proj_b", heads, hidden),
        (read, "linear_attn.in_proj_a", heads, hidden),
        ("delta layers: output", "linear_attn.out_proj", hidden, values),
    ]


def _attention_matrices(dims: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    hidden, width = dims["hidden"], dims["q_heads"] * dims["head_dim"]
    kv_width = dims["kv_heads"] * dims["head_dim"]
    read = "attention layers: q, gate, k, v"
    return [
        (read, "self_attn.q_proj", 2 * width, hidden),
        (read, "self_attn.k_proj", kv_width, hidden),
        (read, "self_attn.v_proj", kv_width, hidden),
        ("attention layers: output", "self_attn.o_proj", hidden, width),
    ]


def _expert_matrices(dims: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    hidden, width, shared = dims["hidden"], dims["expert_width"], dims["shared_width"]
    chosen = dims["experts_per_token"]
    routed = f"routed experts, {chosen} of {dims['experts']}"
    return [
        ("router and shared expert's gate", "mlp.gate", dims["experts"], hidden),
        ("router and shared expert's gate", "mlp.shared_expert_gate", 1, hidden),
        (routed, "mlp.switch_mlp.gate_proj", chosen * width, hidden),
        (routed, "mlp.switch_mlp.up_proj", chosen * width, hidden),
        (routed, "mlp.switch_mlp.down_proj", chosen * hidden, width),
        ("shared expert", "mlp.shared_expert.gate_proj", shared, hidden),
        ("shared expert", "mlp.shared_expert.up_proj", shared, hidden),
        ("shared expert", "mlp.shared_expert.down_proj", hidden, shared),
    ]


def _unquantised_bytes(dims: Mapping[str, int]) -> dict[str, int]:
    """Small vectors and the recurrent state, which Lily keeps in fp32 whatever the file says."""
    delta, heads = dims["delta_layers"], dims["delta_value_heads"]
    values = heads * dims["delta_value_dim"]
    channels = 2 * dims["delta_key_heads"] * dims["delta_key_dim"] + values
    norms = (2 * dims["layers"] + 1) * dims["hidden"]
    norms += dims["attention_layers"] * 2 * dims["head_dim"]
    norms += delta * (dims["delta_value_dim"] + 2 * heads)
    return {
        "norms and gates' constants, fp32": 4 * norms,
        "convolution weights, fp32": 4 * delta * 4 * channels,
        "convolution inputs, read and written, fp32": 4 * delta * 4 * channels,
        "recurrent state, read and written, fp32": 2 * 4 * delta * values * dims["delta_key_dim"],
    }


def contexts(wanted: Sequence[int], longest: int) -> list[int]:
    """The contexts to estimate: those asked for, or the usual ones that the model takes.

    Raises InvalidInput for one that it does not take.
    """
    for context in wanted:
        if not 0 <= context <= longest:
            raise InvalidInput(
                f"a context of {context:,} tokens; this model takes 0 to {longest:,}"
            )
    return list(wanted) or [context for context in USUAL_CONTEXTS if context <= longest]


def report(chip: Chip, decode: Decode, at: Sequence[int]) -> dict[str, Any]:
    """Everything that there is to show, as JSON can hold it."""
    rows = []
    for context in at:
        times = {name: decode.milliseconds(chip, case, context) for name, case in CASES.items()}
        rows.append(
            {
                "context": context,
                "bytes_per_token": decode.bytes_at(context),
                "ms_per_token": {name: round(time, 3) for name, time in times.items()},
                "tokens_per_s": {name: round(1e3 / time, 1) for name, time in times.items()},
            }
        )
    return {
        "estimate": HEADLINE,
        "chip": {
            "name": chip.name,
            "gpu_cores": chip.gpu_cores,
            "gb_per_s": chip.gb_per_s,
            "variant": _variant(chip),
        },
        "contexts": rows,
        "bytes_by_part": dict(decode.parts),
        "kv_bytes_per_context_token": decode.kv_bytes_per_token,
        "dispatches_per_token": decode.dispatches,
        "cases": {name: vars(case) for name, case in CASES.items()},
        "assumptions": assumptions(decode),
    }


def _variant(chip: Chip) -> str | None:
    if not chip.other:
        return None
    other = CHIPS[chip.other]
    return f"with {other.gpu_cores} GPU cores it has {other.gb_per_s} GB/s: {chip.other}"


def assumptions(decode: Decode) -> list[str]:
    """What the figures rest on, in words, with the sources."""
    shares = " / ".join(f"{case.bandwidth_share:.0%}".rstrip("%") for case in CASES.values())
    costs = " / ".join(f"{case.dispatch_us:g}" for case in CASES.values())
    said = [
        "Memory is the limit: each byte that a token needs is read once and comes from memory, "
        "nothing stays in a cache from token to token, activations never leave the caches, and "
        "arithmetic hides behind the reads.",
        f"Kernels reach {shares} % (low / likely / high) of Apple's stated bandwidth. Low is "
        "what a whole public engine reaches with this model: 155 tokens/s without speculation on "
        "an M4 Max (mlx-serve 26.7.12), its dispatches included, so that they count twice. High is "
        "one dense product on an M5 Pro, 266 of 307 GB/s (mlx-lm #1679). Likely is the middle of "
        "the two, chosen and not measured.",
        f"Each of the {decode.dispatches} dispatches costs {costs} µs (low / likely / high) on top "
        "of its reads. Reported are 2.05 µs (qwisp #143), at most 1.5 to 1.7 µs (mlx-serve), and "
        "1.3 µs one after the other but 0.5 µs where they may overlap, on an M3 Pro (infr #14).",
        "One sequence, no speculative decoding, a bf16 KV cache; the host keeps ahead of the GPU, "
        "nothing else runs, and the chip does not throttle.",
        "Weights are stored as config.json says; no tensor was looked at.",
        "Low and high are two sets of assumptions and no bounds: a public engine reports 80 "
        "tokens/s for this model on an M2 Max, 36 % of its bandwidth (Rapid-MLX #1065).",
    ]
    if decode.bytes_at(0) < _SMALL_BYTES:
        said.append(
            "This model is so small that caches and the host's own work, which are not counted, "
            "would decide: for it the figures say next to nothing."
        )
    return said
