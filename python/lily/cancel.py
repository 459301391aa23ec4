"""CancelToken: how any thread stops a running generation.

This file owns the link between the caller's token and the flags that native code polls. One token
may serve several generations, one after another or at once. It knows no engine and no session.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Flag(Protocol):
    """What native code polls (``lily._native.Cancel``)."""

    def set(self) -> None: ...


class CancelToken:
    """A switch that stops the generations it was given to, from any thread.

    It stays set: a generation that starts with a token already cancelled ends at once.

    Example:
        >>> token = CancelToken()
        >>> threading.Timer(1.0, token.cancel).start()      # doctest: +SKIP
        >>> engine.generate("...", cancel=token).finish_reason  # doctest: +SKIP
        'cancelled'
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flags: list[Flag] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop every generation that holds this token, within one step or one prompt chunk."""
        with self._lock:
            self._cancelled = True
            for flag in self._flags:
                flag.set()

    def attach(self, flag: Flag) -> None:
        """Set ``flag`` when the token is cancelled, or now if it already is."""
        with self._lock:
            self._flags.append(flag)
            if self._cancelled:
                flag.set()

    def detach(self, flag: Flag) -> None:
        """Forget ``flag``; its generation has ended."""
        with self._lock:
            self._flags = [held for held in self._flags if held is not flag]

    def __repr__(self) -> str:
        return f"CancelToken({'cancelled' if self._cancelled else 'ready'})"
