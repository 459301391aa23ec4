"""Work that the chosen tests of a file ask for, begun before the first of them: faults take seconds
each, and two at a time take half as long. Knows no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def under_way(
    request: pytest.FixtureRequest, jobs: dict[str, Callable[[Any], Any]]
) -> Iterator[dict[str, Future[Any]]]:
    """What `jobs`, by a test's parameter, give for its values; by the value's name, or itself."""
    with ThreadPoolExecutor(2) as pool:
        started: dict[str, Future[Any]] = {}
        for item in request.session.items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if item.fspath != request.fspath:
                continue
            for name in jobs.keys() & params.keys():
                value = params[name]
                started[getattr(value, "name", value)] = pool.submit(jobs[name], value)
        yield started
        pool.shutdown(cancel_futures=True)
