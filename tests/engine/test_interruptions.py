"""What a session promises when it is stopped, shared between threads, or closed."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from lily import _native
from lily.errors import Cancelled, InvalidInput

from .conftest import Load
from .sessions import close_to, greedy, keep_busy


class TestStopping:
    def test_cancel_stops_after_a_chunk(self, load: Load, prompt: list[int]) -> None:
        session = load(chunk_tokens=16, cache_bytes=0).session()
        cancel = _native.Cancel()
        seen = []

        def progress(done: int, total: int) -> None:
            seen.append((done, total))
            if done >= 32:
                cancel.set()

        with pytest.raises(Cancelled, match="after 32 tokens"):
            session.prefill(prompt, cancel=cancel, progress=progress)
        assert seen == [(16, 70), (32, 70)]
        assert session.tokens == prompt[:32]
        with pytest.raises(InvalidInput, match="did not finish"):
            session.sampled()
        cancel.clear()
        assert session.prefill(prompt, cancel=cancel) == 32
        fresh = load(cache_bytes=0).session()
        fresh.prefill(prompt)
        assert close_to(session.logits(), fresh.logits())

    def test_a_cancelled_flag_stops_at_once(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        cancel = _native.Cancel()
        cancel.set()
        assert cancel.is_set
        for call in (
            lambda: session.prefill(prompt[::-1], cancel=cancel),
            lambda: session.step(1, cancel=cancel),
            lambda: session.score(prompt, cancel=cancel),
        ):
            with pytest.raises(Cancelled):
                call()
        assert session.tokens == prompt

    def test_from_another_thread(self, load: Load) -> None:
        session = load(chunk_tokens=1, cache_bytes=0, threads=1).session()
        cancel = _native.Cancel()
        timer = threading.Timer(0.05, cancel.set)
        timer.start()
        with pytest.raises(Cancelled):
            keep_busy(session, cancel)
        timer.join()

    def test_an_error_in_progress_comes_out(self, load: Load, prompt: list[int]) -> None:
        session = load(chunk_tokens=16, cache_bytes=0).session()

        def progress(done: int, total: int) -> None:
            raise RuntimeError(f"{done} of {total}")

        with pytest.raises(RuntimeError, match="16 of 70"):
            session.prefill(prompt, progress=progress)
        assert session.prefill(prompt) == 16

    def test_ctrl_c(self, load: Load) -> None:
        session = load(chunk_tokens=1, cache_bytes=0, threads=1).session()
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            keep_busy(session)
        timer.join()
        done = session.tokens
        session.prefill(done if len(done) == 640 else [*done, 5])
        fresh = load(cache_bytes=0).session()
        fresh.prefill(session.tokens)
        assert close_to(session.logits(), fresh.logits())


class TestThreads:
    def test_sessions_do_not_mix(self, load: Load, prompt: list[int]) -> None:
        prompts = [prompt, prompt[::-1], prompt[::2] + prompt[1::2]]
        engine = load(chunk_tokens=8)
        expected = []
        for text in prompts:
            alone = load(cache_bytes=0, chunk_tokens=8).session()
            alone.prefill(text)
            expected.append((greedy(alone, 30), alone.logits()))
        results: list[tuple[list[int], np.ndarray] | None] = [None] * 3

        def work(index: int) -> None:
            session = engine.session()
            session.prefill(prompts[index])
            results[index] = (greedy(session, 30), session.logits())

        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for (tokens, row), result in zip(expected, results, strict=True):
            assert result is not None
            assert result[0] == tokens
            assert close_to(result[1], row)

    def test_one_session_refuses_two_threads(self, load: Load, prompt: list[int]) -> None:
        session = load(chunk_tokens=16).session()
        errors: list[Exception] = []

        def intrude() -> None:
            try:
                session.sampled()
            except InvalidInput as error:
                errors.append(error)

        def progress(done: int, total: int) -> None:
            thread = threading.Thread(target=intrude)
            thread.start()
            thread.join()

        session.prefill(prompt, progress=progress)
        assert len(errors) >= 4
        assert all("in use by another thread" in str(error) for error in errors)
        assert session.num_tokens == len(prompt)


class TestClosing:
    def test_later_calls_are_refused(self, load: Load, prompt: list[int]) -> None:
        engine = load()
        session = engine.session()
        session.prefill(prompt)
        session.close()
        session.close()
        for call in (session.sampled, session.logits, session.save, lambda: session.step(1)):
            with pytest.raises(InvalidInput, match="closed"):
                call()
        engine.close()
        engine.close()
        with pytest.raises(InvalidInput, match="the engine is closed"):
            engine.session()
        assert engine.device == "cpu"

    def test_the_engine_closes_its_sessions(self, load: Load, prompt: list[int]) -> None:
        engine = load()
        session = engine.session()
        session.prefill(prompt)
        engine.close()
        with pytest.raises(InvalidInput, match="closed"):
            session.step(1)

    def test_sessions_outlive_the_engine_object(self, load: Load, prompt: list[int]) -> None:
        session = load().session()
        session.prefill(prompt)
        assert len(greedy(session, 3)) == 3

    def test_waits_for_a_running_call(self, load: Load) -> None:
        engine = load(chunk_tokens=1, threads=1)
        session = engine.session()
        started = threading.Event()
        outcome: list[Exception] = []

        def work() -> None:
            try:
                session.prefill([1] * 640, progress=lambda done, total: started.set())
            except Cancelled as error:
                outcome.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert started.wait(30)
        engine.close()
        thread.join(30)
        assert "was closed" in str(outcome[0])

    def test_from_inside_a_call(self, load: Load, prompt: list[int]) -> None:
        engine = load(chunk_tokens=16)
        session = engine.session()
        with pytest.raises(Cancelled, match="was closed"):
            session.prefill(prompt, progress=lambda done, total: engine.close())
        with pytest.raises(InvalidInput, match="closed"):
            session.sampled()
