"""A call with a limit of time.

This file owns the threads in which texts are judged. A call that is late is left alone: Python
cannot stop a thread, so the number of late ones is bounded too. It knows nothing of what is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")
_MAX_LATE = 4


class Bounded:
    """Runs calls in daemon threads. Thread-safe."""

    def __init__(self) -> None:
        self._late = 0
        self._lock = threading.Lock()

    def run(self, call: Callable[[], _T], limit_s: float) -> _T:
        """The result of ``call``, or what it raises, KeyboardInterrupt included.

        Raises TimeoutError after ``limit_s``, and at once where too many earlier calls still run
        late.
        """
        with self._lock:
            if self._late >= _MAX_LATE:
                raise TimeoutError(
                    f"{self._late} earlier texts are still being judged, past their time"
                )
        result: Future[_T] = Future()

        def work() -> None:
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)
            with self._lock:
                if late:
                    self._late -= 1

        late: list[bool] = []
        threading.Thread(target=work, name="lily-gate", daemon=True).start()
        try:
            # Not result(): a TimeoutError of the call itself must not look like a late call.
            error = result.exception(limit_s)
        except BaseException as waiting:  # late, or interrupted: the thread goes on alone
            with self._lock:
                if not result.done():
                    late.append(True)
                    self._late += 1
            if isinstance(waiting, Exception):
                raise TimeoutError(f"not judged within {limit_s:g} s") from None
            raise
        if error is not None:
            raise error
        return result.result()
