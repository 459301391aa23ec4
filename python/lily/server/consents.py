"""Questions of running requests that wait for a person's answer.

This file owns who waits and for how long; silence is a no. It knows no HTTP and no gate.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from lily.cancel import CancelToken

WAIT_S = 120.0


class Consents:
    """Any thread may ask and settle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[threading.Event, list[bool]]] = {}

    def ask(self, tell: Callable[[str], object], cancel: CancelToken) -> bool:
        """Give the question an id, tell the client of it, and wait; no answer is a no."""
        number, event, answer = secrets.token_urlsafe(16), threading.Event(), [False]
        with self._lock:
            self._waiting[number] = event, answer
        cancel.attach(event)
        try:
            tell(number)
            event.wait(WAIT_S)
            return answer[0]
        finally:
            cancel.detach(event)
            with self._lock:
                del self._waiting[number]

    def settle(self, number: str, allow: bool) -> bool:
        """False where no such question waits."""
        with self._lock:
            found = self._waiting.get(number)
            if found:
                found[1][0] = allow
                found[0].set()
        return found is not None
