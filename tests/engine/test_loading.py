"""What loads, what is refused, and that a refusal lists everything at once."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lily import _native
from lily.errors import DeviceError, InvalidInput, ModelError, OutOfMemory

from .checkpoints import (
    QUANTISABLE,
    TINY,
    Quant,
    Spec,
    Tensors,
    hub_config,
    hub_tensors,
    mlx_checkpoint,
    random_tensors,
    rounded,
    text_config,
    write_checkpoint,
    write_text_only,
)
from .conftest import Load

NORM = "model.layers.0.input_layernorm.weight"
DOWN = "model.layers.2.mlp.experts.down_proj"


def logits(folder: Path, ids: list[int], **options: Any) -> np.ndarray:
    return _native.Engine(str(folder), device="cpu", **options).session().all_logits(ids)


class TestLayouts:
    def test_names_do_not_change_the_numbers(self, tmp_path: Path, prompt: list[int]) -> None:
        tensors = random_tensors(TINY)
        text = write_text_only(tmp_path / "text", TINY, tensors)
        hub = write_checkpoint(tmp_path / "hub", hub_config(TINY), hub_tensors(TINY, tensors))
        extras = hub_tensors(TINY, tensors, with_extras=True)
        full = write_checkpoint(tmp_path / "full", hub_config(TINY), extras, shards=4)
        rows = logits(text, prompt)
        assert (logits(hub, prompt) == rows).all()
        assert (logits(full, prompt) == rows).all()
        assert _native.describe(str(full))["unused"] == [
            "model.visual.* (1 tensor)",
            "mtp.* (2 tensors)",
        ]

    def test_tensors_of_any_alignment(self, tmp_path: Path, prompt: list[int]) -> None:
        tensors = rounded(random_tensors(TINY))
        # An odd number of bytes in front of everything else.
        padded = write_text_only(tmp_path / "padded", TINY, tensors)
        for pad in (1, 3):
            odd = write_text_only(tmp_path / f"odd{pad}", TINY, tensors, pad=pad)
            size = int.from_bytes((odd / "model.safetensors").read_bytes()[:8], "little")
            assert size % 8 != 0
            assert (logits(odd, prompt) == logits(padded, prompt)).all()
            plan = _native.plan(str(odd))
            assert plan["weights_bytes"] >= _native.plan(str(padded))["weights_bytes"]

    @pytest.mark.parametrize("quant", [Quant(4, 32), Quant(4, 128), Quant(8, 64), Quant(8, 32)])
    def test_quantised_is_what_its_values_are(
        self, tmp_path: Path, quant: Quant, prompt: list[int]
    ) -> None:
        self.compare(tmp_path, quant, {}, prompt)

    @pytest.mark.parametrize(
        "overrides",
        [
            {"mlp.gate": Quant(4, 64)},
            {"mlp.gate": None, "in_proj_b": None, "q_proj": Quant(8, 32)},
            {"switch_mlp.up_proj": Quant(8, 32), "shared_expert.up_proj": Quant(4, 128)},
            {"switch_mlp.gate_proj": None, "embed_tokens": None, "lm_head": Quant(8, 128)},
        ],
    )
    def test_neighbours_stored_differently(
        self, tmp_path: Path, overrides: dict[str, Quant | None], prompt: list[int]
    ) -> None:
        self.compare(tmp_path, Quant(4, 64), overrides, prompt)

    @staticmethod
    def compare(
        folder: Path, quant: Quant, overrides: dict[str, Quant | None], prompt: list[int]
    ) -> None:
        made = mlx_checkpoint(QUANTISABLE, random_tensors(QUANTISABLE), quant, overrides)
        quantised = write_checkpoint(folder / "mlx", made.config, made.tensors, shards=2)
        exact = write_text_only(folder / "hf", QUANTISABLE, made.same_in_hf)
        assert np.abs(logits(quantised, prompt) - logits(exact, prompt)).max() < 5e-5

    def test_both_spellings_of_quantization(self, tmp_path: Path, prompt: list[int]) -> None:
        rows = []
        for key in ("quantization", "quantization_config"):
            made = mlx_checkpoint(QUANTISABLE, random_tensors(QUANTISABLE), Quant(), key=key)
            rows.append(logits(write_checkpoint(tmp_path / key, made.config, made.tensors), prompt))
        assert (rows[0] == rows[1]).all()


def without(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.pop(name)  # type: ignore[return-value]


def with_values(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: change(tensors[name])})


REFUSALS: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "missing": (without(NORM), f"missing: {NORM} (BF16 or F32 [96])"),
    "extra": (
        lambda tensors: tensors.update({"model.bonus": np.zeros((2, 3), np.float32)}),
        'unexpected: "model.bonus" ("F32" [2, 3])',
    ),
    "dtype": (
        with_values(NORM, lambda values: values.astype(np.float16)),
        f'wrong dtype: {NORM} is "F16", expected BF16 or F32',
    ),
    "shape": (
        with_values(DOWN, lambda values: values[:, :, :-1]),
        f"wrong shape: {DOWN} is [5, 96, 39], expected [5, 96, 40]",
    ),
    "nan": (
        with_values(NORM, lambda values: np.where(np.arange(96) == 7, np.nan, values).astype("f4")),
        f"not finite: {NORM} holds nan at element 7",
    ),
    "infinity": (
        with_values("model.layers.1.linear_attn.A_log", lambda values: values + np.float32(1000)),
        "not finite: model.layers.1.linear_attn.A_log holds",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    def test_one_wrong_tensor(self, tmp_path: Path, name: str) -> None:
        change, message = REFUSALS[name]
        tensors = random_tensors(TINY)
        change(tensors)
        folder = write_text_only(tmp_path, TINY, tensors)
        with pytest.raises(ModelError) as refused:
            _native.Engine(str(folder))
        lines = str(refused.value).splitlines()
        assert "1 problem with the tensors" in lines[0]
        assert lines[1].strip().startswith(message)

    def test_all_of_them_at_once(self, tmp_path: Path) -> None:
        tensors = random_tensors(TINY)
        structural = {name: pair for name, pair in REFUSALS.items() if name not in ("nan", "dtype")}
        structural.pop("infinity")
        for change, _ in structural.values():
            change(tensors)
        folder = write_text_only(tmp_path, TINY, tensors)
        with pytest.raises(ModelError) as refused:
            _native.Engine(str(folder))
        text = str(refused.value)
        assert "3 problems with the tensors" in text
        for _, message in structural.values():
            assert message in text
        problems = _native.describe(str(folder))["problems"]
        assert isinstance(problems, list)
        assert len(problems) == 3

    def test_layers_share_a_line(self, tmp_path: Path) -> None:
        tensors = random_tensors(TINY)
        for layer in range(4):
            del tensors[f"model.layers.{layer}.mlp.gate.weight"]
        for layer in (0, 2):
            del tensors[f"model.layers.{layer}.linear_attn.dt_bias"]
        folder = write_text_only(tmp_path, TINY, tensors)
        problems = _native.describe(str(folder))["problems"]
        assert problems == [
            "missing: model.layers.{0,2}.linear_attn.dt_bias (BF16 or F32 [4])",
            "missing: model.layers.{0-3}.mlp.gate.weight (BF16 or F32 [5, 96])",
        ]

    def test_wrong_parts_of_a_quantised_tensor(self, tmp_path: Path) -> None:
        made = mlx_checkpoint(QUANTISABLE, random_tensors(QUANTISABLE), Quant())
        module = "language_model.model.layers.3.self_attn.k_proj"
        del made.tensors[module + ".biases"]
        made.tensors[module + ".scales"] = made.tensors[module + ".scales"][:, :1].copy()
        made.tensors[module + ".weight"] = made.tensors[module + ".weight"].astype(np.int64)
        folder = write_checkpoint(tmp_path, made.config, made.tensors)
        assert _native.describe(str(folder))["problems"] == [
            f'wrong dtype: {module}.weight is "I64", expected U32',
            f"wrong shape: {module}.scales is [128, 1], expected [128, 2]",
            f"missing: {module}.biases (BF16 [128, 2])",
        ]

    def test_scales_without_a_word_in_the_config(self, tmp_path: Path) -> None:
        made = mlx_checkpoint(QUANTISABLE, random_tensors(QUANTISABLE), Quant())
        del made.config["quantization"]
        folder = write_checkpoint(tmp_path, made.config, made.tensors)
        with pytest.raises(ModelError, match=r"lm_head\.scales, but config.json does not say"):
            _native.Engine(str(folder))

    def test_another_architecture(self, tmp_path: Path) -> None:
        config = text_config(TINY) | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
        folder = write_checkpoint(tmp_path, config, random_tensors(TINY))
        with pytest.raises(ModelError, match="llama"):
            _native.Engine(str(folder))

    def test_options(self, tiny: Path) -> None:
        for options, message in (
            ({"device": "abacus"}, "abacus"),
            ({"kv_dtype": "q4"}, "kv_dtype 'q4' is not known"),
            ({"max_context": 641}, "641, the model has positions for 640"),
            ({"cache_bytes": -2}, "cache_bytes is -2"),
            ({"chunk_tokens": 10_000}, "chunk_tokens is 10,000"),
        ):
            with pytest.raises(InvalidInput, match=message):
                _native.Engine(str(tiny), **options)
        with pytest.raises(ModelError, match="no such folder"):
            _native.Engine(str(tiny / "nothing"))


class TestNotFinite:
    """NaN in the big tensors is found when it shows, because nothing reads them at load."""

    @pytest.fixture
    def poisoned(self, tmp_path: Path) -> Path:
        tensors = random_tensors(TINY)
        tensors["model.embed_tokens.weight"][7, 3] = np.nan
        return write_text_only(tmp_path, TINY, tensors)

    def test_a_step_names_the_place(self, load: Load, poisoned: Path) -> None:
        session = load(poisoned).session()
        session.prefill([1, 2, 3])
        with pytest.raises(ModelError, match=r"not finite after token 3: .*NaN or Inf"):
            session.step(7)
        assert session.tokens == [1, 2, 3]
        with pytest.raises(DeviceError, match="cannot go on after its token 3"):
            session.step(4)
        assert session.prefill([1, 2, 3]) == 0
        session.step(4)

    def test_a_prompt(self, load: Load, poisoned: Path, prompt: list[int]) -> None:
        engine = load(poisoned)
        session = engine.session()
        clean = [token for token in prompt if token != 7]
        for call in (session.prefill, session.score):
            with pytest.raises(ModelError, match="not finite"):
                call([*clean[:40], 7, *clean[40:]])
        assert engine.cache_stats()["snapshots"] == 0
        session.prefill(clean)
        assert np.isfinite(session.logits()).all()


class TestMemory:
    def test_plan(self, load: Load, tiny: Path) -> None:
        plan = load(max_context=512).plan()
        assert plan == _native.plan(str(tiny), max_context=512, device="cpu")
        parts = ("weights_bytes", "kv_bytes", "state_bytes", "scratch_bytes", "cache_bytes")
        assert plan["total_bytes"] == sum(plan[part] for part in parts)
        assert plan["kv_bytes"] == 512 * 2 * TINY.kv_heads * TINY.head_dim * 4
        files = sum(file.stat().st_size for file in tiny.glob("*.safetensors"))
        assert files * 0.9 < plan["weights_bytes"] < files * 1.2

    def test_a_refusal_says_what_would_fit(self, tiny: Path) -> None:
        whole = _native.plan(str(tiny), cache_bytes=0)
        half = whole["total_bytes"] - whole["kv_bytes"] // 2
        with pytest.raises(OutOfMemory) as refused:
            _native.plan(str(tiny), max_context=640, cache_bytes=0, memory_limit_bytes=half)
        text = str(refused.value)
        assert "KV cache" in text
        assert "for 640 tokens" in text
        assert "largest context that fits is 256 tokens" in text
        fits = _native.plan(str(tiny), cache_bytes=0, memory_limit_bytes=half)
        assert fits["max_context"] == 256
        assert fits["total_bytes"] <= half
        with pytest.raises(OutOfMemory, match="No context fits"):
            _native.plan(str(tiny), memory_limit_bytes=1000)

    def test_twenty_gigabytes_are_not_read(self, tmp_path: Path) -> None:
        """A sparse file of the real model's kind: opening and planning touch headers only."""
        folder = sparse_checkpoint(tmp_path)
        file = folder / "model.safetensors"
        assert file.stat().st_size > 20e9
        assert file.stat().st_blocks * 512 < 50e6
        limit = 10**12
        before = resident_bytes()
        start = time.perf_counter()
        engine = _native.Engine(
            str(folder), device="cpu", memory_limit_bytes=limit, max_context=1024, cache_bytes=0
        )
        seconds = time.perf_counter() - start
        assert engine.plan()["weights_bytes"] > 20e9
        assert resident_bytes() - before < 100e6
        assert seconds < 5
        engine.close()
        with pytest.raises(OutOfMemory, match=r"in place"):
            _native.Engine(str(folder), device="cpu", memory_limit_bytes=10**10)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def sparse_checkpoint(folder: Path) -> Path:
    """Text-only bf16, 20 GB of zeros that no disk holds; the shapes are near the real ones."""
    spec = Spec(
        hidden=2048, layer_types=("delta", "delta", "delta", "attention") * 3, q_heads=16,
        kv_heads=2, head_dim=256, rotary_dims=64, key_heads=16, value_heads=32, key_dim=128,
        value_dim=128, experts=256, experts_per_token=8, expert_width=512, shared_width=512,
        vocab=248_320, max_positions=262_144,
    )  # fmt: skip
    small = random_tensors(TINY)
    real = {
        "input_layernorm.weight": [2048], "post_attention_layernorm.weight": [2048],
        "self_attn.q_proj.weight": [8192, 2048], "self_attn.k_proj.weight": [512, 2048],
        "self_attn.v_proj.weight": [512, 2048], "self_attn.o_proj.weight": [2048, 4096],
        "self_attn.q_norm.weight": [256], "self_attn.k_norm.weight": [256],
        "linear_attn.in_proj_qkv.weight": [8192, 2048],
        "linear_attn.in_proj_z.weight": [4096, 2048],
        "linear_attn.in_proj_b.weight": [32, 2048], "linear_attn.in_proj_a.weight": [32, 2048],
        "linear_attn.conv1d.weight": [8192, 1, 4], "linear_attn.A_log": [32],
        "linear_attn.dt_bias": [32], "linear_attn.norm.weight": [128],
        "linear_attn.out_proj.weight": [2048, 4096], "mlp.gate.weight": [256, 2048],
        "mlp.experts.gate_up_proj": [256, 1024, 2048], "mlp.experts.down_proj": [256, 2048, 512],
        "mlp.shared_expert.gate_proj.weight": [512, 2048],
        "mlp.shared_expert.up_proj.weight": [512, 2048],
        "mlp.shared_expert.down_proj.weight": [2048, 512],
        "mlp.shared_expert_gate.weight": [1, 2048],
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": [spec.vocab, 2048], "model.norm.weight": [2048]}
    shapes["lm_head.weight"] = [spec.vocab, 2048]
    for name in small:
        if not name.startswith("model.layers."):
            continue
        for layer in range(len(spec.layer_types)):
            kind = "attention" if layer % 4 == 3 else "delta"
            part = name.split(".", 3)[3]
            owner = {"self_attn": "attention", "linear_attn": "delta"}.get(part.split(".")[0], kind)
            if owner == kind:
                shapes[f"model.layers.{layer}.{part}"] = real[part]
    header: dict[str, Any] = {}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text_config(spec)))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        os.truncate(file.fileno(), 8 + len(text) + offset)
    return folder


