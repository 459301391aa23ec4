"""Who gets which session, and what stops a running answer."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lily import CancelToken
from lily.errors import DeviceError, InvalidInput, OutOfMemory
from lily.pool import shared_prefix

from .fake_native import toy_logits

FIXED = {"temperature": 0, "ignore_eos": True}


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_shared_prefix(one, other):
    wanted = 0
    while wanted < min(len(one), len(other)) and one[wanted] == other[wanted]:
        wanted += 1
    assert shared_prefix(one, other) == wanted


def test_the_session_with_most_of_the_prompt_is_taken(engine, native):
    first = engine.stream([1, 2, 3, 4], max_tokens=5, **FIXED)
    next(first)
    second = engine.stream([5, 6, 7, 8], max_tokens=5, **FIXED)
    next(second)
    first.close()
    second.close()
    assert len(native.sessions) == 2
    assert engine.generate([5, 6, 7, 9], max_tokens=1, **FIXED).usage.cached_tokens == 3
    assert engine.generate([1, 2, 3, 9], max_tokens=1, **FIXED).usage.cached_tokens == 3
    assert len(native.sessions) == 2


def test_scoring_spares_the_session_used_last(engine, native):
    streams = [engine.stream([n, 2, 3], **FIXED) for n in (1, 5)]
    for stream in streams:
        next(stream)
    for stream in streams:  # [5, 2, 3] comes back last
        stream.close()
    engine.score([5, 2, 3, 4])
    assert [session.scored for session in native.sessions] == [1, 0]


def test_concurrent_answers_equal_serial_ones(engine, native):
    native.step_s = 0.0005
    prompts = [[n, n + 1, n + 2] for n in range(12)]
    answers = {}

    def run(place):
        answers[place] = engine.generate(prompts[place], max_tokens=15, **FIXED).token_ids

    threads = [threading.Thread(target=run, args=(place,)) for place in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, prompt in enumerate(prompts):
        tokens = list(prompt)
        for _ in range(15):
            tokens.append(int(toy_logits(tokens, native.vocab_size).argmax()))
        assert list(answers[place]) == tokens[3:]
    assert len(native.sessions) == 2
    assert native.overlaps == 0


def test_closing_the_stream_frees_the_session(engine, native):
    stream = engine.stream([1, 2, 3], **FIXED)
    next(stream)
    stream.close()
    assert len(engine._pool._idle) == 1
    assert engine._running == []
    assert native.sessions[0].saves == []


def test_dropping_the_stream_frees_the_session(engine):
    stream = engine.stream([1, 2, 3], **FIXED)
    next(stream)
    del stream
    assert len(engine._pool._idle) == 1


def test_a_stream_that_never_began_holds_nothing(engine, native):
    engine.stream([1, 2, 3])
    assert native.sessions == []
    assert engine._running == []


def test_cancel_from_another_thread(engine, native):
    native.step_s = 0.002
    token = CancelToken()
    threading.Timer(0.1, token.cancel).start()
    done = engine.generate([1, 2, 3], cancel=token, **FIXED)
    assert done.finish_reason == "cancelled"
    assert 0 < len(done.token_ids) < 400
    assert done.text == engine.detokenize(done.token_ids)
    assert engine.generate([1, 2, 3], max_tokens=2, **FIXED).finish_reason == "length"
    assert engine.generate([1, 2, 3], cancel=token, **FIXED).token_ids == ()
    assert len(native.sessions) == 1
    assert token._flags == []  # a token that outlives its answers does not gather them


def test_cancel_while_waiting_for_a_session(engine, native):
    holders = [engine.stream([1, 2], **FIXED) for _ in range(2)]
    for holder in holders:
        next(holder)
    token = CancelToken()
    threading.Timer(0.1, token.cancel).start()
    done = engine.generate([3], cancel=token, **FIXED)
    assert (done.finish_reason, done.token_ids, done.usage.prompt_tokens) == ("cancelled", (), 1)
    assert len(native.sessions) == 2


def test_cancel_during_prefill(engine, native):
    token = CancelToken()
    done = engine.generate([1] * 100, cancel=token, progress=lambda done, total: token.cancel())
    assert (done.finish_reason, done.token_ids, done.text) == ("cancelled", (), "")
    assert len(native.sessions[0].tokens) == 8  # one chunk, no more


def test_cancel_all_stops_what_runs_and_not_what_follows(engine, native):
    native.step_s = 0.002
    reasons = []

    def run():
        reasons.append(engine.generate([1, 2], **FIXED).finish_reason)

    threads = [threading.Thread(target=run) for _ in range(4)]  # two run, two wait
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while len(engine._running) < 4 and time.monotonic() < deadline:
        time.sleep(0.005)
    engine.cancel_all()
    for thread in threads:
        thread.join(10)
    assert reasons == ["cancelled"] * 4
    assert engine.generate([1, 2], max_tokens=3, **FIXED).finish_reason == "length"


def test_one_token_for_many_answers():
    class Flag:
        hits = 0

        def set(self):
            self.hits += 1

    token, one, other = CancelToken(), Flag(), Flag()
    token.attach(one)
    token.attach(other)
    token.detach(one)
    token.cancel()
    assert (one.hits, other.hits, token.cancelled) == (0, 1, True)
    token.attach(one)
    assert one.hits == 1


@pytest.mark.parametrize("where", ["prefill", "decode"])
def test_ctrl_c_frees_the_session_and_does_not_poison_it(engine, native, where):
    def interrupt(*_):
        raise KeyboardInterrupt

    options = dict(FIXED, max_tokens=9)
    extra = {"prefill": {"progress": interrupt}, "decode": {"logits_processors": [interrupt]}}
    with pytest.raises(KeyboardInterrupt):
        engine.generate([1] * 20, **options, **extra[where])
    wanted = engine.generate([1] * 20, **options).token_ids
    tokens = [1] * 20
    for _ in range(9):
        tokens.append(int(toy_logits(tokens, native.vocab_size).argmax()))
    assert list(wanted) == tokens[20:]
    assert len(native.sessions) == 1


def test_ctrl_c_between_two_chunks(engine):
    class Interrupted:
        """A stream that Ctrl-C meets while the caller has the chunk."""

        def __init__(self, chunks):
            self.chunks = chunks

        def __iter__(self):
            yield next(self.chunks)
            raise KeyboardInterrupt

        def close(self):
            self.chunks.close()

    stream = engine.stream
    engine.stream = lambda *arguments, **options: Interrupted(stream(*arguments, **options))
    with pytest.raises(KeyboardInterrupt) as caught:
        engine.generate([1] * 20, **FIXED)
    assert caught.value is not None  # held, as a debugger holds it: frames do not go by themselves
    assert len(engine._pool._idle) == 1


def test_failed_session_is_not_used_again(engine, native):
    native.fail_at = 5
    with pytest.raises(DeviceError):
        engine.generate([1, 2, 3], max_tokens=9, **FIXED)
    assert native.sessions[0].closed
    native.fail_at = None
    assert len(engine.generate([1, 2, 3], max_tokens=9, **FIXED).token_ids) == 9
    assert len(native.sessions) == 2


def test_memory_for_one_session_only(engine, native):
    asked = []

    def refuse(count):
        asked.append(count)
        return OutOfMemory("no room") if count else None

    native.refuse = refuse
    stream = engine.stream([1, 2, 3], max_tokens=5, **FIXED)
    next(stream)
    lengths = []

    def wait():
        lengths.append(len(engine.generate([4, 5], max_tokens=5, **FIXED).token_ids))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.15)
    assert lengths == []  # it waits
    stream.close()
    thread.join(10)
    assert lengths == [5]
    assert asked == [0, 1]  # what did not fit is not tried again and again


def test_memory_for_no_session(engine, native):
    native.refuse = lambda count: OutOfMemory("no room at all")
    with pytest.raises(OutOfMemory, match="no room at all"):
        engine.generate([1, 2])


def test_close_while_running(engine, native):
    native.step_s = 0.002
    ended = []

    def run():
        try:
            ended.append(engine.generate([1, 2], **FIXED).finish_reason)
        except InvalidInput:
            ended.append("closed")

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.05)
    engine.close()
    thread.join(10)
    assert ended in (["cancelled"], ["closed"])
    assert native.sessions[0].closed


def test_a_thousand_requests_leave_nothing_behind(engine, native):
    for n in range(1000):
        stream = engine.stream([n % 50, 1], max_tokens=2, **FIXED)
        next(stream)
        stream.close()
    assert len(native.sessions) == 1
    assert engine._running == []
