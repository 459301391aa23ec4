"""sample: the best candidates of a row, the draw that feeds itself back, and scores of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, poison
from kernels.compare import assert_close, assert_same_bits, sum_tolerance
from kernels.draw import Filters, draw, philox, ranked, survivors, uniform
from kernels.layers import CURSOR, cursor_at
from kernels.refusals import assert_refused, tensors_of
from kernels.weights import STORAGES, Weight, make_weight

CANDIDATES, BLOCK_ROWS, EPS = native.CANDIDATES, native.SAMPLE_BLOCK_ROWS, 1e-6
VOCABS = [1, 5, 63, 64, 65, 1000, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 5003]

# The structs of metal/params.h.
SAMPLER = np.dtype(
    [("temperature", "<f4"), ("top_p", "<f4"), ("min_p", "<f4"), ("top_k", "<u4"),
     ("seed_low", "<u4"), ("seed_high", "<u4")]
)  # fmt: skip
SAMPLED = np.dtype(
    [("token_id", "<u4"), ("exact", "<u4"), ("num_candidates", "<u4"), ("logsumexp", "<f4"),
     ("ids", "<u4", CANDIDATES), ("logits", "<f4", CANDIDATES)]
)  # fmt: skip
BLOCK = np.dtype(
    [("max_logit", "<f4"), ("sum_exp", "<f4"), ("num_candidates", "<u4"), ("reserved", "<u4"),
     ("ids", "<u4", CANDIDATES), ("logits", "<f4", CANDIDATES)]
)  # fmt: skip


def read(tensor: native.Tensor, dtype: np.dtype) -> np.ndarray:
    """The structs in a tensor of bytes."""
    return np.frombuffer(tensor.numpy().tobytes(), dtype)


def blocks_of(logits: np.ndarray) -> np.ndarray:
    """What sample_logits leaves for a row, with poison behind the candidates."""
    starts = range(0, len(logits), BLOCK_ROWS)
    blocks = np.frombuffer(poison(len(starts) * BLOCK.itemsize // 4, "f32").tobytes(), BLOCK).copy()
    for block, start in zip(blocks, starts, strict=True):
        part = logits[start : start + BLOCK_ROWS]
        best = ranked(part)[:CANDIDATES]
        block["max_logit"] = part.max()
        block["sum_exp"] = np.exp(reference.f64(part) - part.max()).sum()
        block["num_candidates"] = len(best)
        block["ids"][: len(best)] = best + start
        block["logits"][: len(best)] = part[best]
    return blocks


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    wide = reference.f64(logits)
    top = wide.max(-1, keepdims=True)
    return (top + np.log(np.exp(wide - top).sum(-1, keepdims=True)))[..., 0]


# --- logits and their candidates --------------------------------------------------------------


def run_logits(
    device: native.Device, x: np.ndarray, gain: np.ndarray, head: Weight
) -> tuple[np.ndarray, np.ndarray]:
    """(logits, blocks)."""
    arena = Arena(device)
    vocab = len(head.values)
    logits = arena.output(1, vocab)
    count = -(-vocab // BLOCK_ROWS)
    blocks = arena.output(count * BLOCK.itemsize, dtype="u8")
    matrix = arena.matrix(head)
    arena.run(native.sample_logits, logits, blocks, arena.input(x), arena.input(gain), EPS, matrix)
    return logits.numpy(), read(blocks, BLOCK)


def assert_blocks(blocks: np.ndarray, logits: np.ndarray) -> None:
    """Blocks against the device's own logits, so that candidates can be exact; any order."""
    for got, want in zip(blocks, blocks_of(logits), strict=True):
        count = int(want["num_candidates"])
        assert got["num_candidates"] == count
        assert got["max_logit"] == want["max_logit"]
        assert_close(got["sum_exp"], want["sum_exp"], tolerance=sum_tolerance(BLOCK_ROWS))
        pairs = [
            sorted(zip(it["ids"][:count].tolist(), it["logits"][:count].tolist(), strict=True))
            for it in (got, want)
        ]
        assert pairs[0] == pairs[1]


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize(("storage", "group"), [("f32", 0), ("bf16", 0), ("q4", 64), ("q8", 32)])
def test_logits(device, rng, storage, group, vocab):
    """Vocabularies below, at and beyond one list of candidates and one block."""
    hidden = 3 * group or 100
    head = make_weight(rng, storage, group, (vocab, hidden), scale=0.3)
    x = (rng.standard_normal((1, hidden)) + 0.2).astype(np.float32)
    gain = rng.uniform(0.5, 1.5, hidden).astype(np.float32)
    logits, blocks = run_logits(device, x, gain, head)
    normed = reference.rms_norm(x, gain, EPS)
    magnitude = np.abs(normed) @ head.magnitude.T
    tolerance = sum_tolerance(2 * hidden)
    assert_close(logits, normed @ head.values.T, tolerance=tolerance, magnitude=magnitude)
    assert_blocks(blocks, logits[0])


