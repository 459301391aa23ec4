"""Checks of the kernels that decode one token, at the shapes of a model.

Owns inputs, expected values and tolerances of each; knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lily._native import kernels as native
from lily.doctor import reference as ref
from lily.doctor.check import EPS, Check, Prepared
from lily.doctor.compare import EXACT, Rule, attended, cached, chained, single
from lily.doctor.layers import Attention, Delta, cursor
from lily.doctor.shapes import ModelShape
from lily.doctor.tensors import Array, Place, Weight, draw_weight, normal

_BLOCK = np.dtype(
    [("max_logit", "<f4"), ("sum_exp", "<f4"), ("num_candidates", "<u4"), ("reserved", "<u4"),
     ("ids", "<u4", native.CANDIDATES), ("logits", "<f4", native.CANDIDATES)]
)  # fmt: skip
_SAMPLED_BYTES = 16 + 8 * native.CANDIDATES
_HEAD_ROWS = 8192  # of lm_head at once in float64


def decode_checks(shape: ModelShape, contexts: Sequence[int]) -> list[Check]:
    """One check or more of every kernel of a decode step."""
    rows = {"delta in": shape.delta_rows, "attention in": shape.attention_rows}
    cols = {"delta out": shape.value_width, "attention out": shape.q_width}
    return [
        *(_linear_norm(shape, label, of) for label, of in rows.items()),
        *(_linear_add(shape, label, of) for label, of in cols.items()),
        _delta_step(shape),
        *(_attention(shape, context) for context in contexts),
        _router(shape),
        _gate_up(shape),
        _down(shape),
        _logits(shape),
        _draw(shape),
    ]


def gains(rng: np.random.Generator, count: int) -> Array:
    """Gains of a norm."""
    return rng.uniform(0.5, 1.5, count).astype(np.float32)


def _linear_norm(shape: ModelShape, label: str, rows: tuple[int, ...]) -> Check:
    hidden = shape.hidden

    def prepare(rng: np.random.Generator) -> Prepared:
        x, gain = normal(rng, 1, hidden) + np.float32(0.2), gains(rng, hidden)
        weights = [draw_weight(rng, "q4", count, hidden) for count in rows]

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.output("y", 1, sum(rows))
            matrices = [place.matrix(weight) for weight in weights]
            native.linear_norm(step, y, place.tensor(x), place.tensor(gain), EPS, matrices)

        def want() -> dict[str, Array]:
            normed = ref.rms_norm(x, gain, EPS)
            return {"y": np.concatenate([normed @ w.values().T for w in weights], 1)}

        return Prepared(record, want, lambda _: {"y": single(hidden)})

    size = sum(rows) * (hidden // 2 + hidden // 16)
    return Check("linear_norm", shape.name, f"{label} {sum(rows)}x{hidden}", prepare, size, size)


def _linear_add(shape: ModelShape, label: str, cols: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        x, before = normal(rng, 1, cols), normal(rng, 1, shape.hidden)
        weight = draw_weight(rng, "q4", shape.hidden, cols)

        def record(place: Place, step: native.Step, turn: int) -> None:
            native.linear_add(step, place.inout("y", before), place.tensor(x), place.matrix(weight))

        def want() -> dict[str, Array]:
            return {"y": before + ref.wide(x) @ weight.values().T}

        return Prepared(record, want, lambda _: {"y": single(cols)})

    size = shape.hidden * (cols // 2 + cols // 16)
    return Check("linear_add", shape.name, f"{label} {shape.hidden}x{cols}", prepare, size, size)


def _delta_step(shape: ModelShape) -> Check:
    position = 6

    def prepare(rng: np.random.Generator) -> Prepared:
        layer = Delta.draw(rng, shape, tokens=1)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.output("y", 1, shape.value_width)
            next_state = place.output("next_state", *layer.state.shape)
            native.delta_step(step, y, next_state, layer.on(place), cursor(place, position))

        def want() -> dict[str, Array]:
            found = layer.expected(position)
            states = {"state": layer.state, "next_state": found["state"]}
            return {"y": found["y"], "ring": found["ring"]} | states

        # The rule contracts its state; the norm after it divides by outputs that can be small.
        allowed = {"y": chained(), "next_state": chained(), "state": EXACT, "ring": EXACT}
        return Prepared(record, want, lambda _: allowed)

    state = 4 * shape.value_heads * shape.value_dim * shape.key_dim
    name = f"{shape.value_heads} heads {shape.value_dim}x{shape.key_dim}"
    return Check("delta_step", shape.name, name, prepare, state, 2 * state)


def _attention(shape: ModelShape, context: int) -> Check:
    position = context - 1

    def prepare(rng: np.random.Generator) -> Prepared:
        layer = Attention.draw(rng, shape, tokens=1, position=position, capacity=context + 3)

        def record(place: Place, step: native.Step, turn: int) -> None:
            tensors, at = layer.on(place), cursor(place, position)
            parts = place.device.zeros(
                [shape.q_heads, native.ATTENTION_MAX_SPLITS, shape.head_dim + 2]
            )
            y = place.output("y", 1, shape.q_width)
            native.attention_decode(step, parts, tensors, at)
            native.attention_merge(step, y, parts, tensors, at)

        def want() -> dict[str, Array]:
            caches = layer.appended(position)
            keys, values = (ref.wide(cache) for cache in caches)
            q, gate = layer.queries(position)
            return {
                "y": ref.attend(q, gate, keys, values, position),
                **dict(zip(("k_cache", "v_cache"), caches, strict=True)),
            }

        def rules(activation: str) -> dict[str, Rule]:
            return {"y": attended(activation), "k_cache": cached(), "v_cache": cached()}

        return Prepared(record, want, rules)

    size = 2 * 2 * context * shape.kv_heads * shape.head_dim
    name = f"context {context:,}"
    return Check("attention_decode", shape.name, name, prepare, size, size)


class _Experts:
    """One layer's weights: routed experts as far as a check reads them, the others in full."""

    def __init__(self, rng: np.random.Generator, shape: ModelShape) -> None:
        hidden, width, experts = shape.hidden, shape.width, shape.experts
        self.slots = shape.slots
        self.weights = {
            "router": draw_weight(rng, "q8", experts, hidden),
            "shared_router": draw_weight(rng, "q8", 1, hidden),
            "gate": draw_weight(rng, "q4", width, hidden, experts),
            "up": draw_weight(rng, "q4", width, hidden, experts),
            "down": draw_weight(rng, "q4", hidden, width, experts),
            "shared_gate": draw_weight(rng, "q4", width, hidden),
            "shared_up": draw_weight(rng, "q4", width, hidden),
            "shared_down": draw_weight(rng, "q4", hidden, width),
        }

    def on(self, place: Place) -> native.MoeWeights:
        matrices = {name: place.matrix(weight) for name, weight in self.weights.items()}
        return native.MoeWeights(**matrices, slots=self.slots)

    def swiglu(self, x: Array, prefix: str = "", expert: int = 0) -> Array:
        gate, up = (self.weights[f"{prefix}{name}"].values(expert) for name in ("gate", "up"))
        return ref.silu(x @ gate.T) * (x @ up.T)


