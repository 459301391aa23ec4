"""`lily bench --model-of`: the counts behind the estimate, and what is said about it.

The bytes are held against the figures of the design (1,798 MB and 20,480 bytes for each token of
the context, counted by hand from the real model's shapes) and against the tensors of the model in
the package; the dispatches against `Forward::record_decode`, whose native test counts 253 too.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from lily import _native, cli, estimate
from lily.errors import InvalidInput
from lily.hub import shipped_model

from bench.shapes import REAL

FORWARD = Path(__file__).resolve().parents[2] / "src/model/forward.cpp"
EIGHT = {"bits": 8, "group_size": 64}


def real_config():
    """As mlx-lm quantises: 4 bits in groups of 64, routers and shared gates 8 bits."""
    gates = {
        f"language_model.model.layers.{layer}.mlp.{gate}": EIGHT
        for layer in range(REAL.layers)
        for gate in ("gate", "shared_expert_gate")
    }
    return {**REAL.hf_config(), "quantization": {"bits": 4, "group_size": 64, **gates}}


def count(config, folder):
    """Counts for a folder that holds nothing but this config.json."""
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return estimate.count(_native.describe(str(folder)), config)


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lily", "bench", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as left:
            cli.main()
        out = capsys.readouterr()
        return left.value.code or 0, out.out, out.err

    return call


# --- counts -----------------------------------------------------------------------------------


def test_the_real_model(tmp_path):
    decode = count(real_config(), tmp_path)
    assert decode.bytes_at(0) == pytest.approx(1_798e6, rel=0.01)
    assert decode.kv_bytes_per_token == 20_480
    assert decode.bytes_at(1000) - decode.bytes_at(0) == 20_480_000
    assert decode.dispatches == 253
    megabytes = {part: round(size / 1e6, 1) for part, size in decode.parts.items()}
    assert megabytes["delta layers: q, k, v, z, b, a"] == 426.9
    assert megabytes["routed experts, 8 of 256"] == 566.2
    assert megabytes["router and shared expert's gate"] == 22.4
    assert megabytes["lm_head"] == 286.1
    assert megabytes["recurrent state, read and written, fp32"] == 125.8


@pytest.mark.parametrize(
    ("context", "tokens_per_s"),
    [(0, 290), (4_096, 277), (16_384, 245), (32_768, 211), (131_072, 116)],
)
def test_roofline_of_the_design(tmp_path, context, tokens_per_s):
    """85 % of 614 GB/s and dispatches for nothing, as a table by hand has it."""
    decode = count(real_config(), tmp_path)
    time = decode.milliseconds(estimate.find_chip("m5-max"), estimate.Case(0.85, 0), context)
    assert 1e3 / time == pytest.approx(tokens_per_s, rel=0.01)


def test_a_dispatch_costs_its_microseconds(tmp_path):
    decode, chip = count(real_config(), tmp_path), estimate.find_chip("m5-max")
    free, dear = (decode.milliseconds(chip, estimate.Case(0.5, us), 0) for us in (0, 2))
    assert dear - free == pytest.approx(253 * 2e-3)


def test_dispatches_are_those_of_the_forward_pass():
    source = FORWARD.read_text("utf-8")

    def recorded(function):
        body = re.search(rf"void Forward::{function}\(.*?\n}}\n", source, re.DOTALL).group()
        return tuple(re.findall(r"ops::(\w+)\(step", body))

    assert recorded("record_decode") + recorded("record_draw") == estimate.ONCE
    assert recorded("decode_mixer") == estimate.ATTENTION + estimate.DELTA
    assert recorded("decode_moe") == estimate.EXPERTS


def test_matrices_of_the_shipped_model_are_those_of_its_file():
    """With every expert and the whole embedding, the parts are the quantised bytes of the file."""
    folder = shipped_model()
    facts = _native.describe(str(folder))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    dims = {**facts["config"], "experts_per_token": facts["config"]["experts"]}
    parts = dict(estimate.count({**facts, "config": dims}, config).parts)
    parts["embedding, one row"] *= dims["vocab"]
    matrices = sum(size for part, size in parts.items() if not re.search("fp32|KV", part))
    assert matrices == facts["formats"]["q4"] + facts["formats"]["q8"]
    vectors = parts["norms and gates' constants, fp32"] + parts["convolution weights, fp32"]
    assert vectors == 2 * facts["formats"]["bf16"]


def test_formats():
    quantised = {"bits": 4, "group_size": 64, "lm_head": False, "model.layers.0.mlp.gate": EIGHT}
    formats = estimate.Formats.of({"quantization": quantised, "dtype": "bfloat16"})
    assert formats.matrix_bytes("layers.1.mlp.gate", 2, 128) == 2 * (64 + 2 * 4)
    assert formats.matrix_bytes("layers.0.mlp.gate", 2, 128) == 2 * (128 + 2 * 4)
    assert formats.matrix_bytes("lm_head", 2, 128) == 2 * 128 * 2
    assert formats.matrix_bytes("layers.1.mlp.gate", 2, 96) == 2 * 96 * 2  # no whole groups
    plain = estimate.Formats.of({"text_config": {"dtype": "float32"}})
    assert plain.matrix_bytes("lm_head", 2, 128) == 2 * 128 * 4


def test_unquantised_tied_and_by_interval(tmp_path):
    config = REAL.hf_config()
    plain = count(config, tmp_path)
    assert plain.parts["lm_head"] == 248_320 * 2048 * 2
    del config["text_config"]["layer_types"]
    assert count(config, tmp_path) == plain
    config["text_config"]["tie_word_embeddings"] = config["tie_word_embeddings"] = True
    assert count(config, tmp_path) == plain


# --- chips and contexts -----------------------------------------------------------------------


def test_chips():
    assert estimate.find_chip("Apple M5 Max") is estimate.CHIPS["m5-max"]
    with pytest.raises(InvalidInput, match=r"no chip 'm9-max' in the table; known are m1-pro, .*"):
        estimate.find_chip("m9-max")
    for chip in estimate.CHIPS.values():
        if chip.other:
            other = estimate.CHIPS[chip.other]
            assert other.name == chip.name
            assert other.gb_per_s != chip.gb_per_s


def test_contexts():
    assert estimate.contexts([], 20_000) == [0, 4_096, 16_384]
    assert estimate.contexts([7, 0], 20_000) == [7, 0]
    with pytest.raises(InvalidInput, match="takes 0 to 20,000"):
        estimate.contexts([20_001], 20_000)


# --- the command ------------------------------------------------------------------------------


def test_command_on_a_config_alone(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(real_config()), "utf-8")
    code, out, _ = run("--model-of", "m5-max", "-m", str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["dispatches_per_token"] == 253
    assert [row["context"] for row in found["contexts"]] == [0, 4096, 16384, 32768, 131072]
    for row in found["contexts"]:
        speeds = row["tokens_per_s"]
        assert speeds["low"] < speeds["likely"] < speeds["high"]
    code, out, _ = run("--model-of", "m5-max", "-m", str(tmp_path))
    assert code == 0
    for said in ("ESTIMATE", "No Mac measured it", "253 dispatches", "460 GB/s: m5-max-32"):
        assert said in out
    assert "say next to nothing" not in out


def test_command_on_the_shipped_model(run):
    code, out, _ = run("--model-of", "M1 Max", "-l", "100")
    assert code == 0
    assert "lily-tiny on Apple M1 Max" in out
    assert "say next to nothing" in out


def test_command_refuses(run, monkeypatch, tmp_path):
    code, _, err = run("--model-of", "m9")
    assert (code, err.count("\n")) == (2, 1)
    assert "m5-max-32" in err
    assert run("--model-of", "m1-max", "-l", "8193")[0] == 2
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    code, _, err = run("--model-of", "m1-max", "-m", "org/name")
    assert code == 1
    assert "config.json alone is enough" in err
    code, _, err = run("--model-of", "m1-max", "-m", str(tmp_path))
    assert code == 1
    assert "config.json: is missing" in err