@pytest.mark.parametrize("vocab", [100, BLOCK_ROWS + 1])
def test_candidates_of_ties(device, vocab):
    """Among equal logits the lowest ids are kept."""
    head = Weight("f32", 0, np.ones((vocab, 4), np.float32), None, None,
                  np.ones((vocab, 4)), np.ones((vocab, 4)))  # fmt: skip
    head.data[::3] = 2
    ones = np.ones(4, np.float32)
    logits, blocks = run_logits(device, ones[None], ones, head)
    assert len(np.unique(logits)) == 2
    assert_blocks(blocks, logits[0])


# --- the draw ---------------------------------------------------------------------------------


def run_draw(
    device: native.Device, logits: np.ndarray, filters: Filters, position: int
) -> tuple[np.void, np.void]:
    """(Sampled, Cursor) after a draw at the cursor's position + 1."""
    arena = Arena(device)
    sampler = np.zeros(1, SAMPLER)
    for name in ("temperature", "top_p", "min_p", "top_k"):
        sampler[name] = getattr(filters, name)
    sampler["seed_low"], sampler["seed_high"] = filters.seed & 0xFFFFFFFF, filters.seed >> 32
    result = arena.output(SAMPLED.itemsize, dtype="u8")
    cursor = arena.record(cursor_at(position, token_id=77))
    blocks, settings = (
        arena.input(np.frombuffer(structs.tobytes(), np.uint8))
        for structs in (blocks_of(logits), sampler)
    )
    arena.run(native.sample_draw, result, blocks, settings, cursor, len(logits))
    return read(result, SAMPLED)[0], read(cursor, CURSOR)[0]


def random_logits(rng: np.random.Generator, vocab: int, spread: float) -> np.ndarray:
    """A row as a model gives it: a few likely tokens and a long tail."""
    return (rng.standard_normal(vocab) * spread).astype(np.float32)


def acceptable(logits: np.ndarray, filters: Filters, position: int) -> set[int]:
    """The token of the whole row, and its neighbours if float32 may fall on their side."""
    random, near = uniform(filters.seed, position), 2e-6
    tokens = set()
    for shift in (-near, 0, near):
        shifted = min(max(random + shift, 0.0), 1 - 2.0**-24)
        for change in (-near, 0, near) if filters.top_p < 1 else (0,):
            changed = {"top_p": filters.top_p + change}
            tokens.add(draw(logits, Filters(**{**vars(filters), **changed}), shifted))
    return tokens


def assert_drawn(device, logits, filters, position, *, exact: bool | None) -> bool:
    """A draw against the whole row. `exact` None: the device may say, but must be right."""
    sampled, cursor = run_draw(device, logits, filters, position)
    count = min(CANDIDATES, len(logits))
    assert sampled["num_candidates"] == count
    best = ranked(logits)[:count]
    np.testing.assert_array_equal(sampled["ids"][:count], best)
    np.testing.assert_array_equal(sampled["logits"][:count], logits[best])
    assert_close(sampled["logsumexp"], log_sum_exp(logits), tolerance=2e-6)
    assert sampled["exact"] in (0, 1)
    if exact is not None:
        assert sampled["exact"] == exact
    if sampled["exact"]:
        assert int(sampled["token_id"]) in acceptable(logits, filters, position + 1)
        assert cursor["token_id"] == sampled["token_id"]
        assert cursor["position"] == position + 1
    return bool(sampled["exact"])


