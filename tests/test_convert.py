"""`lily.convert` against `mlx_lm.convert`, bit for bit, on small random checkpoints.

Owns a maker of random hub-layout checkpoints (with mtp.* and a stub of the vision tower). The
oracle needs mlx-lm and transformers; the rest of the file needs NumPy only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lily import convert as convert_module
from lily.convert import convert, quantise
from lily.errors import InvalidInput, ModelError
from lily.tensorfile import (
    STORED,
    TensorSpec,
    from_float32,
    open_checkpoint,
    read_header,
    to_float32,
    write_shard,
)

TEXT = {
    "model_type": "qwen3_5_moe_text", "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 96,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "max_position_embeddings": 2048,
    "full_attention_interval": 4, "mtp_num_hidden_layers": 1, "dtype": "bfloat16",
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [2, 1, 1], "mrope_interleaved": True},
}  # fmt: skip


def _moe(prefix: str) -> dict[str, tuple[int, ...]]:
    h, e, i, s = 64, 8, TEXT["moe_intermediate_size"], TEXT["shared_expert_intermediate_size"]
    assert isinstance(i, int)
    assert isinstance(s, int)
    return {
        f"{prefix}.mlp.gate.weight": (e, h), f"{prefix}.mlp.experts.gate_up_proj": (e, 2 * i, h),
        f"{prefix}.mlp.experts.down_proj": (e, h, i), f"{prefix}.mlp.shared_expert_gate.weight":
        (1, h), f"{prefix}.mlp.shared_expert.gate_proj.weight": (s, h),
        f"{prefix}.mlp.shared_expert.up_proj.weight": (s, h),
        f"{prefix}.mlp.shared_expert.down_proj.weight": (h, s),
        f"{prefix}.input_layernorm.weight": (h,), f"{prefix}.post_attention_layernorm.weight": (h,),
    }  # fmt: skip


def _attention(prefix: str) -> dict[str, tuple[int, ...]]:
    p = f"{prefix}.self_attn"
    return {f"{p}.q_proj.weight": (256, 64), f"{p}.k_proj.weight": (64, 64),
            f"{p}.v_proj.weight": (64, 64), f"{p}.o_proj.weight": (64, 128),
            f"{p}.q_norm.weight": (32,), f"{p}.k_norm.weight": (32,)}  # fmt: skip


def _delta(prefix: str) -> dict[str, tuple[int, ...]]:
    p = f"{prefix}.linear_attn"
    return {f"{p}.in_proj_qkv.weight": (256, 64), f"{p}.in_proj_z.weight": (128, 64),
            f"{p}.in_proj_a.weight": (4, 64), f"{p}.in_proj_b.weight": (4, 64),
            f"{p}.conv1d.weight": (256, 1, 4), f"{p}.dt_bias": (4,), f"{p}.A_log": (4,),
            f"{p}.norm.weight": (32,), f"{p}.out_proj.weight": (64, 128)}  # fmt: skip


def shapes(hub: bool) -> dict[str, tuple[int, ...]]:
    base = "model.language_model" if hub else "model"
    out: dict[str, tuple[int, ...]] = {
        f"{base}.embed_tokens.weight": (320, 64),
        f"{base}.norm.weight": (64,),
        "lm_head.weight": (320, 64),
    }
    for i, kind in enumerate(TEXT["layer_types"]):  # type: ignore[arg-type, var-annotated]
        prefix = f"{base}.layers.{i}"
        out |= _moe(prefix) | (_delta if kind == "linear_attention" else _attention)(prefix)
    if hub:
        out |= _moe("mtp.layers.0") | _attention("mtp.layers.0") | {
            "mtp.fc.weight": (64, 128), "mtp.norm.weight": (64,),
            "mtp.pre_fc_norm_embedding.weight": (64,), "mtp.pre_fc_norm_hidden.weight": (64,),
            "model.visual.blocks.0.attn.qkv.weight": (96, 32)}  # fmt: skip
    return out


def _values(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    w = rng.standard_normal(shape) * (0.3 if len(shape) == 1 else 1 / np.sqrt(shape[-1]))
    if len(shape) >= 2 and shape[-1] >= 32:
        rows = w.reshape(-1, shape[-1])
        rows[0] = 0  # an all-zero group, a constant one, and one that touches zero
        if len(rows) > 3:
            rows[1], rows[2] = 0.25, np.abs(rows[2])
    return w.astype(np.float32)


def make_checkpoint(
    path: Path, dtype: str = "BF16", hub: bool = True, seed: int = 0, files: int = 2
) -> Path:
    """A random checkpoint; A_log in float32, as some real ones have it."""
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    items = list(shapes(hub).items())
    index: dict[str, str] = {}
    for k in range(files):
        part = items[k::files]
        name = f"model-{k + 1:05d}-of-{files:05d}.safetensors"
        specs = [TensorSpec(n, "F32" if n.endswith("A_log") else dtype, s) for n, s in part]
        with write_shard(path / name, specs, {"format": "pt"}) as tensor:
            for spec in specs:
                tensor(spec.name)[...] = from_float32(_values(rng, spec.name, spec.shape),
                                                      spec.dtype)  # fmt: skip
        index |= {n: name for n, _ in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    named = {"BF16": "bfloat16", "F32": "float32"}[dtype]
    text = TEXT | {"dtype": named}
    config: dict[str, Any] = text | {"model_type": "qwen3_5_moe"} if not hub else {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
        "text_config": text, "vision_config": {"depth": 1}, "tie_word_embeddings": False,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    _make_tokenizer(path)
    return path


def _make_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[])).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def load(folder: Path) -> dict[str, tuple[str, np.ndarray]]:
    """(stored type, bits) of every tensor, read without our own checks on U32."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                raw = np.memmap(
                    path,
                    STORED[entry["dtype"]],
                    "r",
                    8 + length + entry["data_offsets"][0],
                    tuple(entry["shape"]),
                )
                out[name] = entry["dtype"], np.array(raw)  # fmt: skip
    return out


