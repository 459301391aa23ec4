"""The model in memory: loaded in the background, lent to jobs, unloaded when idle.

This file owns when an engine exists. It knows no request and no HTTP; whoever uses the engine
borrows it with ``lend``, and it is never closed while lent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from lily.engine import Engine
from lily.errors import LilyError, ModelError
from lily.server.errors import ModelLoading, ShuttingDown

State = Literal["loading", "ready", "unloaded", "failed", "closed"]
_log = logging.getLogger("lily.server")


@dataclass(frozen=True)
class Card:
    """What is told about the model, also while it is unloaded."""

    name: str
    max_context: int
    vocab_size: int
    description: str
    created: int

    def other_model(self, asked: str | None) -> list[str]:
        """A warning where another model was asked for: any name is accepted."""
        if asked is None or asked == self.name:
            return []
        return [f"model {asked[:80]!r} is not here; {self.name} answers"]

    def clamped(self, field: str, limit: int | None) -> list[str]:
        """A warning where ``field`` asks for more tokens than the context holds."""
        if limit is None or limit <= self.max_context:
            return []
        return [f"{field} {limit} is clamped: the context holds {self.max_context} tokens"]


class ModelHost:
    """Loads the engine with ``load`` (in a thread) and keeps it while it is used.

    One event loop; call ``start`` in it. ``clock`` gives Unix time.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        *,
        idle_unload_s: float | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._load = load
        self._idle_unload_s = idle_unload_s
        self._clock = clock
        self._engine: Engine | None = None
        self._lock = asyncio.Lock()  # one load or unload at a time
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.state: State = "loading"
        self.error: LilyError | None = None
        """Why loading failed."""
        self.card: Card | None = None
        """Known from the first load on."""

    async def start(self) -> None:
        """The first load. Raises what ``Engine.load`` raises; ``state`` is then "failed"."""
        async with self._lock:
            await self._load_now()
        self._unload_later()

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[Engine]:
        """The engine, for as long as the block lasts; loads it again if it was unloaded.

        Raises ModelLoading before the first load is done, ShuttingDown, or what loading raises.
        """
        if self.state == "closed":
            raise ShuttingDown
        self.known_card()
        self._users += 1
        self._stop_timer()
        try:
            async with self._lock:
                if self._engine is None:
                    await self._load_now()
                engine = self._engine
            assert engine is not None, "a load that did not raise leaves an engine"
            yield engine
        finally:
            self._users -= 1
            self._unload_later()

    def known_card(self) -> Card:
        """The card. Raises ModelLoading before there is one, or why there will be none."""
        if self.card is not None:
            return self.card
        raise ModelLoading if self.error is None else self.error

    async def close(self) -> None:
        """Free the model for good; what still runs on it is stopped. Waits for no load."""
        loading = self.state == "loading"
        self.state = "closed"
        self._stop_timer()
        if loading:  # perhaps hours of a download; its thread does not keep the process alive
            return
        if self._engine is not None:
            self._engine.cancel_all()
        async with self._lock:
            await self._close_engine()

    async def _load_now(self) -> None:
        if self.state == "closed":
            raise ShuttingDown
        self.state, self.error = "loading", None
        try:
            engine = await _in_daemon_thread(self._load)
        except Exception as error:
            if self.state == "loading":
                self.state = "failed"
                named = ModelError(type(error).__name__)
                self.error = error if isinstance(error, LilyError) else named
            raise
        except asyncio.CancelledError:  # who asked for it has gone
            if self.state == "loading":
                self.state = "unloaded"
            raise
        if self.state != "loading":  # closed meanwhile
            engine.close()
            raise ShuttingDown
        self._engine = engine
        self.state = "ready"
        if self.card is None:
            self.card = Card(
                name=engine.name,
                max_context=engine.max_context,
                vocab_size=engine.text_vocab_size,
                description=f"{engine!r} · {engine.device_description}",
                created=int(self._clock()),
            )
        _log.info("model ready: %s", self.card.description)

    def _unload_later(self) -> None:
        if self._idle_unload_s is None or self._users or self._engine is None:
            return
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_unload_s, self._begin_unload)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_unload(self) -> None:
        task = asyncio.ensure_future(self._unload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unload(self) -> None:
        async with self._lock:
            if self._users == 0 and self.state == "ready":
                await self._close_engine()
                self.state = "unloaded"
                _log.info("model unloaded: idle for %g s", self._idle_unload_s)

    async def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.close)


async def _in_daemon_thread(call: Callable[[], Engine]) -> Engine:
    """The result of ``call``; unlike ``to_thread``, the process can end while it runs."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Engine] = loop.create_future()

    def settle(engine: Engine | None, error: BaseException | None) -> None:
        if result.cancelled():
            if engine is not None:
                engine.close()
        elif error is not None:
            result.set_exception(error)
        elif engine is not None:
            result.set_result(engine)

    def run() -> None:
        engine: Engine | None = None
        failure: BaseException | None = None
        try:
            engine = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, engine, failure)

    threading.Thread(target=run, name="lily-load", daemon=True).start()
    return await result
