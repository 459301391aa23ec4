"""Where checks of the mutation test are entered by name. It knows no kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Check:
    """A kernel file, the kernels of it that a check runs, and the check: run(device, rng)."""

    source: str
    kernels: tuple[str, ...]
    run: Callable[..., None]


CHECKS: dict[str, Check] = {}


def check(source: str, *kernels: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function under its name; the tests that it calls are imported when it runs."""

    def enter(run: Callable[..., None]) -> Callable[..., None]:
        CHECKS[run.__name__] = Check(source, kernels, run)
        return run

    return enter
