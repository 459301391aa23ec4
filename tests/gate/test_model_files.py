"""The shipped folder of the gate's model is whole: digest, sizes, names, labels, card.

This file reads files alone and knows no inference; what the model finds is measured in tools/gate.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import lily.gate
import numpy as np
import pytest
from lily.gate.categories import Category, Subject, Topic
from lily.tensorfile import read_header, to_float32
from tokenizers import Tokenizer

FOLDER = Path(lily.gate.__file__).parent / "models" / "lily_gate"
MAX_BYTES, MAX_PARAMETERS = 30_000_000, 30_000_000
GROUP = 64
WORD_GROUP = 32  # of the table of words, in 4 bits


@pytest.fixture(scope="module")
def config() -> dict:
    return json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tensors() -> dict:
    return read_header(FOLDER / "model.safetensors")


def expected_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Names and shapes of FORMAT.md; quantised matrices with their words, scales and biases."""
    hidden, inner = config["hidden"], config["intermediate"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.position.weight": (config["window_tokens"], hidden),
        "embeddings.form.weight": (config["forms"], hidden),
        "token.weight": (1 + 4 * len(config["labels"]), hidden),
        "token.bias": (1 + 4 * len(config["labels"]),),
        "document.dense.weight": (hidden, 2 * hidden),
        "document.dense.bias": (hidden,),
        "document.output.weight": (len(config["topics"]) + len(config["subjects"]), hidden),
        "document.output.bias": (len(config["topics"]) + len(config["subjects"]),),
    }
    matrices = {"embeddings.word": (config["vocab"], hidden)}
    norms = ["embeddings.norm"]
    for i in range(config["layers"]):
        for name in ("query", "key", "value", "output"):
            matrices[f"layers.{i}.attention.{name}"] = (hidden, hidden)
        matrices[f"layers.{i}.mlp.up"] = (inner, hidden)
        matrices[f"layers.{i}.mlp.down"] = (hidden, inner)
        norms += [f"layers.{i}.attention.norm", f"layers.{i}.mlp.norm"]
    for name, (rows, width) in matrices.items():
        bits, group = (4, WORD_GROUP) if name == "embeddings.word" else (8, GROUP)
        shapes[f"{name}.weight"] = (rows, width * bits // 32)
        shapes[f"{name}.scales"] = shapes[f"{name}.biases"] = (rows, width // group)
        if name != "embeddings.word":
            shapes[f"{name}.bias"] = (rows,)
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)
    return shapes


def test_digest_is_of_these_weights(config):
    digest = hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert config["weights_sha256"] == digest


def test_names_and_shapes_are_those_of_the_format(config, tensors):
    found = {name: tuple(source.shape) for name, source in tensors.items()}
    assert found == expected_shapes(config)


def test_is_small_enough(config):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MAX_BYTES
    parameters = 0
    for name, shape in expected_shapes(config).items():
        if name.endswith((".scales", ".biases")):
            continue
        packed = name.removesuffix("weight") + "scales" in expected_shapes(config)
        parameters += int(np.prod(shape)) * (4 if packed and name.endswith(".weight") else 1)
    assert parameters <= MAX_PARAMETERS


def test_every_number_is_finite(tensors):
    for name, source in tensors.items():
        if source.dtype == "U32":
            continue
        values = to_float32(source.array(), source.dtype)
        assert np.isfinite(values).all(), name
        assert np.abs(values).max() > 0, name


def test_labels_are_categories_in_their_order(config):
    order = [category.value for category in Category]
    places = [order.index(label) for label in config["labels"]]
    assert places == sorted(set(places))
    assert config["topics"] == [topic.value for topic in Topic]
    assert config["subjects"] == [subject.value for subject in Subject]


def test_calibration_names_every_label_and_topic(config):
    decode, document = config["decode"], config["document"]
    assert set(decode["label_offsets"]) == set(decode["thresholds"]) == set(config["labels"])
    assert all(0 <= value < 1 for value in decode["thresholds"].values())
    assert set(document["thresholds"]) == set(config["topics"])
    assert all(0 < value < 1 for value in document["thresholds"].values())
    assert document["topic_temperature"] > 0 < document["subject_temperature"]


def test_tokenizer_is_the_one_of_the_weights(config):
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == config["vocab"]
    ids = [tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[UNK]")]
    assert ids == [config["cls_id"], config["sep_id"], config["unk_id"]]
    long = tokenizer.encode("word " * 1000, add_special_tokens=False)
    assert len(long.ids) == 1000  # neither cut nor padded


def test_card_names_every_source_and_its_licence():
    text = "".join((FOLDER / name).read_text("utf-8") for name in ("MODEL_CARD.md", "NOTICE.md"))
    for source in ("MiniLM", "Faker", "TAB", "Broad Twitter", "WNUT", "MEDDOCAN", "CLINC150",
                   "Banking77", "presidio-research", "llmprivacy"):  # fmt: skip
        assert source in text
    for licence in ("Apache-2.0", "MIT", "CC BY 4.0", "CC BY 3.0"):
        assert licence in text
