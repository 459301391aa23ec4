"""Sampling: Philox by its published answers, filters by a naive reference, draws by chi-square."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from lily.errors import DeviceError, InvalidInput
from lily.sampling import (
    SamplingParams,
    draw,
    edit_logits,
    philox4x32,
    uniform_at,
)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [  # Random123's kat_vectors, philox4x32 10
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, answer):
    assert philox4x32(counter, key) == answer


def test_uniform_uses_all_of_seed_and_position():
    assert uniform_at(0, 0) == (0x6627E8D5 >> 8) / 2**24
    seeds = [0, 1, 2**32, 2**63, 2**64 - 1]
    places = [0, 1, 2**31, 2**33]
    assert len({uniform_at(seed, place) for seed in seeds for place in places}) == 20


def test_uniforms_are_uniform():
    values = [uniform_at(7, position) for position in range(20_000)]
    assert min(values) >= 0
    assert max(values) < 1
    assert scipy.stats.kstest(values, "uniform").pvalue > 1e-3


def naive(logits, params):
    """The kept tokens and their probabilities, in float64 and by definition. Slow and plain."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    top = float(logits[order[0]])
    weight = {i: math.exp((float(logits[i]) - top) / params.temperature) for i in order}
    if params.top_k:
        order = order[: params.top_k]
    mass = math.fsum(weight[i] for i in order)
    kept, reached = [], 0.0
    for i in order:
        kept.append(i)
        reached += weight[i]
        if params.top_p < 1 and reached >= params.top_p * mass:
            break
    best = weight[kept[0]]
    kept = [i for i in kept if weight[i] >= params.min_p * best]
    total = math.fsum(weight[i] for i in kept)
    return {i: weight[i] / total for i in kept}


def pick(probabilities, uniform):
    reached = 0.0
    for token, probability in probabilities.items():
        reached += probability
        if reached > uniform:
            return token
    return token


rows = st.lists(
    st.floats(-30, 30, width=32) | st.sampled_from([0.0, 1.0, -math.inf]), min_size=1, max_size=300
).filter(lambda row: max(row) > -math.inf)


@settings(max_examples=400)
@given(
    row=rows,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.0]),
    top_k=st.integers(0, 310),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**34),
)
def test_draw_is_the_naive_definition(row, temperature, top_k, top_p, min_p, seed, position):
    logits = np.array(row, np.float32)
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    )
    probabilities = naive(logits, params)
    token = draw(logits, params, position)
    uniform = uniform_at(seed, position)
    # Rounding may decide a draw, or a filter, that falls on an edge to within 1e-9.
    near = {pick(probabilities, uniform + shift) for shift in (-1e-9, 0, 1e-9)}
    edges = {
        pick(naive(logits, params.replace(top_p=min(1, max(0, top_p * scale)))), uniform)
        for scale in (1 - 1e-9, 1 + 1e-9)
    }
    assert token in near | edges


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 7},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"temperature": 1.7, "top_k": 150, "top_p": 0.95, "min_p": 0.01},
    ],
    ids=str,
)
def test_draws_follow_the_distribution(filters):
    logits = np.random.default_rng(3).normal(0, 2, 200).astype(np.float32)
    params = SamplingParams(**{"temperature": 1.0, **filters, "seed": 11})
    probabilities = naive(logits, params)
    drawn = [draw(logits, params, position) for position in range(20_000)]
    tokens = sorted(probabilities, key=lambda i: -probabilities[i])
    assert set(drawn) <= set(tokens)
    counts = np.array([drawn.count(token) for token in tokens], float)
    wanted = np.array([probabilities[token] for token in tokens]) * len(drawn)
    common = wanted >= 5  # chi-square needs cells of some size; the rest become one
    got = np.append(counts[common], counts[~common].sum())
    expected = np.append(wanted[common], wanted[~common].sum())
    if expected[-1] < 5:
        got, expected = got[:-1], expected[:-1] * got[:-1].sum() / expected[:-1].sum()
    assert scipy.stats.chisquare(got, expected).pvalue > 1e-3


def test_a_large_vocabulary_is_decided_beyond_the_first_candidates():
    logits = np.zeros(50_000, np.float32)
    params = SamplingParams(temperature=1, seed=5)
    for position in range(20):
        uniform = uniform_at(5, position)
        assert draw(logits, params, position) == int(uniform * 50_000)
    params = params.replace(top_p=0.5)
    assert draw(logits, params, 3) == int(uniform_at(5, 3) * 25_000)


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.5}, {"min_p": 0.7}, {"top_k": 900}], ids=str)
def test_filters_that_end_beyond_the_first_candidates(filters):
    logits = np.linspace(0, -1, 3000, dtype=np.float32)
    params = SamplingParams(**{"temperature": 1.0, **filters, "seed": 8})
    probabilities = naive(logits, params)
    for position in range(40):
        wanted = pick(probabilities, uniform_at(8, position))
        assert abs(draw(logits, params, position) - wanted) <= 1  # a draw on an edge may round


