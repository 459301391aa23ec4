"""Which session serves which request.

This file owns the engine's sessions: it lends one to a request, alone, and takes it back. It
prefers the idle session that already holds most of the prompt, makes a new one when all are busy,
and waits when no more are allowed. It knows no text and no sampling.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lily.errors import Cancelled, DeviceError, InvalidInput, OutOfMemory

if TYPE_CHECKING:
    from lily import _native

_POLL_S = 0.05  # how soon a request that waits for a session notices that it was cancelled


class SessionPool:
    """Lends sessions, each to one request at a time; safe to use from many threads.

    Args:
        create: makes a session; may raise OutOfMemory, and if others exist they are waited for.
        limit: most sessions that exist at once.
    """

    def __init__(self, create: Callable[[], _native.Session], limit: int) -> None:
        self._create = create
        self._limit = limit
        self._changed = threading.Condition()
        self._idle: list[_native.Session] = []  # least recently used first
        self._busy = 0
        self._closed = False

    @contextlib.contextmanager
    def borrow(self, token_ids: Sequence[int], cancel: _native.Cancel) -> Iterator[_native.Session]:
        """A session for this prompt, until the ``with`` block ends.

        Raises Cancelled if ``cancel`` is set while waiting, InvalidInput if the pool is closed. A
        session that met a DeviceError is closed; after any other error it is used again.
        """
        session = self._take(token_ids, cancel)
        healthy = True
        try:
            yield session
        except DeviceError:
            healthy = False
            raise
        finally:
            self._give_back(session, healthy)

    def _take(self, token_ids: Sequence[int], cancel: _native.Cancel) -> _native.Session:
        with self._changed:
            while True:
                if self._closed:
                    raise InvalidInput("the engine is closed")
                if self._idle:
                    shared = [shared_prefix(idle.tokens, token_ids) for idle in self._idle]
                    session = self._idle.pop(shared.index(max(shared)))
                    self._busy += 1
                    return session
                created = self._new_session()
                if created is not None:
                    self._busy += 1
                    return created
                if cancel.is_set:
                    raise Cancelled("cancelled while waiting for a session")
                self._changed.wait(_POLL_S)

    def _new_session(self) -> _native.Session | None:
        """A new session, or None if the limit or the memory is reached and others will be free."""
        if self._busy >= self._limit:
            return None
        try:
            return self._create()
        except OutOfMemory:
            if self._busy == 0:
                raise
            self._limit = self._busy  # do not try again on every poll
            return None

    def _give_back(self, session: _native.Session, healthy: bool) -> None:
        with self._changed:
            self._busy -= 1
            if healthy and not self._closed:
                self._idle.append(session)
            else:
                session.close()
            self._changed.notify_all()

    def close(self) -> None:
        """Close idle sessions now and the others when they come back."""
        with self._changed:
            self._closed = True
            for session in self._idle:
                session.close()
            self._idle.clear()
            self._changed.notify_all()


def shared_prefix(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens two timelines have in common at their start."""
    low, high = 0, min(len(held), len(wanted))
    # Slices compare at C speed, so halving beats a loop over 100,000 tokens.
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == wanted[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
