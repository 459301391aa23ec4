"""What will be measured, and everything that speaks against it before it begins.

Owns the usual lengths and the refusals. Loads no model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lily import _native, machine, words
from lily.errors import DeviceError, InvalidInput, ModelError, OutOfMemory

USUAL_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
_HEADROOM_BYTES = 4_000_000_000  # for the system, and what mlx-lm allocates besides weights and KV


@dataclass(frozen=True)
class Plan:
    """One comparison."""

    model: Path
    name: str
    device: str
    lengths: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]  # of the usual lengths, with the reason
    tokens: int
    rounds: int
    cooldown_s: float
    weights_bytes: int
    vocab: int


def make_plan(
    model: Path,
    name: str,
    *,
    device: str = "auto",
    lengths: Sequence[int] = (),
    tokens: int = 64,
    rounds: int = 2,
    cooldown_s: float = 20.0,
) -> Plan:
    """Check everything that can be checked without a model in memory.

    Raises InvalidInput, ModelError, OutOfMemory or DeviceError, each saying what is amiss and what
    was expected.
    """
    _refuse_missing_packages()
    facts = _native.describe(str(model))
    _refuse_other_models(name, facts)
    amiss = machine.unfit_to_measure()
    if amiss:
        raise DeviceError(f"not the time to measure: {'; '.join(amiss)}")
    fitting, left_out = [], []
    for length in sorted(set(lengths or USUAL_LENGTHS)):
        if why := _does_not_fit(model, facts, device, length + tokens + 1):
            if lengths:
                raise OutOfMemory(f"a prompt of {length:,} tokens: {why}")
            left_out.append((length, why))
        else:
            fitting.append(length)
    if not fitting:
        raise OutOfMemory(f"no length can be measured: {left_out[0][1]}")
    config: Mapping[str, Any] = facts["config"]  # type: ignore[assignment]
    weights_bytes = int(facts["weights_bytes"])  # type: ignore[call-overload]
    sizes = tokens, rounds, cooldown_s, weights_bytes, int(config["vocab"])
    return Plan(model, name, device, tuple(fitting), tuple(left_out), *sizes)


def _refuse_missing_packages() -> None:
    wanted = {"mlx": "mlx-lm", "mlx_lm": "mlx-lm", "matplotlib": "'lily-engine[report]'"}
    for module, package in wanted.items():
        if importlib.util.find_spec(module) is None:
            raise InvalidInput(f"--vs mlx-lm needs the package {module}; pip install {package}")


def _refuse_other_models(name: str, facts: Mapping[str, Any]) -> None:
    if facts["problems"]:
        raise ModelError("\n".join(facts["problems"]))
    stored = words.main_format(facts["formats"])
    if facts["layout"] != "mlx" or stored != "4-bit":
        raise InvalidInput(
            f"'{name}' is stored as {facts['layout']} {stored}, expected MLX 4-bit, which both "
            "engines read: `lily convert` makes one, or take it from the hub"
        )


def _does_not_fit(model: Path, facts: Mapping[str, Any], device: str, context: int) -> str:
    longest = int(facts["config"]["max_positions"])
    if context > longest:
        return f"the model takes {longest:,} tokens, expected room for {context:,}"
    try:
        _native.plan(str(model), device=device, max_context=context, cache_bytes=0)
    except OutOfMemory as error:
        return str(error)
    needed = int(facts["weights_bytes"]) + context * int(facts["kv_bytes_per_token"])
    have = machine.memory_bytes()
    if needed + _HEADROOM_BYTES > have:
        return (
            f"mlx-lm needs {words.size(needed)} for weights and KV cache and about "
            f"{words.size(_HEADROOM_BYTES)} besides; this machine has {words.size(have)}"
        )
    return ""