def _experts_bytes(shape: ModelShape) -> int:
    return 3 * shape.experts * shape.width * (shape.hidden // 2 + shape.hidden // 16)


def _router(shape: ModelShape) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        experts = _Experts(rng, shape)
        x, gain = normal(rng, 1, shape.hidden), gains(rng, shape.hidden)

        def record(place: Place, step: native.Step, turn: int) -> None:
            logits = place.output("logits", 1, shape.experts + 1)
            act = place.output("shared_act", 1, shape.width)
            row, scale = place.tensor(x), place.tensor(gain)
            native.moe_router(step, logits, act, row, scale, EPS, experts.on(place))

        def want() -> dict[str, Array]:
            normed = ref.rms_norm(x, gain, EPS)
            both = [experts.weights[name].values() for name in ("router", "shared_router")]
            return {
                "logits": normed @ np.concatenate(both).T,
                "shared_act": experts.swiglu(normed, "shared_"),
            }

        rules = {"logits": single(shape.hidden), "shared_act": chained()}
        return Prepared(record, want, lambda _: rules)

    name = f"{shape.experts}+1 x {shape.hidden}"
    return Check("moe_router", shape.name, name, prepare, _experts_bytes(shape))


def _gate_up(shape: ModelShape) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        experts = _Experts(rng, shape)
        x, gain = normal(rng, 1, shape.hidden), gains(rng, shape.hidden)
        logits = normal(rng, 1, shape.experts + 1, scale=2)

        def record(place: Place, step: native.Step, turn: int) -> None:
            turned = np.roll(logits, turn * shape.slots, 1)
            act = place.output("act", shape.slots, shape.width)
            ids = place.output("ids", 1, shape.slots, dtype="u32")
            weights = place.output("weights", 1, shape.slots + 1)
            given, row, scale = (place.tensor(array) for array in (turned, x, gain))
            native.moe_gate_up(step, act, ids, weights, given, row, scale, EPS, experts.on(place))

        def want() -> dict[str, Array]:
            normed = ref.rms_norm(x, gain, EPS)
            ids, weights = ref.route(logits, shape.slots)
            act = np.concatenate([experts.swiglu(normed, expert=e) for e in ids[0]])
            return {"act": act, "ids": ids, "weights": weights}

        rules = {"act": chained(), "ids": EXACT, "weights": chained()}
        return Prepared(record, want, lambda _: rules, turns=shape.experts // shape.slots)

    moved = 2 * shape.slots * shape.width * (shape.hidden // 2 + shape.hidden // 16)
    name = f"{shape.slots} of {shape.experts} x {shape.width}x{shape.hidden}"
    return Check("moe_gate_up", shape.name, name, prepare, _experts_bytes(shape), moved)


def _down(shape: ModelShape) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        experts = _Experts(rng, shape)
        act, shared = normal(rng, shape.slots, shape.width), normal(rng, 1, shape.width)
        before = normal(rng, 1, shape.hidden)
        weights = rng.uniform(0, 0.3, (1, shape.slots + 1)).astype(np.float32)
        ids = rng.permutation(shape.experts)[None, : shape.slots].astype(np.uint32)

        def record(place: Place, step: native.Step, turn: int) -> None:
            turned = (ids + np.uint32(turn * shape.slots)) % np.uint32(shape.experts)
            logits = np.zeros((1, shape.experts + 1), np.float32)
            logits[0, turned[0]] = np.arange(shape.slots, 0, -1)  # which choose the same
            rows, row, found = place.tensor(act), place.tensor(shared), place.tensor(logits)
            chosen, shares = place.tensor(turned), place.tensor(weights)
            residual = place.inout("residual", before)
            native.moe_down(step, residual, rows, row, found, chosen, shares, experts.on(place))

        def want() -> dict[str, Array]:
            total = before + weights[0, -1] * (
                ref.wide(shared) @ experts.weights["shared_down"].values().T
            )
            for slot, expert in enumerate(ids[0]):
                down = experts.weights["down"].values(int(expert))
                total = total + weights[0, slot] * (down @ ref.wide(act[slot]))
            return {"residual": total}

        rules = {"residual": single((shape.slots + 1) * shape.width)}
        return Prepared(record, want, lambda _: rules, turns=shape.experts // shape.slots)

    moved = (shape.slots + 1) * shape.hidden * (shape.width // 2 + shape.width // 16)
    name = f"{shape.slots} of {shape.experts} x {shape.hidden}x{shape.width}"
    return Check("moe_down", shape.name, name, prepare, _experts_bytes(shape), moved)


def _products(x: Array, weight: Weight) -> Array:
    """x W^T of a weight that is too large to be decoded at once."""
    starts = range(0, weight.rows, _HEAD_ROWS)
    parts = [x @ weight.values(0, slice(at, at + _HEAD_ROWS)).T for at in starts]
    return np.concatenate(parts, 1)


def blocks_of(logits: Array) -> Array:
    """What sample_logits leaves for a row of logits."""
    rows = native.SAMPLE_BLOCK_ROWS
    starts = range(0, len(logits), rows)
    blocks = np.zeros(len(starts), _BLOCK)
    for block, start in zip(blocks, starts, strict=True):
        part = logits[start : start + rows]
        best = np.argsort(-part, kind="stable")[: native.CANDIDATES]
        block["max_logit"], block["num_candidates"] = part.max(), len(best)
        block["sum_exp"] = np.exp(ref.wide(part) - part.max()).sum()
        block["ids"][: len(best)], block["logits"][: len(best)] = best + start, part[best]
    return blocks


def _with_candidates(found: dict[str, Array]) -> dict[str, Array]:
    """Says of each block whether it holds the best of the device's own logits, in any order."""
    right = []
    blocks = np.frombuffer(found["blocks"].tobytes(), _BLOCK)
    for got, want in zip(blocks, blocks_of(found["logits"][0]), strict=True):
        count = want["num_candidates"]
        pairs = [
            set(zip(it["ids"][:count].tolist(), it["logits"][:count].tolist(), strict=True))
            for it in (got, want)
        ]
        same = got["num_candidates"] == count and got["max_logit"] == want["max_logit"]
        sums = bool(np.isclose(got["sum_exp"], want["sum_exp"], rtol=1e-5))
        right.append(bool(same) and sums and pairs[0] == pairs[1])
    return {"logits": found["logits"], "candidates": np.array(right)}


def _logits(shape: ModelShape) -> Check:
    count = -(-shape.vocab // native.SAMPLE_BLOCK_ROWS)

    def prepare(rng: np.random.Generator) -> Prepared:
        x, gain = normal(rng, 1, shape.hidden), gains(rng, shape.hidden)
        head = draw_weight(rng, "q4", shape.vocab, shape.hidden)

        def record(place: Place, step: native.Step, turn: int) -> None:
            logits = place.output("logits", 1, shape.vocab)
            blocks = place.output("blocks", count * _BLOCK.itemsize, dtype="u8")
            row, scale = place.tensor(x), place.tensor(gain)
            native.sample_logits(step, logits, blocks, row, scale, EPS, place.matrix(head))

        def want() -> dict[str, Array]:
            logits = _products(ref.rms_norm(x, gain, EPS), head)
            return {"logits": logits, "candidates": np.ones(count, bool)}

        rules = {"logits": single(shape.hidden), "candidates": EXACT}
        return Prepared(record, want, lambda _: rules, read=_with_candidates)

    size = shape.vocab * (shape.hidden // 2 + shape.hidden // 16)
    name = f"{shape.vocab:,}x{shape.hidden}"
    return Check("sample_logits", shape.name, name, prepare, size, size)


def _draw(shape: ModelShape) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        logits = normal(rng, shape.vocab, scale=3)

        def record(place: Place, step: native.Step, turn: int) -> None:
            # An all-zero Sampler is greedy.
            sampler = place.tensor(np.zeros(24, np.uint8))
            at = place.inout("cursor", np.array([77, 9, 0, 0], "<u4").view(np.uint8), "u8")
            result = place.output("result", _SAMPLED_BYTES, dtype="u8")
            blocks = place.tensor(blocks_of(logits).view(np.uint8))
            native.sample_draw(step, result, blocks, sampler, at, shape.vocab)

        def want() -> dict[str, Array]:
            token = int(np.argmax(logits))
            return {"cursor": np.array([token, 10, 0, 0], "<u4").view(np.uint8)}

        return Prepared(record, want, lambda _: {"cursor": EXACT})

    return Check("sample_draw", shape.name, f"greedy of {shape.vocab:,}", prepare, shape.vocab)
