"""The server under load: one client against many, total tokens a second and time to first token.

Every client sends its requests one after another and reads each stream to its end; no two prompts
share more than the chat template's first tokens. The clients run in one other process of the same
machine, whose processor time the server has not got.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from bench.harness import Report, Summary
from bench.served import Served, Timed, timed_chat

_WORDS = "fox king ball clock boat mouse rain key garden brother bird dragon kite moon river tree"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench server``."""
    parser.add_argument("--model", help="a folder; default: the model in the package")
    parser.add_argument("--clients", default="1,8", help="arms, by their number of clients")
    parser.add_argument("--requests", type=int, default=16, help="in each arm and round")
    parser.add_argument("--prompt-words", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--threads", type=int, help="of the engine; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="server", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure all arms in turn and write the result file."""
    arms = [int(number) for number in arguments.clients.split(",")]
    names = ("requests", "prompt_words", "tokens", "threads", "rounds")
    report = Report("server", {"clients": arms, **{n: getattr(arguments, n) for n in names}})
    options = ["--parallel", str(max(arms)), "--queue", str(arguments.requests)]
    if arguments.threads:
        options += ["--threads", str(arguments.threads)]
    rng = random.Random(1)
    rounds: dict[int, list[tuple[float, list[Timed]]]] = {number: [] for number in arms}
    with Served(arguments.model, options) as server:
        report.extra["model"] = server.model
        for turn in range(arguments.rounds + 1):
            for number in arms:
                done = _arm(server, number, arguments, rng)
                if turn:  # the first round warms up
                    rounds[number].append(done)
    for number in arms:
        _add(report, number, rounds[number])
    if len(arms) > 1:
        most, least = (statistics.median(_rates(rounds[n])) for n in (max(arms), min(arms)))
        report.extra["throughput_ratio"] = round(most / least, 3)
        print(f"{max(arms)} clients: {most / least:.2f} of the throughput of {min(arms)}")
    report.write(arguments.name)


def _arm(
    server: Served, clients: int, arguments: argparse.Namespace, rng: random.Random
) -> tuple[float, list[Timed]]:
    """Seconds for all requests, and each of them."""
    words = _WORDS.split()
    texts = [
        " ".join(rng.choice(words) for _ in range(arguments.prompt_words))
        for _ in range(arguments.requests)
    ]
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        done = list(pool.map(lambda text: timed_chat(server, text, arguments.tokens), texts))
    return time.perf_counter() - begin, done


def _rates(rounds: list[tuple[float, list[Timed]]]) -> list[float]:
    return [sum(one.tokens for one in done) / seconds for seconds, done in rounds]


def _add(report: Report, clients: int, rounds: list[tuple[float, list[Timed]]]) -> None:
    labels = {"clients": clients}
    report.add({**labels, "what": "throughput"}, "tokens/s", Summary(tuple(_rates(rounds))))
    firsts = [[one.first_s for one in done] for _, done in rounds]
    report.add(
        {**labels, "what": "time to first token"},
        "s",
        Summary(tuple(statistics.median(each) for each in firsts)),
        worst=max(map(max, firsts)),
        best=min(map(min, firsts)),
    )