def test_greedy_takes_the_lower_id_of_equals():
    logits = np.array([1, 5, 5, 2], np.float32)
    assert draw(logits, SamplingParams(temperature=0), 0) == 1
    assert draw(logits, SamplingParams(temperature=1, top_k=1, seed=9), 0) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw(logits, SamplingParams(temperature=1e-308, seed=9), 0) in (1, 2)


def test_same_seed_same_draws():
    logits = np.random.default_rng(0).normal(size=100).astype(np.float32)

    def draws(seed):
        params = SamplingParams(temperature=1, seed=seed)
        return [draw(logits, params, position) for position in range(50)]

    assert draws(1) == draws(1) != draws(2)


def test_impossible_rows():
    params = SamplingParams(temperature=1, seed=0)
    with pytest.raises(DeviceError, match="NaN at token 1"):
        draw(np.array([9, np.nan], np.float32), params, 0)
    with pytest.raises(InvalidInput, match="every token is excluded"):
        draw(np.full(3, -np.inf, np.float32), params, 0)
    with pytest.raises(InvalidInput, match="seed"):
        draw(np.zeros(3, np.float32), SamplingParams(temperature=1), 0)
    assert draw(np.array([0, np.inf], np.float32), params, 0) == 1


def edited(logits, params, prompt, answer):
    return edit_logits(logits, params, np.array(prompt, np.int64), answer)


def test_penalties():
    logits = np.array([2.0, -2.0, 1.0, 3.0], np.float32)
    params = SamplingParams(repetition_penalty=2.0)
    row = edited(logits, params, [0, 1, 0], [2])
    assert row.tolist() == [1.0, -4.0, 0.5, 3.0]
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    row = edited(logits, params, [3, 3, 3], [0, 2, 2])
    assert row.tolist() == [2 - 0.75, -2.0, 1 - 1.0, 3.0]
    params = SamplingParams(logit_bias={1: 4.0, 3: -1.5})
    assert edited(logits, params, [0], []).tolist() == [2.0, 2.0, 1.0, 1.5]
    assert logits.tolist() == [2.0, -2.0, 1.0, 3.0]


def test_processors_run_last_and_in_order():
    calls = []

    def record(ids, logits):
        calls.append((list(ids), logits.tolist()))
        return logits + 1

    params = SamplingParams(logit_bias={0: 5}, logits_processors=[record, record])
    row = edited(np.zeros(2, np.float32), params, [1], [0])
    assert calls == [([1, 0], [5, 0]), ([1, 0], [6, 1])]
    assert row.tolist() == [7, 2]
    params = SamplingParams(logits_processors=[lambda ids, logits: logits[:1]])
    with pytest.raises(InvalidInput, match=r"shape \(1,\), expected \(2,\)"):
        edited(np.zeros(2, np.float32), params, [1], [])
    with pytest.raises(InvalidInput, match="token 7"):
        edited(np.zeros(2, np.float32), SamplingParams(logit_bias={7: 1}), [1], [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 1.01),
        ("top_p", -0.1),
        ("min_p", 1.01),
        ("repetition_penalty", 0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", None),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.0),
        ("max_tokens", 0),
        ("top_logprobs", 21),
        ("top_logprobs", 5),  # without logprobs
        ("logprobs", 1),
        ("ignore_eos", "yes"),
        ("stop", [""]),
        ("stop", [1]),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"1": 1.0}),
        ("logit_bias", 5),
        ("logits_processors", [5]),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(InvalidInput, match=name):
        SamplingParams(**{name: value})


def test_good_values_and_copies():
    params = SamplingParams(stop="END", temperature=1, seed=np.int64(3).item())
    assert params.stop == ("END",)
    changed = params.replace(top_p=0.5)
    assert (changed.top_p, changed.stop, params.top_p) == (0.5, ("END",), 1.0)
    with pytest.raises(InvalidInput, match=r"temprature.*temperature"):
        params.replace(temprature=1)


def test_generation_config():
    read = SamplingParams.from_generation_config
    found = read({"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "eos": 3})
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.7, 20, 0.8, 0.0)
    assert read({"do_sample": False, "temperature": 0.7}).temperature == 0
    assert read({}) == SamplingParams()
