"""The process in which checks run: ``python -m lily.doctor.child DEVICE REFERENCE [quick]``.

Owns the jobs' names and answers. A job is a line of JSON on stdin, its answer a line on stdout;
whatever libraries print goes to stderr. REFERENCE is a device, or "numpy".
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from typing import Any


class Jobs:
    """What a child can do, on one device."""

    def __init__(self, device: str, reference: str, *, quick: bool) -> None:
        self._device, self._reference, self._quick = device, reference, quick
        self._opened: dict[str, Any] = {}

    def answer(self, job: str) -> dict[str, Any]:
        """Run one job by its name; "ok" says whether this process may go on."""
        verb, _, what = job.partition(" ")
        verbs: dict[str, Callable[[str], dict[str, Any]]] = {
            "list": self._list,
            "open": self._open,
            "check": self._check,
            "time": self._time,
            "greedy": self._greedy,
            "copy": self._copy,
        }
        return verbs[verb](what)

    def _list(self, _: str) -> dict[str, Any]:
        from lily.doctor.checks import all_checks
        from lily.doctor.shapes import REAL

        checks = all_checks(quick=self._quick)
        worth = [check for check in checks if check.moved_bytes and check.model == REAL.name]
        timed = [check.name for check in worth]
        return {"checks": [check.name for check in checks], "timed": timed}

    def _open(self, name: str) -> dict[str, Any]:
        from lily.errors import LilyError

        try:
            device = self._on(name)
        except LilyError as error:
            return {"there": False, "why": str(error)}
        facts: dict[str, str] = device.facts()
        return {
            "there": True,
            "description": device.description,
            "activation": device.activation_dtype,
            "memory_bytes": device.memory_total_bytes,
            "facts": {name: _without_home(fact) for name, fact in facts.items()},
        }

    def _on(self, name: str) -> Any:
        from lily._native import kernels

        if name not in self._opened:
            self._opened[name] = kernels.Device(name)
        return self._opened[name]

    def _find(self, name: str) -> Any:
        from lily.doctor.checks import all_checks

        (check,) = [check for check in all_checks(quick=self._quick) if check.name == name]
        return check

    def _check(self, name: str) -> dict[str, Any]:
        from lily.doctor.check import run
        from lily.machine import available_memory_bytes

        check = self._find(name)
        about = {"kernel": check.kernel, "model": check.model, "shape": check.shape}
        device = self._on(self._device)
        needed = 4 * check.needs_bytes  # NumPy's copies, and one for each device
        if needed > min(available_memory_bytes(), device.memory_available_bytes):
            why = f"needs {needed / 1e9:.1f} GB of free memory"
            return {**about, "result": "skipped", "detail": why, "ok": True}
        reference = None if self._reference == "numpy" else self._on(self._reference)
        outcome = run(check, device, reference)
        text, share = outcome.difference.text, outcome.difference.share
        return {
            **about,
            "launched": outcome.launched,
            "result": "wrong" if text else "ok",
            "share": share if share != float("inf") else None,
            "detail": text,
            "ok": not text,
        }

    def _time(self, name: str) -> dict[str, Any]:
        from lily.doctor.timing import measure

        return {"ok": True, **measure(self._find(name), self._on(self._device))}

    def _greedy(self, _: str) -> dict[str, Any]:
        from lily.doctor.whole_model import compare_greedy

        return compare_greedy(self._device, self._reference, quick=self._quick)

    def _copy(self, _: str) -> dict[str, Any]:
        from lily.doctor.timing import copy_gb_per_s

        return {"gb_per_s": copy_gb_per_s()}


def _without_home(text: str) -> str:
    """Findings are pasted into bug reports, and a home folder names its owner."""
    return text.replace(os.path.expanduser("~"), "~")


def main() -> None:
    """Answer jobs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    device, reference, *rest = sys.argv[1:]
    jobs = Jobs(device, reference, quick="quick" in rest)
    for line in sys.stdin:
        asked = json.loads(line)
        # Says where it hangs, just before the parent gives up; works while a kernel holds the GIL.
        faulthandler.dump_traceback_later(asked["limit_s"])
        try:
            found = jobs.answer(asked["job"])
        except Exception as error:
            found = {"ok": False, "result": "error", "detail": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