def oracle(src: Path, dst: Path, bits: int, group: int) -> None:
    """mlx-lm's own converter, in a process of its own: it changes global state."""
    code = (
        "import sys; from mlx_lm.convert import convert; convert(sys.argv[1], sys.argv[2], "
        "quantize=True, q_bits=int(sys.argv[3]), q_group_size=int(sys.argv[4]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(src), str(dst), str(bits), str(group)],
        capture_output=True, text=True, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("dtype", "hub", "bits", "group"),
    [("BF16", True, 4, 64), ("BF16", True, 8, 32), ("F32", True, 4, 64), ("BF16", False, 4, 32),
     ("BF16", True, 8, 128)],
)  # fmt: skip
def test_equals_mlx_lm(tmp_path: Path, dtype: str, hub: bool, bits: int, group: int) -> None:
    pytest.importorskip("mlx_lm")
    src = make_checkpoint(tmp_path / "src", dtype, hub)
    oracle(src, tmp_path / "theirs", bits, group)
    report = convert(src, tmp_path / "ours", bits=bits, group_size=group)
    theirs, ours = load(tmp_path / "theirs"), load(tmp_path / "ours")
    extra = {n for n in ours if n.startswith("mtp.")}
    assert set(ours) - extra == set(theirs)
    assert bool(extra) == hub == report.mtp
    for name, (kind, bits_) in theirs.items():
        assert ours[name][0] == kind, name
        assert ours[name][1].shape == bits_.shape, name
        view = np.uint32 if kind in ("F32", "U32") else np.uint16
        same = ours[name][1].view(view) == bits_.view(view)
        assert same.all(), f"{name}: {np.count_nonzero(~same)} of {same.size} differ"
    mine = json.loads((tmp_path / "ours/config.json").read_text())
    yours = json.loads((tmp_path / "theirs/config.json").read_text())
    for key in ("quantization", "quantization_config"):
        mine[key] = {k: v for k, v in mine[key].items() if not k.startswith("mtp.")}
    assert mine == yours
    index = json.loads((tmp_path / "ours/model.safetensors.index.json").read_text())
    wanted = json.loads((tmp_path / "theirs/model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(ours)
    if not hub:
        # Not total_parameters: mlx-lm forgets A_log and dt_bias, which sit beside modules.
        assert index["weight_map"] == wanted["weight_map"]
        assert index["metadata"]["total_size"] == wanted["metadata"]["total_size"]


def test_mlx_lm_loads_the_folder(tmp_path: Path) -> None:
    """The kept mtp.* tensors and their configuration disturb nobody."""
    pytest.importorskip("mlx_lm")
    convert(make_checkpoint(tmp_path / "src"), tmp_path / "out")
    code = ("import sys, mlx.core as mx; from pathlib import Path; from mlx_lm.utils import "
            "load_model; m, _ = load_model(Path(sys.argv[1])); m.set_dtype(mx.float32); "
            "print(m(mx.array([[1, 2, 3]])).shape)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert "(1, 3, 320)" in done.stdout, done.stderr[-2000:]


def test_mtp_is_8_bit_and_shifted(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src")
    convert(src, tmp_path / "out")
    out, sources = load(tmp_path / "out"), open_checkpoint(src)
    settings = json.loads((tmp_path / "out/config.json").read_text())["quantization"]
    assert settings["mtp.fc"] == {"group_size": 64, "bits": 8}
    assert "mtp.layers.0.mlp.switch_mlp.down_proj" not in settings  # width 32: left as it is
    name = "mtp.layers.0.mlp.experts.gate_up_proj"
    whole = to_float32(sources[name].array(), "BF16")
    codes = out["mtp.layers.0.mlp.switch_mlp.up_proj.weight"][1]
    scales, biases = (to_float32(out[f"mtp.layers.0.mlp.switch_mlp.up_proj.{k}"][1], "BF16")
                      for k in ("scales", "biases"))  # fmt: skip
    restored = codes.view(np.uint8).astype(np.float32) * scales + biases
    step = np.abs(scales)
    assert (np.abs(restored - whole[:, 32:]) <= step + 0.01).all()
    for norm in ("mtp.norm", "mtp.pre_fc_norm_hidden", "mtp.layers.0.self_attn.q_norm"):
        w = to_float32(sources[f"{norm}.weight"].array(), "BF16")
        assert (out[f"{norm}.weight"][1] == from_float32(1 + w, "BF16")).all(), norm


def test_experts_stored_one_by_one(tmp_path: Path) -> None:
    """An MTP head whose experts are separate tensors gives the same file as a fused one."""
    src = make_checkpoint(tmp_path / "src", files=1)
    other = tmp_path / "other"
    other.mkdir()
    for path in src.iterdir():
        if path.suffix != ".safetensors" and "index" not in path.name:
            (other / path.name).write_bytes(path.read_bytes())
    arrays: dict[str, tuple[str, np.ndarray]] = {}
    for name, (kind, w) in load(src).items():
        if name.startswith("mtp.") and ".experts." in name:
            stem = name.rsplit(".", 1)[0]
            for e in range(len(w)):
                parts = {"gate": w[e, :32], "up": w[e, 32:]} if "gate_up" in name else {
                    "down": w[e]}  # fmt: skip
                for part, value in parts.items():
                    arrays[f"{stem}.{e}.{part}_proj.weight"] = kind, value
        else:
            arrays[name] = kind, w
    specs = [TensorSpec(n, k, w.shape) for n, (k, w) in arrays.items()]
    with write_shard(other / "model.safetensors", specs, {}) as tensor:
        for name, (_, w) in arrays.items():
            tensor(name)[...] = w
    convert(src, tmp_path / "a")
    convert(other, tmp_path / "b")
    first, second = load(tmp_path / "a"), load(tmp_path / "b")
    assert set(first) == set(second)
    assert all((first[n][1] == second[n][1]).all() for n in first)


def test_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src = make_checkpoint(tmp_path / "src")
    convert(src, tmp_path / "one")
    monkeypatch.setattr(convert_module, "SHARD_BYTES", 60_000)
    monkeypatch.setattr(convert_module, "BLOCK_ELEMENTS", 1000)
    seen: list[tuple[int, int]] = []
    convert(src, tmp_path / "many", progress=lambda done, total: seen.append((done, total)))
    files = sorted(p.name for p in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    first, second = load(tmp_path / "one"), load(tmp_path / "many")
    assert set(first) == set(second)
    assert all((first[n][1] == second[n][1]).all() for n in first)
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    """A 128 MB tensor passes through a few blocks of float32, measured in Python's own heap."""
    src = make_checkpoint(tmp_path / "src", files=1)
    arrays = load(src)
    big = "model.language_model.embed_tokens.weight"
    specs = [TensorSpec(n, k, (1 << 20, 64) if n == big else w.shape)
             for n, (k, w) in arrays.items()]  # fmt: skip
    (src / "model-00001-of-00001.safetensors").unlink()
    (src / "model.safetensors.index.json").unlink()
    with write_shard(src / "model.safetensors", specs, {}) as tensor:
        for name, (_, w) in arrays.items():
            tensor(name)[...] = w if name != big else np.resize(w, (1 << 20, 64))
    del arrays
    tracemalloc.start()
    convert(src, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20, f"{peak >> 20} MB"


def _damage(src: Path, how: str) -> None:
    path = sorted(src.glob("*.safetensors"))[-1]
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "header":
        data = bytearray(path.read_bytes())
        data[8:16] = b"\xff" * 8
        path.write_bytes(bytes(data))
    elif how == "length":
        data = bytearray(path.read_bytes())
        data[:8] = b"\xff" * 8
        path.write_bytes(bytes(data))
    elif how == "missing file":
        path.unlink()
    elif how == "config":
        (src / "config.json").write_text("{")
    elif how == "other model":
        (src / "config.json").write_text('{"model_type": "llama"}')
    elif how == "no config":
        (src / "config.json").unlink()


@pytest.mark.parametrize(
    "how", ["cut", "header", "length", "missing file", "config", "other model", "no config"]
)
def test_damage_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    src = make_checkpoint(tmp_path / "src")
    _damage(src, how)
    with pytest.raises(ModelError):
        convert(src, tmp_path / "out" / "deep")
    assert not list(tmp_path.glob("out/*"))


def test_failure_midway_leaves_nothing_behind(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src")

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(src, tmp_path / "out", progress=stop)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src"]


def test_refuses_bad_arguments(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src")
    full = tmp_path / "full"
    full.mkdir()
    (full / "precious").write_text("keep me")
    for kwargs in ({"bits": 3}, {"group_size": 48}):
        with pytest.raises(InvalidInput):
            convert(src, tmp_path / "out", **kwargs)
    with pytest.raises(InvalidInput, match="not an empty folder"):
        convert(src, full)
    with pytest.raises(InvalidInput, match="no such folder"):
        convert(tmp_path / "absent", tmp_path / "out")
    assert (full / "precious").read_text() == "keep me"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert convert(src, empty).path == empty
    with pytest.raises(ModelError, match="already quantised"):
        convert(empty, tmp_path / "again")


def test_quantise_restores_the_larger_end() -> None:
    """Each group's larger end comes back exactly (before scales are rounded)."""
    w = np.random.default_rng(0).standard_normal((16, 128)).astype(np.float32)
    words, scale, bias = quantise(w, 4, 64)
    codes = (words[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    groups = codes.reshape(32, 64) * scale.reshape(32, 1) + bias.reshape(32, 1)
    rows = w.reshape(32, 64)
    at = np.abs(rows).argmax(1)
    ends = rows[np.arange(32), at]
    assert np.allclose(groups[np.arange(32), at], ends, rtol=1e-6)


def test_bfloat16_rounding_is_to_nearest_even() -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, -2.3, 3e38, np.inf, np.nan, 1e-40], np.float32)
    back = to_float32(from_float32(x, "BF16"), "BF16")
    assert back[1] == 1.0  # halfway, down to even
    assert back[2] == 1.015625  # halfway, up to even
    assert np.isinf(back[5])
    assert np.isnan(back[6])
    torch = pytest.importorskip("torch")
    theirs = torch.from_numpy(x).to(torch.bfloat16).float().numpy()
    assert np.array_equal(back, theirs, equal_nan=True)


def test_strange_type(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = b'{"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with pytest.raises(ModelError, match="a is F8_E4M3"):
        read_header(path)
