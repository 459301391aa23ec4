"""A thousand requests with random cancels: nothing may leak, and no place may stay taken.

Some clients leave at once, some while the prompt is computed, some within the answer, some stay.
Counted are files, threads and resident memory of the server, after a first part that fills its
caches, and at the end.
"""

from __future__ import annotations

import argparse
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.harness import Report, Summary
from bench.served import Served, timed_chat

_LEFT_S = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench server-cancels``."""
    parser.add_argument("--model", help="a folder; default: the model in the package")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--threads", type=int, help="of the engine; default: all")
    parser.add_argument("--name", default="server_cancels", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Send them all, count what is left, write the result file; fails on anything left over."""
    names = ("requests", "clients", "threads")
    report = Report("server-cancels", {name: getattr(arguments, name) for name in names})
    # A prefix cache so small that it is full before the first count.
    options = ["--parallel", "8", "--queue", "64", "--cache-bytes", str(2**26)]
    if arguments.threads:
        options += ["--threads", str(arguments.threads)]
    rng = random.Random(7)
    with Served(arguments.model, options) as server:
        _batch(server, rng, arguments.requests // 5, arguments.clients)
        before = _held(server)
        begin = time.perf_counter()
        _batch(server, rng, arguments.requests, arguments.clients)
        seconds = time.perf_counter() - begin
        after = _held(server)
        timed_chat(server, "Are you well?", 16)
    report.add({"what": f"{arguments.requests} requests"}, "s", Summary((seconds,)))
    report.extra |= {"model": server.model, "before": before, "after": after}
    print(f"before: {before}\nafter:  {after}")
    for what in ("files", "threads"):
        if after[what] > before[what]:
            raise RuntimeError(f"{what}: {before[what]} before, {after[what]} after")
    report.write(arguments.name)


def _batch(server: Served, rng: random.Random, number: int, clients: int) -> None:
    plans = [(rng.random(), rng.choice((0, 300, 3000, 20_000)), n) for n in range(number)]
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda plan: _one(server, *plan), plans))
    until = time.monotonic() + _LEFT_S
    while server.metric("lily_running") or server.metric("lily_waiting"):
        if time.monotonic() > until:
            raise RuntimeError("a place is still taken, and no client is left")
        time.sleep(0.05)


def _one(server: Served, kind: float, read_bytes: int, number: int) -> None:
    """One request and how it ends: 30 % long prompts, 20 % whole answers, 20 % that stay."""
    if kind < 0.2:
        timed_chat(server, f"Tell me a story, number {number}.", 32)
        return
    body = {
        "messages": [{"role": "user", "content": "word " * (3000 if kind < 0.5 else 10)}],
        "stream": kind < 0.8,
        "max_tokens": 2000,
        "ignore_eos": True,
    }
    got = 0
    with server.send(body) as connection:
        while kind < 0.8 and got < read_bytes:
            piece = connection.recv(4096)
            got += len(piece)
            if not piece:
                break


def _held(server: Served) -> dict[str, int]:
    """What the server holds now; zeros where the system does not tell."""
    folder = Path(f"/proc/{server.process.pid}")
    if not folder.exists():
        return {"files": 0, "threads": 0, "resident_bytes": 0}
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "files": len(list((folder / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "resident_bytes": int(status["VmRSS"].split()[0]) * 1024,
    }
