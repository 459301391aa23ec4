"""Checks of the kernels that read a chunk of a prompt, at the shapes of a model.

Owns inputs, expected values and tolerances of each; knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lily._native import kernels as native
from lily.doctor import reference as ref
from lily.doctor.check import EPS, Check, Prepared
from lily.doctor.compare import EXACT, Rule, attended, cached, chained, mixed, rounded, single
from lily.doctor.layers import Attention, Delta
from lily.doctor.shapes import ModelShape
from lily.doctor.tensors import Array, Place, draw_weight, normal, numbers

_SCORED = 3


def prefill_checks(shape: ModelShape, tokens: Sequence[int], position: int) -> list[Check]:
    """One check or more of every kernel of a chunk; products at every number of tokens."""
    longest = tokens[-1]
    checks = [_embed(shape, longest), _norm(shape, longest)]
    for count in tokens:
        checks += [_linear(shape, count), _linear_add(shape, count)]
        checks += [_grouped_gate_up(shape, count), _grouped_down(shape, count)]
    checks += [_rope(shape, longest), _attention(shape, longest, 0)]
    checks += [_attention(shape, longest, position), _delta_conv(shape, longest)]
    checks += [_delta_chunk(shape, longest), _route(shape, longest), _sort(shape, longest)]
    return [*checks, _combine(shape, longest), _score(shape)]


def _q4_bytes(rows: int, cols: int) -> int:
    return rows * (cols // 2 + cols // 16)


def _embed(shape: ModelShape, tokens: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        ids = rng.integers(0, shape.vocab, tokens, dtype=np.uint32)
        table = draw_weight(rng, "q4", shape.vocab, shape.hidden)

        def record(place: Place, step: native.Step, turn: int) -> None:
            hidden = place.output("hidden", tokens, shape.hidden)
            native.embed_rows(step, hidden, place.tensor(ids), place.matrix(table))

        def want() -> dict[str, Array]:
            rows = [table.values(0, slice(int(i), int(i) + 1)) for i in ids]
            return {"hidden": np.concatenate(rows)}

        return Prepared(record, want, lambda _: {"hidden": single(1)})

    name = f"{tokens} of {shape.vocab:,}"
    return Check("embed_rows", shape.name, name, prepare, _q4_bytes(shape.vocab, shape.hidden))


def _norm(shape: ModelShape, tokens: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        x, gain = normal(rng, tokens, shape.hidden, scale=3), normal(rng, shape.hidden)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", tokens, shape.hidden)
            native.norm_rms(step, y, place.tensor(x), place.tensor(gain), EPS)

        def want() -> dict[str, Array]:
            return {"y": ref.rms_norm(x, gain, EPS)}

        return Prepared(record, want, lambda act: {"y": rounded(single(shape.hidden), act)})

    return Check("norm_rms", shape.name, f"{tokens}x{shape.hidden}", prepare, 1 << 24)


def _linear(shape: ModelShape, tokens: int) -> Check:
    rows, cols = shape.delta_rows, shape.hidden

    def prepare(rng: np.random.Generator) -> Prepared:
        x = normal(rng, tokens, cols) + np.float32(0.2)
        weights = [draw_weight(rng, "q4", count, cols) for count in rows]

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.output("y", tokens, sum(rows))
            native.linear(step, y, place.activation(x), [place.matrix(w) for w in weights])

        def want() -> dict[str, Array]:
            return {"y": np.concatenate([ref.wide(x) @ w.values().T for w in weights], 1)}

        return Prepared(record, want, lambda act: {"y": mixed(cols, act)})

    name = f"{tokens} x {sum(rows)}x{cols}"
    size, flops = _q4_bytes(sum(rows), cols), 2 * tokens * sum(rows) * cols
    return Check("linear", shape.name, name, prepare, size, size, flops)


def _linear_add(shape: ModelShape, tokens: int) -> Check:
    rows, cols = shape.hidden, shape.value_width

    def prepare(rng: np.random.Generator) -> Prepared:
        x, before = normal(rng, tokens, cols), normal(rng, tokens, rows)
        weight = draw_weight(rng, "q4", rows, cols)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.inout("y", before)
            native.linear_add(step, y, place.activation(x), place.matrix(weight))

        def want() -> dict[str, Array]:
            return {"y": before + ref.wide(x) @ weight.values().T}

        return Prepared(record, want, lambda act: {"y": mixed(cols, act)})

    name = f"{tokens} x {rows}x{cols}"
    return Check("linear_add", shape.name, name, prepare, _q4_bytes(rows, cols))


def _choices(rng: np.random.Generator, shape: ModelShape, tokens: int) -> Array:
    """Different experts for every token; the first is nobody's, where that can be."""
    least = 1 if shape.experts > shape.slots else 0
    order = np.argsort(rng.random((tokens, shape.experts - least)), axis=-1)
    return (order[:, : shape.slots] + least).astype(np.uint32)