def test_describe(tiny: Path) -> None:
    told = _native.describe(str(tiny))
    assert told["architecture"] == "qwen3_5_moe"
    assert told["layout"] == "hf"
    assert told["problems"] == []
    tensors = random_tensors(TINY)
    assert told["parameters"] == sum(values.size for values in tensors.values())
    assert told["weights_bytes"] == 4 * told["parameters"]
    assert told["formats"] == {"f32": told["weights_bytes"]}
    experts = sum(v.size for k, v in tensors.items() if ".experts." in k)
    embedding = tensors["model.embed_tokens.weight"].size
    assert told["active_parameters"] == told["parameters"] - embedding - experts * 2 // 5
    assert told["kv_bytes_per_token"] == 2 * TINY.kv_heads * TINY.head_dim * 2
    config = told["config"]
    assert isinstance(config, dict)
    assert (config["hidden"], config["experts"], config["delta_layers"]) == (96, 5, 3)
    assert config["rope_theta"] == 1e7


def test_describe_never_throws(tmp_path: Path) -> None:
    told = _native.describe(str(tmp_path / "nothing"))
    assert told["problems"]
    (tmp_path / "config.json").write_text("{")
    assert len(_native.describe(str(tmp_path))["problems"]) >= 2  # type: ignore[arg-type]