def test_philox():
    """Known answers of Random123 for Philox4x32-10."""
    full = 0xFFFFFFFF
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((full,) * 4, (full, full)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert philox(*pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


@pytest.mark.parametrize("vocab", VOCABS)
def test_greedy(device, rng, vocab):
    """Temperature 0 is the arg-max whatever the filters say; ties go to the lower id."""
    logits = random_logits(rng, vocab, 3)
    loose = Filters(temperature=0, top_p=0.1, min_p=0.5, top_k=3, seed=9)
    assert_drawn(device, logits, loose, 5, exact=True)
    tied = rng.integers(0, 3, vocab).astype(np.float32)
    assert_drawn(device, tied, Filters(temperature=0), 5, exact=True)


ON_CANDIDATES = [
    Filters(top_k=1, seed=1),
    Filters(top_k=20, seed=2),
    Filters(top_k=64, seed=3),
    Filters(top_k=40, top_p=0.8, seed=4),
    Filters(top_k=20, top_p=0.95, temperature=0.7, seed=5),
    Filters(top_k=20, top_p=0.5, temperature=1.5, min_p=0.1, seed=2**63 + 6),
    Filters(top_k=64, min_p=0.05, temperature=0.3, seed=2**40),
]


@pytest.mark.parametrize("filters", ON_CANDIDATES)
@pytest.mark.parametrize("vocab", [1, 5, 64, 65, 1000, 5003])
def test_draw_within_candidates(device, rng, vocab, filters):
    """top-k up to 64 needs no more than the candidates, so the draw is exact."""
    for position in (0, 1, 7, 1000, 262_142):
        logits = random_logits(rng, vocab, 2)
        assert_drawn(device, logits, filters, position, exact=True)


@pytest.mark.parametrize(
    "filters",
    [Filters(seed=1), Filters(top_p=0.9, seed=2), Filters(top_k=80, seed=3), Filters(min_p=0.2)],
)
def test_draw_from_small_vocab(device, rng, filters):
    """Candidates are everything where the vocabulary has no more than 64."""
    for vocab in (1, 2, 63, 64):
        assert_drawn(device, random_logits(rng, vocab, 2), filters, 12, exact=True)


def test_inexact_when_filters_are_off(device, rng):
    """A whole row cannot be drawn from 64 of it: the device must say so."""
    logits = random_logits(rng, 5003, 1)
    for filters in (
        Filters(top_k=65),
        Filters(top_k=5000),
        Filters(temperature=0.8),
        Filters(top_p=0.99),
        Filters(top_p=0.9, temperature=1.4),
        Filters(min_p=1e-6),
        Filters(top_k=200, top_p=0.99),
    ):
        assert len(survivors(logits, filters)[0]) > CANDIDATES
        assert_drawn(device, logits, filters, 3, exact=False)


def test_unfiltered_draws_are_exact_where_they_fall_on_a_candidate(device, rng):
    """At temperature 1 the row's mass is known, so only draws beyond the candidates are not."""
    logits = random_logits(rng, 5003, 2)
    flags = [
        assert_drawn(device, logits, Filters(seed=seed), 9 + seed, exact=None) for seed in range(40)
    ]
    assert any(flags)
    assert not all(flags)


def test_exact_nucleus(device, rng):
    """With top-k off, a nucleus well inside the candidates is drawn on the device."""
    for seed in range(8):
        logits = random_logits(rng, 5003, 1)
        logits[rng.integers(0, 5003, 9)] += 14
        filters = Filters(top_p=0.9, seed=seed)
        assert len(survivors(logits, filters)[0]) < CANDIDATES / 2
        assert_drawn(device, logits, filters, 40 + seed, exact=True)


def test_exact_min_p(device, rng):
    """With all else off, min-p decides on the candidates if the last of them falls below it."""
    for seed in range(8):
        logits = random_logits(rng, 5003, 1)
        logits[rng.integers(0, 5003, 9)] += 9
        filters = Filters(min_p=0.1, seed=seed, temperature=0.9)
        assert len(survivors(logits, filters)[0]) < CANDIDATES
        assert_drawn(device, logits, filters, seed, exact=True)


def test_never_wrong_when_exact(device, rng):
    """Any filters, any row: a draw that calls itself exact is the whole row's."""
    exact = 0
    for _ in range(100):
        filters = Filters(
            temperature=float(np.float32(rng.choice([0.0, 0.2, 0.7, 1.0, 1.3, 2.0]))),
            top_k=int(rng.choice([0, 0, 1, 5, 40, 64, 65, 100, 1000])),
            top_p=float(np.float32(rng.choice([1.0, 1.0, 0.99, 0.9, 0.5, 0.1]))),
            min_p=float(np.float32(rng.choice([0.0, 0.0, 0.01, 0.1, 0.9]))),
            seed=int(rng.integers(0, 2**63)),
        )
        vocab = int(rng.choice([3, 64, 65, 700, 4100]))
        logits = random_logits(rng, vocab, float(rng.choice([0.5, 2.0, 6.0])))
        position = int(rng.integers(0, 250_000))
        exact += assert_drawn(device, logits, filters, position, exact=None)
    assert exact > 50


def test_draws_follow_the_distribution(thread_counts):
    """Chi-square of 1,000 draws at consecutive positions, one seed."""
    scipy_stats = pytest.importorskip("scipy.stats")
    logits = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], np.float32))
    filters = Filters(top_k=5, seed=123)
    counts = np.zeros(5)
    for position in range(1000):
        drawn, _ = run_draw(thread_counts[0], logits, filters, position)
        counts[int(drawn["token_id"])] += 1
    weights = np.exp(reference.f64(logits))
    assert scipy_stats.chisquare(counts, 1000 * weights / weights.sum()).pvalue > 1e-3


