"""The native encoder against the same network in float64, transformers' BertModel, and onnxruntime.

All run the same random weights. The tolerance: a float32 product of 100 terms is off by about 4 ULP
of its size, and two layers with six of them, a norm behind each, by about 1e-6 of logits of a few
units (measured: 1.3e-6 at most). Ten times that leaves room for other orders of summation; a wrong
term in a hundred is 1e-2.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from kernels.compare import BF16_ROUNDING
from kernels.conftest import gpus
from lily._native import Encoder
from lily.errors import InvalidInput

from gate.neural.models import EPS, Model

TOLERANCE = 1.5e-5
LENGTHS = [3, 16, 2, 7, 16, 16, 5]  # more than one thread computes alone


def assert_near(got: np.ndarray, want: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """NaN-proof."""
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    error = np.abs(got - want).max()
    assert error <= tolerance, f"off by {error:.2e}, expected at most {tolerance:.0e}"


@pytest.fixture(scope="module")
def model() -> Model:
    """A small one."""
    return Model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files."""
    return model.write(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_against_numpy(model, folder, threads):
    """Windows of several lengths in one call."""
    inputs = model.windows(np.random.default_rng(1), LENGTHS)
    encoder = Encoder(str(folder), threads=threads)
    for got, want in zip(encoder.run(*inputs), model.run(*inputs), strict=True):
        assert_near(got, want)


@pytest.mark.parametrize(
    "device", gpus() or [pytest.param("", marks=pytest.mark.skip(reason="no GPU device here"))]
)
def test_on_a_gpu(model, folder, device, monkeypatch, tmp_path):
    """The same operations there. Activations are bf16: each product's rows are rounded once."""
    monkeypatch.setenv("LILY_SIMULATED_METAL", "seed=1")  # read where there is no other Metal
    monkeypatch.setenv("HOME", str(tmp_path))  # of a device's caches
    inputs = model.windows(np.random.default_rng(2), LENGTHS)
    encoder = Encoder(str(folder), device=device)
    # 5 rounded inputs a layer; each moves a logit of 3 by a rounding at most, at random.
    tolerance = 3 * BF16_ROUNDING * np.sqrt(5 * model.layers)
    for got, want in zip(encoder.run(*inputs), model.run(*inputs), strict=True):
        assert_near(got, want, tolerance)


def test_more_windows_than_a_batch(model, folder):
    """A window's logits do not depend on those beside it, but for the order of sums."""
    lengths = [16, 9, 2] * 60
    ids, forms, sizes = model.windows(np.random.default_rng(3), lengths)
    encoder = Encoder(str(folder))
    tokens, documents = encoder.run(ids, forms, sizes)
    ends = np.cumsum(lengths)
    for index in (0, 1, 2, 100, 179):
        part = slice(ends[index] - lengths[index], ends[index])
        alone = encoder.run(ids[part], forms[part], sizes[index : index + 1])
        assert_near(tokens[part], alone[0])
        assert_near(documents[index : index + 1], alone[1])


def test_threads_take_turns(model, folder):
    """Callers from many threads get what they would get alone, to the bit."""
    encoder = Encoder(str(folder), threads=2)
    inputs = [model.windows(np.random.default_rng(seed), LENGTHS) for seed in range(4)]
    alone = [encoder.run(*each) for each in inputs]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(20):
            got = encoder.run(*inputs[index])
            if any(not np.array_equal(g, w) for g, w in zip(got, alone[index], strict=True)):
                wrong.append(index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not wrong


def test_refusals(model, folder):
    """What is out of range is refused before anything runs."""
    encoder = Encoder(str(folder))
    ids, forms, lengths = model.windows(np.random.default_rng(4), [5])
    big = np.array([len(model.words)] * 5, np.uint32)
    with pytest.raises(InvalidInput, match=r"id 0 is 4\d, expected at most"):
        encoder.run(big, forms, lengths)
    with pytest.raises(InvalidInput, match="form 0 is"):
        encoder.run(ids, big, lengths)
    with pytest.raises(InvalidInput, match=r"5 ids and 5 forms given, expected 4"):
        encoder.run(ids, forms, np.array([4], np.uint32))
    with pytest.raises(InvalidInput, match="length of window 0 is 17, expected at most 16"):
        encoder.run(ids, forms, np.array([17], np.uint32))
    with pytest.raises(InvalidInput, match="window 1 is empty"):
        encoder.run(ids, forms, np.array([5, 0], np.uint32))
    empty = np.zeros(0, np.uint32)
    tokens, documents = encoder.run(empty, empty, empty)
    assert tokens.shape == (0, 17)
    assert documents.shape == (0, 6)


# --- oracles ------------------------------------------------------------------------------------


def bert(model: Model):
    """transformers' BertModel with the model's weights; forms go through its token types."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    made = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(model.words), hidden_size=model.hidden, type_vocab_size=model.forms,
            num_hidden_layers=model.layers, num_attention_heads=model.heads,
            intermediate_size=model.intermediate, max_position_embeddings=model.window_tokens,
            layer_norm_eps=EPS,
        ),
        add_pooling_layer=False,
    ).eval()  # fmt: skip
    names = {
        "attention.query": "attention.self.query", "attention.key": "attention.self.key",
        "attention.value": "attention.self.value", "attention.output": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm", "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense", "mlp.norm": "output.LayerNorm",
    }  # fmt: skip
    state = {
        "embeddings.word_embeddings.weight": model.arrays["embeddings.word.weight"],
        "embeddings.position_embeddings.weight": model.arrays["embeddings.position.weight"],
        "embeddings.token_type_embeddings.weight": model.arrays["embeddings.form.weight"],
    }
    for part in ("weight", "bias"):
        state[f"embeddings.LayerNorm.{part}"] = model.arrays[f"embeddings.norm.{part}"]
        for index in range(model.layers):
            for own, theirs in names.items():
                array = model.arrays[f"layers.{index}.{own}.{part}"]
                state[f"encoder.layer.{index}.{theirs}.{part}"] = array
    tensors = {name: torch.tensor(array, dtype=torch.float32) for name, array in state.items()}
    missing = made.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"embeddings.position_ids", "embeddings.token_type_ids"}
    return made


def by_window(ids, forms, lengths):
    """int64 rows [1, tokens] of each window."""
    cuts = np.cumsum(lengths)[:-1]
    for some, shapes in zip(np.split(ids, cuts), np.split(forms, cuts), strict=True):
        yield some.astype(np.int64)[None], shapes.astype(np.int64)[None]


def test_against_transformers(model, folder):
    """The token logits, one window at a time there and all together here."""
    torch = pytest.importorskip("torch")
    oracle = bert(model)
    inputs = model.windows(np.random.default_rng(5), LENGTHS)
    rows = []
    for ids, forms in by_window(*inputs):
        with torch.no_grad():
            out = oracle(input_ids=torch.tensor(ids), token_type_ids=torch.tensor(forms))
        rows.append(out.last_hidden_state[0].numpy())
    head = model.arrays["token.weight"].T, model.arrays["token.bias"]
    tokens, _ = Encoder(str(folder)).run(*inputs)
    assert_near(tokens, np.concatenate(rows) @ head[0] + head[1])


def test_against_onnxruntime(model, folder, tmp_path):
    """The same network exported through torch, at one length."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch = pytest.importorskip("torch")
    inputs = model.windows(np.random.default_rng(6), [16])
    ((ids, forms),) = by_window(*inputs)
    oracle = bert(model)
    path = tmp_path / "bert.onnx"
    torch.onnx.export(
        oracle,
        (),
        str(path),
        kwargs={"input_ids": torch.tensor(ids), "token_type_ids": torch.tensor(forms)},
        dynamo=True,
        verbose=False,
    )
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    rows = session.run(None, dict(zip(names, (ids, forms), strict=True)))[0][0]
    tokens, _ = Encoder(str(folder)).run(*inputs)
    assert_near(tokens, rows @ model.arrays["token.weight"].T + model.arrays["token.bias"])
