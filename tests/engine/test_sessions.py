"""What a session promises while it runs: reuse, limits, draws, scores and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lily.errors import ContextFull, InvalidInput, OutOfMemory

from .checkpoints import TINY
from .conftest import Load
from .sessions import GREEDY, close_to, greedy


class TestReuse:
    def test_a_longer_prompt_goes_on_live(self, load: Load, prompt: list[int]) -> None:
        session = load(cache_bytes=0).session()
        assert session.prefill(prompt[:40]) == 0
        assert session.prefill(prompt) == 40
        assert session.tokens == prompt
        expected = load(cache_bytes=0).session()
        expected.prefill(prompt)
        assert close_to(session.logits(), expected.logits())

    def test_generated_tokens_count(self, load: Load, prompt: list[int]) -> None:
        session = load(cache_bytes=0).session()
        session.prefill(prompt[:20])
        answer = greedy(session, 5)
        assert session.tokens == prompt[:20] + answer
        assert session.prefill(prompt[:20] + answer + prompt[20:30]) == 25

    def test_the_same_prompt_needs_nothing(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        before = session.logits()
        assert session.prefill(prompt) == len(prompt)
        assert (session.logits() == before).all()

    def test_the_same_prompt_after_an_answer_needs_one_token(
        self, load: Load, prompt: list[int]
    ) -> None:
        session = load().session()
        session.prefill(prompt)
        before = greedy(session, 6)
        assert session.prefill(prompt) == len(prompt) - 1
        assert greedy(session, 6) == before

    def test_without_a_cache_it_starts_over(self, load: Load, prompt: list[int]) -> None:
        session = load(cache_bytes=0).session()
        session.prefill(prompt)
        before = greedy(session, 6)
        assert session.prefill(prompt) == 0
        assert greedy(session, 6) == before

    def test_checkpoints_serve_other_sessions(self, load: Load, prompt: list[int]) -> None:
        engine = load()
        engine.session().prefill(prompt, checkpoints=[13, 37])
        other = engine.session()
        changed = [*prompt[:50], 1, 2, 3]
        assert prompt[50] != 1
        assert other.prefill(changed) == 37
        fresh = load(cache_bytes=0).session()
        fresh.prefill(changed)
        assert close_to(other.logits(), fresh.logits())
        assert engine.session().prefill([*prompt[:20], 5]) == 13
        assert engine.cache_stats()["hits"] == 2

    def test_save_keeps_the_answer(self, load: Load, prompt: list[int]) -> None:
        engine = load()
        session = engine.session()
        session.prefill(prompt)
        answer = greedy(session, 9)
        session.save()
        other = engine.session()
        assert other.prefill([*prompt, *answer, 7]) == len(prompt) + 9

    def test_evicted_snapshots_cost_time_only(self, load: Load, prompt: list[int]) -> None:
        roomy = load()
        roomy.session().prefill(prompt, checkpoints=[30])
        one = roomy.cache_stats()["bytes"] // 2
        engine = load(cache_bytes=2 * one)
        session = engine.session()
        expected = load(cache_bytes=0).session()
        for start in range(8):
            rotated = prompt[start:] + prompt[:start]
            session.prefill(rotated, checkpoints=[30])
            expected.prefill(rotated)
            assert close_to(session.logits(), expected.logits())
            assert engine.cache_stats()["bytes"] <= 2 * one
        assert engine.cache_stats()["evictions"] > 0

    def test_checkpoints_must_lie_in_the_prompt(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        for place in (0, len(prompt) + 1):
            with pytest.raises(InvalidInput, match=f"checkpoint {place} .* 70 tokens"):
                session.prefill(prompt, checkpoints=[place])
        assert session.num_tokens == 0


class TestLimits:
    def test_a_prompt_too_long_changes_nothing(self, load: Load, prompt: list[int]) -> None:
        session = load().session(max_tokens=50)
        session.prefill(prompt[:10])
        before = session.logits()
        with pytest.raises(ContextFull, match=r"70 tokens.* holds 50"):
            session.prefill(prompt)
        assert session.tokens == prompt[:10]
        assert (session.logits() == before).all()

    def test_a_full_context_takes_no_step(self, load: Load, prompt: list[int]) -> None:
        session = load().session(max_tokens=50)
        session.prefill(prompt[:49])
        session.step(3)
        before = session.logits()
        with pytest.raises(ContextFull, match="50 tokens is full"):
            session.step(4)
        assert session.num_tokens == 50
        assert (session.logits() == before).all()

    def test_prompts_are_checked(self, load: Load) -> None:
        session = load().session()
        with pytest.raises(InvalidInput, match="empty"):
            session.prefill([])
        with pytest.raises(InvalidInput, match=r"token 1 is 301.* vocabulary has 301"):
            session.prefill([0, TINY.vocab])
        for wrong in (-1, 2**32, 1.5, "a", None):
            with pytest.raises(InvalidInput, match="token 1 is"):
                session.prefill([0, wrong])
        with pytest.raises(InvalidInput, match="no logits are ready"):
            session.sampled()

    def test_any_integers_will_do(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        for dtype in (np.uint32, np.int64, np.uint16):
            assert session.prefill(np.array(prompt, dtype)) == len(prompt)
        assert session.prefill(np.array(prompt * 2, np.uint32)[::2]) < len(prompt)

    def test_max_tokens_within_the_engine(self, load: Load) -> None:
        engine = load(max_context=100)
        assert engine.max_context == 100
        assert engine.session().max_tokens == 100
        with pytest.raises(InvalidInput, match=r"101.* 100"):
            engine.session(101)


class TestDraws:
    def test_greedy_is_the_first_candidate(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        row = session.logits()
        ids, values = session.candidates()
        order = np.lexsort((np.arange(len(row)), -row))[:64]
        assert ids.tolist() == order.tolist()
        assert (values == row[order]).all()
        draw = session.sampled()
        assert draw.exact
        assert draw.token_id == ids[0]
        assert draw.logsumexp == pytest.approx(np.log(np.exp(row.astype(float)).sum()), abs=1e-5)

    def test_a_new_sampler_draws_again(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        drawn = set()
        for seed in range(40):
            session.set_sampler(temperature=1.0, top_k=20, top_p=1.0, min_p=0.0, seed=seed)
            first = session.sampled().token_id
            assert session.sampled().token_id == first
            drawn.add(first)
        assert len(drawn) > 3
        session.set_sampler(**GREEDY)
        assert session.sampled().token_id == session.candidates()[0][0]

    def test_the_seed_decides(self, load: Load, prompt: list[int]) -> None:
        engine = load()
        texts = []
        for seed in (5, 5, 6):
            session = engine.session()
            session.set_sampler(temperature=1.0, top_k=30, top_p=1.0, min_p=0.0, seed=seed)
            session.prefill(prompt)
            texts.append(greedy(session, 12))
        assert texts[0] == texts[1] != texts[2]

    def test_another_choice_is_accepted(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt[:30])
        for token in prompt[30:]:
            session.step(token)
        fresh = load().session()
        fresh.prefill(prompt)
        assert close_to(session.logits(), fresh.logits())

    @pytest.mark.parametrize(
        "wrong",
        [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"min_p": 2.0}],
    )
    def test_settings_are_checked(self, load: Load, wrong: dict[str, float]) -> None:
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            load().session().set_sampler(**(GREEDY | wrong))


class TestScore:
    @pytest.mark.parametrize("count", [2, 3, 64, 65, 70])
    def test_is_what_the_logits_say(self, load: Load, prompt: list[int], count: int) -> None:
        session = load(chunk_tokens=33).session()
        logprobs, best = session.score(prompt[:count])
        logits = session.all_logits(prompt[:count]).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        places = np.arange(count - 1)
        assert np.abs(logprobs - expected[places, prompt[1:count]]).max() < 1e-5
        assert best.tolist() == logits[:-1].argmax(-1).tolist()

    def test_leaves_the_session_as_a_prefill_would(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt[20:])
        session.score(prompt)
        fresh = load().session()
        fresh.prefill(prompt)
        assert session.tokens == prompt
        assert close_to(session.logits(), fresh.logits())
        assert greedy(session, 4) == greedy(fresh, 4)

    def test_needs_two_tokens(self, load: Load) -> None:
        with pytest.raises(InvalidInput, match="expected 2 or more"):
            load().session().score([1])


def test_memory_of_sessions_is_counted(load: Load) -> None:
    plan = load().plan()
    one = plan["kv_bytes"] + plan["state_bytes"]
    limit = plan["weights_bytes"] + plan["scratch_bytes"] + 3 * one + 1000
    engine = load(memory_limit_bytes=limit, cache_bytes=2 * one)
    sessions = [engine.session() for _ in range(3)]
    with pytest.raises(OutOfMemory, match="3 open sessions"):
        engine.session()
    sessions.pop().close()
    engine.session()


def test_kv_can_be_bf16(load: Load, prompt: list[int], tiny: Path) -> None:
    exact, short = load(kv_dtype="f32"), load(kv_dtype="bf16")
    assert short.plan()["kv_bytes"] * 2 == exact.plan()["kv_bytes"]
    rows = []
    for engine in (exact, short):
        session = engine.session()
        session.prefill(prompt)
        rows.append(session.logits())
    assert 0 < np.abs(rows[0] - rows[1]).max() < 0.1
