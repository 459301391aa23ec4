"""Child processes under a watchdog: a job that hangs or kills its process becomes a result.

A child gets one job after another, a line each on stdin, and answers each with a line of JSON on
stdout. It lives as long as all goes well; after a job that was lost, or that went wrong, the next
one gets a fresh process. Knows no job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_GRACE_S = 1.0  # past the limit, in which the child itself says where it hangs
# What faulthandler writes: the innermost frame is the first.
_FRAME = re.compile(r'most recent call first\):\n\s*File "[^"]*?([^"/]+)", (line \d+) in (\S+)')
_SHOWN = 300  # characters of what a lost child wrote last


@dataclass(frozen=True)
class Result:
    """What became of a job: status "done", "hung", "crashed" or "not run"."""

    job: str
    status: str
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)
    detail: str = ""


def run_jobs(
    command: Sequence[str],
    jobs: Iterable[str],
    *,
    limit_s: Callable[[str], float],
    first: str = "",
    most_lost: int = 3,
) -> Iterator[Result]:
    """Run jobs in order; gives a result for each, whatever happens to the children.

    Every fresh child is asked the job `first` before any other, which so has a limit of its own;
    where it is lost, the job whose turn it was shares its result. After `most_lost` lost children
    in all, the remaining jobs are not run.
    """
    child: _Child | None = None
    lost = 0
    try:
        for job in jobs:
            if lost >= most_lost:
                detail = f"not run: {lost} jobs before it hung or crashed"
                yield Result(job, "not run", detail=detail)
                continue
            result = None
            if child is None:
                child = _Child(command)
                result = child.ask(first, limit_s(first)) if first else None
            if result is None or result.status == "done":
                result = child.ask(job, limit_s(job))
            else:
                result = replace(result, job=job, detail=f"at its start: {result.detail}")
            lost += result.status in ("hung", "crashed")
            if result.status != "done" or not result.data.get("ok", True):
                child.end()
                child = None
            yield result
    finally:
        if child:
            child.end()


class _Child:
    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._unread = b""

    def ask(self, job: str, limit_s: float) -> Result:
        begin = time.monotonic()
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"job": job, "limit_s": limit_s}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._read_line(begin + limit_s + _GRACE_S)
        except (BrokenPipeError, EOFError):
            line = b""
        except TimeoutError:
            self.end()
            seconds = time.monotonic() - begin
            where = self._last_words()
            return Result(job, "hung", seconds, detail=f"no answer in {limit_s:g} s{where}")
        seconds = time.monotonic() - begin
        if not line:
            death = self._death()  # before the kill, which would be taken for it
            self.end()
            return Result(job, "crashed", seconds, detail=f"{death}{self._last_words()}")
        return Result(job, "done", seconds, json.loads(line))

    def end(self) -> None:
        """Kill the child and all that it started; it may be stuck in the kernel, so do not wait."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(_GRACE_S)
            except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                pass
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout
        source = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([source], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            more = os.read(source, 1 << 16)
            if not more:
                raise EOFError
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _death(self) -> str:
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return "the process closed its pipe and stays"
        if code >= 0:
            return f"the process ended with code {code}"
        try:
            return f"the process died of {signal.Signals(-code).name}"
        except ValueError:
            return f"the process died of signal {-code}"

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read()[-1 << 14 :].decode(errors="replace")
        frame = _FRAME.search(said)
        if frame:
            return f", in {frame[3]} ({frame[1]}, {frame[2]})"
        last = said.strip().splitlines()[-1:]
        return f": {last[0][:_SHOWN]}" if last else ""