def _sorted(shape: ModelShape, ids: Array) -> tuple[Array, Array]:
    """(order, offsets) of a stable sort by expert."""
    flat = ids.ravel()
    counts = np.bincount(flat, minlength=shape.experts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    return np.argsort(flat, kind="stable").astype(np.uint32), offsets


def _grouped_gate_up(shape: ModelShape, tokens: int) -> Check:
    slots, width, hidden = shape.slots, shape.width, shape.hidden

    def prepare(rng: np.random.Generator) -> Prepared:
        x, ids = normal(rng, tokens, hidden), _choices(rng, shape, tokens)
        order, offsets = _sorted(shape, ids)
        gate, up = (draw_weight(rng, "q4", width, hidden, shape.experts) for _ in range(2))

        def record(place: Place, step: native.Step, turn: int) -> None:
            act = place.activation_output("act", tokens * slots, width)
            inputs = place.activation(x), place.tensor(order), place.tensor(offsets)
            matrices = place.matrix(gate), place.matrix(up)
            native.moe_grouped_gate_up(step, act, *inputs, *matrices, slots)

        def want() -> dict[str, Array]:
            found = np.empty((tokens * slots, width))
            for expert in np.unique(ids):
                here = slice(offsets[expert], offsets[expert + 1])
                rows = ref.wide(x[order[here] // slots])
                products = [rows @ w.values(int(expert)).T for w in (gate, up)]
                found[here] = ref.silu(products[0]) * products[1]
            return {"act": found}

        # Gate, up and their product are each rounded or made of what is.
        return Prepared(record, want, lambda act: {"act": mixed(hidden, act, 4)})

    name = f"{tokens} x {slots} of {shape.experts} x {width}x{hidden}"
    size = 2 * shape.experts * _q4_bytes(width, hidden)
    flops = 4 * tokens * slots * width * hidden
    return Check("moe_grouped_gate_up", shape.name, name, prepare, size, size, flops)


def _grouped_down(shape: ModelShape, tokens: int) -> Check:
    slots, width, hidden = shape.slots, shape.width, shape.hidden

    def prepare(rng: np.random.Generator) -> Prepared:
        act, ids = normal(rng, tokens * slots, width), _choices(rng, shape, tokens)
        order, offsets = _sorted(shape, ids)
        down = draw_weight(rng, "q4", hidden, width, shape.experts)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.output("y", tokens * slots, hidden)
            inputs = place.activation(act), place.tensor(order), place.tensor(offsets)
            native.moe_grouped_down(step, y, *inputs, place.matrix(down))

        def want() -> dict[str, Array]:
            found = np.empty((tokens * slots, hidden))
            for expert in np.unique(ids):
                here = slice(offsets[expert], offsets[expert + 1])
                found[order[here]] = ref.wide(act[here]) @ down.values(int(expert)).T
            return {"y": found}

        return Prepared(record, want, lambda act_type: {"y": mixed(width, act_type)})

    name = f"{tokens} x {slots} of {shape.experts} x {hidden}x{width}"
    size = shape.experts * _q4_bytes(hidden, width)
    return Check("moe_grouped_down", shape.name, name, prepare, size)


def _rope(shape: ModelShape, tokens: int) -> Check:
    position = 5

    def prepare(rng: np.random.Generator) -> Prepared:
        layer = Attention.draw(
            rng, shape, tokens=tokens, position=position, capacity=position + tokens + 3
        )

        def record(place: Place, step: native.Step, turn: int) -> None:
            q = place.activation_output("q", tokens, shape.q_heads, shape.head_dim)
            native.rope_append(step, q, layer.on(place), position)

        def want() -> dict[str, Array]:
            k, v = layer.appended(position)
            return {"q": layer.queries(position)[0], "k_cache": k, "v_cache": v}

        def rules(activation: str) -> dict[str, Rule]:
            q = rounded(single(shape.head_dim), activation)
            return {"q": q, "k_cache": cached(), "v_cache": cached()}

        return Prepared(record, want, rules)

    return Check("rope_append", shape.name, f"{tokens} at {position}", prepare, 1 << 24)


def _attention(shape: ModelShape, tokens: int, position: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        end = position + tokens
        layer = Attention.draw(rng, shape, tokens=tokens, position=end, capacity=end + 3)
        q = normal(rng, tokens, shape.q_heads, shape.head_dim, scale=1.5)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", tokens, shape.q_width)
            tensors = layer.on(place, appends=False)
            native.attention_prefill(step, y, place.activation(q), tensors, position)

        def want() -> dict[str, Array]:
            keys, values = (ref.wide(numbers(c, "bf16")) for c in layer.caches)
            _, gates = layer.queries(position)
            return {"y": ref.attend(ref.wide(q), gates, keys, values, position)}

        return Prepared(record, want, lambda act: {"y": attended(act)})

    seen = tokens * position + tokens * (tokens + 1) // 2
    flops = 4 * seen * shape.q_width if position else 0
    name = f"{tokens} at {position:,}"
    size = 4 * (position + tokens) * shape.kv_heads * shape.head_dim
    return Check("attention_prefill", shape.name, name, prepare, size, size, flops)


def _delta_conv(shape: ModelShape, tokens: int) -> Check:
    position = 6

    def prepare(rng: np.random.Generator) -> Prepared:
        layer = Delta.draw(rng, shape, tokens=tokens)

        def record(place: Place, step: native.Step, turn: int) -> None:
            qkv = place.output("qkv", tokens, shape.channels)
            gates = place.output("gates", tokens, 2, shape.value_heads)
            native.delta_conv(step, qkv, gates, layer.on(place), position)

        def want() -> dict[str, Array]:
            q, k, v, decay, beta = layer.mixed(position)
            flat = [part.reshape(tokens, -1) for part in (q, k, v)]
            return {"qkv": np.concatenate(flat, 1), "gates": np.stack([decay, beta], 1)}

        rules = {"qkv": chained(), "gates": chained()}
        return Prepared(record, want, lambda _: rules)

    return Check("delta_conv", shape.name, f"{tokens} x {shape.channels}", prepare, 1 << 26)


def _delta_chunk(shape: ModelShape, tokens: int) -> Check:
    position = 6

    def prepare(rng: np.random.Generator) -> Prepared:
        layer = Delta.draw(rng, shape, tokens=tokens)
        q, k, v, decay, beta = layer.mixed(position)
        flat = [part.reshape(tokens, -1) for part in (q, k, v)]
        rows = np.concatenate(flat, 1).astype(np.float32)
        gates = np.stack([decay, beta], 1).astype(np.float32)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", tokens, shape.value_width)
            mixed_rows = place.inout("qkv", rows)
            native.delta_chunk(step, y, mixed_rows, place.tensor(gates), layer.on(place))

        def want() -> dict[str, Array]:
            outputs, state = ref.delta_rule(q, k, v, decay, beta, ref.wide(layer.state))
            return {"y": layer.gated(outputs), "state": state}

        def rules(activation: str) -> dict[str, Rule]:
            return {"y": rounded(chained(), activation), "state": chained()}

        return Prepared(record, want, rules)

    name = f"{tokens} x {shape.value_heads} heads {shape.value_dim}x{shape.key_dim}"
    state = 4 * shape.value_heads * shape.value_dim * shape.key_dim
    flops = 6 * tokens * state // 4
    return Check("delta_chunk", shape.name, name, prepare, state, 2 * state, flops)


def _route(shape: ModelShape, tokens: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        logits = normal(rng, tokens, shape.experts + 1, scale=3)
        logits[1::2] = np.rint(logits[1::2])  # most choices between equals: the lower id

        def record(place: Place, step: native.Step, turn: int) -> None:
            ids = place.output("ids", tokens, shape.slots, dtype="u32")
            weights = place.output("weights", tokens, shape.slots + 1)
            native.moe_route(step, ids, weights, place.tensor(logits))

        def want() -> dict[str, Array]:
            ids, weights = ref.route(logits, shape.slots)
            return {"ids": ids, "weights": weights}

        return Prepared(record, want, lambda _: {"ids": EXACT, "weights": chained()})

    name = f"{tokens} x {shape.slots} of {shape.experts}"
    return Check("moe_route", shape.name, name, prepare, 1 << 22)


def _sort(shape: ModelShape, tokens: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        ids = _choices(rng, shape, tokens)

        def record(place: Place, step: native.Step, turn: int) -> None:
            order = place.output("order", ids.size, dtype="u32")
            offsets = place.output("offsets", shape.experts + 1, dtype="u32")
            native.moe_sort(step, order, offsets, place.tensor(ids))

        def want() -> dict[str, Array]:
            return dict(zip(("order", "offsets"), _sorted(shape, ids), strict=True))

        return Prepared(record, want, lambda _: {"order": EXACT, "offsets": EXACT})

    name = f"{tokens} x {shape.slots} of {shape.experts}"
    return Check("moe_sort", shape.name, name, prepare, 1 << 22)


def _combine(shape: ModelShape, tokens: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        before, shared = (normal(rng, tokens, shape.hidden) for _ in range(2))
        y = normal(rng, tokens * shape.slots, shape.hidden)
        weights = rng.uniform(0, 0.3, (tokens, shape.slots + 1)).astype(np.float32)

        def record(place: Place, step: native.Step, turn: int) -> None:
            inputs = [place.tensor(array) for array in (y, shared, weights)]
            native.moe_combine(step, place.inout("residual", before), *inputs)

        def want() -> dict[str, Array]:
            rows = ref.wide(y).reshape(tokens, shape.slots, shape.hidden)
            routed = np.einsum("tsh,ts->th", rows, weights[:, :-1])
            return {"residual": before + routed + weights[:, -1:] * ref.wide(shared)}

        return Prepared(record, want, lambda _: {"residual": single(shape.slots)})

    name = f"{tokens} x {shape.slots} x {shape.hidden}"
    return Check("moe_combine", shape.name, name, prepare, 1 << 25)


def _score(shape: ModelShape) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        logits = normal(rng, _SCORED, shape.vocab, scale=3)
        targets = rng.integers(0, shape.vocab, _SCORED, dtype=np.uint32)

        def record(place: Place, step: native.Step, turn: int) -> None:
            logprobs = place.output("logprobs", _SCORED)
            best = place.output("best", _SCORED, dtype="u32")
            native.sample_score(step, logprobs, best, place.tensor(logits), place.tensor(targets))

        def want() -> dict[str, Array]:
            chosen = ref.softmax(ref.wide(logits))[np.arange(_SCORED), targets]
            return {"logprobs": np.log(chosen), "best": np.argmax(logits, 1)}

        return Prepared(record, want, lambda _: {"logprobs": chained(), "best": EXACT})

    return Check("sample_score", shape.name, f"{_SCORED} x {shape.vocab:,}", prepare, 1 << 23)
