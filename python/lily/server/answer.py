"""From a generator that blocks in a thread to events in the event loop.

This file owns the bridge of one answer: a bounded queue with back-pressure, signs of life while
nothing comes, a deadline, and stopping within one step when nobody listens any more. It knows the
engine's chunks, but neither jobs nor wire shapes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

from lily.cancel import CancelToken
from lily.completion import Chunk, Completion
from lily.server.errors import ShuttingDown, TimedOut

_QUEUED_CHUNKS = 32  # that may wait for a client which reads slowly, before its answer pauses


@dataclass(frozen=True)
class Waiting:
    """A sign of life: nothing new yet.

    Attributes:
        done: tokens of the prompt that are computed.
        total: tokens to compute; 0 while the job waits for its turn.
    """

    done: int = 0
    total: int = 0


Event: TypeAlias = "Chunk | Waiting"


class Answer:
    """The events of one job: iterate them once, then ``close``; ``async with`` does the latter.

    The last event is the chunk that carries the Completion; the iteration ends behind it when the
    job has left its thread and its place. Raises in their place what the engine
    raised, or what ``fail`` was given.

    Args:
        cancel: what the generator was given to stop it.
        keep_alive_s: a ``Waiting`` comes after so long a silence.
        timeout_s: longest time from now until the end.
    """

    def __init__(self, cancel: CancelToken, *, keep_alive_s: float, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.cancel = cancel
        """What stops the engine; ``close`` and ``fail`` set it."""
        self._keep_alive_s = keep_alive_s
        self._timeout_s = timeout_s
        self._deadline = self._loop.time() + timeout_s
        self._events: asyncio.Queue[Chunk | Waiting | BaseException | None] = asyncio.Queue()
        self._room = threading.Semaphore(_QUEUED_CHUNKS)
        self._failure: BaseException | None = None
        self._over = False
        self._progress = Waiting()
        self.on_close: Callable[[], object] = lambda: None
        """Called when nobody listens any more."""
        self.completion: Completion | None = None
        """The whole answer, as soon as the engine has finished it, read or not."""

    # --- in the thread ---

    def run(self, chunks: Generator[Chunk, None, None]) -> None:
        """Run the generator to its end, in the calling thread."""
        with contextlib.closing(chunks):
            try:
                for chunk in chunks:
                    self.completion = chunk.completion
                    # A cancelled generator ends by itself; nobody reads what it still gives, and
                    # nobody makes room for it but once, in ``_stop``.
                    if not self.cancel.cancelled:
                        self._room.acquire()
                        self._post(chunk)
            except Exception as error:
                self._post(error)

    def on_progress(self, done: int, total: int) -> None:
        """For the engine's ``progress``."""
        self._progress = Waiting(done, total)

    def _post(self, item: Chunk | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: the process ends by force
            self._loop.call_soon_threadsafe(self._events.put_nowait, item)

    # --- in the loop ---

    def finished(self) -> None:
        """Nothing more will come."""
        self._events.put_nowait(None)

    def fail(self, error: BaseException) -> None:
        """Stop the answer and raise ``error`` to whoever iterates, after what is queued already."""
        self._failure = self._failure or error
        self._stop()

    def close(self) -> None:
        """Stop the answer, within one step or one chunk of the prompt; nothing if it is over."""
        if not self._over:
            self._over = True
            self._stop()

    def _stop(self) -> None:
        self.cancel.cancel()
        self._room.release()  # the thread may be waiting for room that nobody will make
        self.on_close()

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        item = await self._next()
        if isinstance(item, Waiting):
            if self._loop.time() < self._deadline:
                return self._progress
            self.close()
            raise TimedOut(f"the answer took longer than {self._timeout_s:g} s")
        self._room.release()
        if isinstance(item, Chunk):
            if item.finish_reason == "cancelled":  # not by us: the engine is being closed
                raise self._failure or ShuttingDown
            return item
        self._over = True
        error = item or self._failure
        if error is None:
            raise StopAsyncIteration
        raise error

    async def _next(self) -> Chunk | Waiting | BaseException | None:
        """What comes next, or a Waiting if nothing does."""
        left = self._deadline - self._loop.time()
        if left <= 0:
            return Waiting()
        if not self._events.empty():
            return self._events.get_nowait()
        # Not ``wait_for``, which before Python 3.12 may swallow a cancellation.
        pause = min(left, self._keep_alive_s)
        alarm = self._loop.call_later(pause, self._events.put_nowait, Waiting())
        try:
            return await self._events.get()
        finally:
            alarm.cancel()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()