@pytest.mark.parametrize("offset", [-1e4, 1e4])
def test_large_logits(device, rng, offset):
    """Only differences matter."""
    logits = random_logits(rng, 1000, 3) + np.float32(offset)
    assert_drawn(device, logits, Filters(top_k=30, top_p=0.9, seed=8), 4, exact=True)


# --- scores -----------------------------------------------------------------------------------


def run_score(
    device: native.Device, logits: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(logprobs, best)."""
    arena = Arena(device)
    logprobs, best = arena.output(len(logits)), arena.output(len(logits), dtype="u32")
    arena.run(native.sample_score, logprobs, best, arena.input(logits), arena.input(targets))
    return logprobs.numpy(), best.numpy()


@pytest.mark.parametrize("tokens", [1, 2, 7, 33])
@pytest.mark.parametrize("vocab", [1, 5, 31, 64, 1000, 4099])
def test_score(device, rng, vocab, tokens):
    """Log-probabilities and arg-max, with ties and large offsets among the rows."""
    logits = rng.standard_normal((tokens, vocab)).astype(np.float32) * 4
    logits[-1] = np.round(logits[-1])
    logits[0] += 1000
    targets = rng.integers(0, vocab, tokens, dtype=np.uint32)
    targets[0] = vocab - 1
    logprobs, best = run_score(device, logits, targets)
    chosen = reference.f64(logits)[np.arange(tokens), targets]
    np.testing.assert_array_equal(best, logits.argmax(-1))
    # Logits near 1,000 have float32 spacing 6e-5 in the log-sum-exp.
    bound = sum_tolerance(vocab) * (1 + np.abs(chosen)) + 1e-6
    assert_close(logprobs, chosen - log_sum_exp(logits), tolerance=1, magnitude=bound, nmse=1e-6)


def test_thread_counts_agree(thread_counts, rng):
    """Neither sums nor candidates depend on who computed them."""
    head = make_weight(rng, "q4", 64, (5003, 192), scale=0.3)
    x = rng.standard_normal((1, 192)).astype(np.float32)
    gain, scores = np.ones(192, np.float32), rng.standard_normal((9, 1000)).astype(np.float32)
    results = []
    for device in thread_counts:
        logits, blocks = run_logits(device, x, gain, head)
        kept = [block["logits"][: block["num_candidates"]] for block in blocks]
        results.append(
            {
                "logits": logits,
                "sums": blocks["sum_exp"].copy(),
                "candidates": np.concatenate(kept),
                "scores": run_score(device, scores, np.arange(9, dtype=np.uint32))[0],
            }
        )
    assert_same_bits(results)


def test_refusals(host, rng):
    """Each wrong tensor is named."""
    arena = Arena(host)

    def structs(dtype, count=1):
        return arena.output(dtype.itemsize * count, dtype="u8")

    head = arena.matrix(make_weight(rng, *STORAGES[3], (BLOCK_ROWS + 1, 64), scale=1.0))
    x, gain = arena.output(1, 64), arena.output(64)
    valid = {
        "logits": arena.output(1, BLOCK_ROWS + 1),
        "blocks": structs(BLOCK, 2),
        "x": x,
        "gain": gain,
    }
    valid |= {"eps": EPS, "lm_head": head}
    assert_refused(native.sample_logits, valid, tensors_of(valid))
    one = valid | {"blocks": structs(BLOCK)}
    assert_refused(native.sample_logits, one, "blocks has 528 bytes, expected 1,056")
    valid = {
        "result": structs(SAMPLED),
        "blocks": structs(BLOCK, 2),
        "sampler": structs(SAMPLER),
        "cursor": structs(CURSOR),
        "vocab": BLOCK_ROWS + 1,
    }
    assert_refused(native.sample_draw, valid, tensors_of(valid))
    assert_refused(
        native.sample_draw, valid | {"vocab": BLOCK_ROWS}, "blocks has 1,056 bytes, expected"
    )
    valid = {
        "logprobs": arena.output(3),
        "best": arena.output(3, dtype="u32"),
        "logits": arena.output(3, 9),
        "targets": arena.output(3, dtype="u32"),
    }
    assert_refused(native.sample_score, valid, tensors_of(valid))
