"""Minutes of random prompts, lengths, cancels and sessions side by side: no wrong token, no leak.

The greedy answers of a set of prompts are taken first, one after another in fresh sessions. Then
several threads, each with a session that it now and then replaces, repeat random ones of them,
break some off at a random place, and compare every token of the others. Memory of the device and of
the process is noted, with no session open, after a settling time and ten times from then on. Any
difference or error fails the run, and so does growth in its second half: pools fill up early, and a
leak goes on.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lily import _native
from lily.errors import Cancelled

from bench import machine
from bench.harness import Report, Summary
from bench.worker import synthetic_ids

_PROMPTS = 24
_PERIODS = 10  # after each of which memory is looked at
_GROWTH_BYTES = 64 << 20  # of the process: what an allocator may keep; a leak passes it in minutes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench soak``."""
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--longest", type=int, default=2048, help="tokens of a prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="soak", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Soak, write the result file, and raise where anything went wrong."""
    settings = {
        name: getattr(arguments, name) for name in ("minutes", "sessions", "longest", "seed")
    }
    report = Report("soak", settings)
    soak = _Soak(arguments)
    report.extra["device"] = soak.engine.device_description
    begin = time.perf_counter()
    soak.take_references()
    soak.run_for(min(20.0, 6 * arguments.minutes))  # caches, pools and graphs fill up
    settled = soak.held()
    print(f"settled: {settled}", flush=True)  # others may use the device from here on
    held = [settled]
    for _ in range(_PERIODS):
        soak.run_for(60 * arguments.minutes / _PERIODS)
        held.append(soak.held())
    report.extra |= {"counts": dict(soak.counts), "held": held}
    report.extra["wrong"] = soak.wrong[:10]
    seconds = time.perf_counter() - begin
    report.add({"soak": "tokens"}, "tok/s", Summary((max(soak.counts["tokens"], 1) / seconds,)))
    report.write(arguments.name)
    if soak.wrong:
        raise RuntimeError(f"{len(soak.wrong)} answers went wrong, the first: {soak.wrong[0]}")
    grown = {name: held[-1][name] - held[_PERIODS // 2][name] for name in settled}
    if grown.get("device_bytes", 0) > 0 or grown.get("own_bytes", 0) > _GROWTH_BYTES:
        raise RuntimeError(f"memory has grown by {grown} in the second half")


class _Soak:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._rng = random.Random(arguments.seed)
        self._sessions = arguments.sessions
        self._context = arguments.longest + 128
        self.engine = _native.Engine(
            str(arguments.model),
            device=arguments.device,
            max_context=self._context,
            cache_bytes=0,  # a resumed prompt is cut elsewhere, and rounds elsewhere
        )
        longest = arguments.longest
        self._jobs = [
            (synthetic_ids(self._length(longest), self.engine.vocab_size, number), steps)
            for number, steps in enumerate(self._rng.choices(range(1, 97), k=_PROMPTS))
        ]
        self._answers: list[list[int]] = []
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def _length(self, longest: int) -> int:
        return int(longest ** self._rng.uniform(0, 1))  # short ones are as likely as long ones

    def take_references(self) -> None:
        """The answers, one after another."""
        for job in range(len(self._jobs)):
            self._answers.append(self._answer(self._session(), job, None))

    def run_for(self, seconds: float) -> None:
        """All threads until then; a thread's surprise is written down and ends it."""
        end = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=self._work, args=(self._rng.random(), end))
            for _ in range(self._sessions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 120)
            if thread.is_alive():
                self.wrong.append("a session hangs")

    def held(self) -> dict[str, int]:
        """Bytes of this process, on the device too, where others may come and go."""
        found = {
            key: value for key, value in machine.resident_bytes().items() if key == "own_bytes"
        }
        used = machine.gpu_own_bytes()
        if used is None:
            used = machine.gpu_used_bytes()
        if used is not None:
            found["device_bytes"] = used
        return found

    def _session(self) -> Any:
        session = self.engine.session()
        session.set_sampler(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
        return session

    def _answer(self, session: Any, job: int, cancel: Any) -> list[int]:
        ids, steps = self._jobs[job]
        session.prefill(ids, cancel=cancel)
        tokens = [session.sampled().token_id]
        for _ in range(steps):
            tokens.append(session.step(tokens[-1], cancel=cancel).token_id)
        return tokens

    def _work(self, seed: float, end: float) -> None:
        rng = random.Random(seed)
        session = self._session()
        try:
            while time.perf_counter() < end and not self.wrong:
                session = self._turn(rng, session)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _turn(self, rng: random.Random, session: Any) -> Any:
        job = rng.randrange(len(self._jobs))
        cancel = _native.Cancel()
        timer = None
        if rng.random() < 0.3:
            timer = threading.Timer(rng.uniform(0, 0.3), cancel.set)
            timer.start()
        outcome, tokens = "whole", []
        try:
            tokens = self._answer(session, job, cancel)
            if tokens != self._answers[job]:
                self.wrong.append(f"prompt {job} of {len(self._jobs[job][0])} tokens: {tokens}")
        except Cancelled:
            outcome = "cancelled"
        if timer:
            timer.cancel()
        with self._lock:
            self.counts[outcome] += 1
            self.counts["tokens"] += len(tokens)
        if rng.random() < 0.2:
            session.close()
            session = self._session()
            with self._lock:
                self.counts["sessions"] += 1
        return session
