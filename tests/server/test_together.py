"""Many at once: no cross-talk, no slot lost, memory flat."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil

from .http import chat, read_until
from .processes import wait_until

TOPICS = [
    *("a fox", "a king", "a red ball", "an old clock", "a boat", "a brave mouse", "the rain"),
    *("a lost key", "a garden", "two brothers", "a snowman", "a singing bird", "a shy dragon"),
    *("a market", "a blue kite", "the moon"),
]
CANCELS = 75  # `python -m bench server-cancels` makes a thousand


def bodies():
    return [chat(f"Tell me a story about {topic}.", max_tokens=24) for topic in TOPICS]


def message(server, body):
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["message"]


def test_sixteen_at_once_equal_their_serial_answers(server):
    alone = [message(server, body) for body in bodies()]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda body: message(server, body), bodies()))
    assert together == alone
    assert len({answer["content"] for answer in alone}) > 8


def test_sampled_answers_too(server):
    wanted = [{**body, "temperature": 1.0, "seed": n} for n, body in enumerate(bodies()[:8])]
    alone = [message(server, body) for body in wanted]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda body: message(server, body), wanted))
    assert together == alone


def test_a_short_one_is_not_kept_waiting_by_long_ones(server):
    long = chat("Tell me a long story.", stream=True, max_tokens=4000, ignore_eos=True)
    streams = [server.send(long) for _ in range(3)]
    for stream in streams:
        read_until(stream, b'"content":"')
    assert server.chat("What is 7 + 5?").json["choices"][0]["message"]["content"] == "7 + 5 = 12"
    assert server.metric("lily_running") == 3  # they go on
    for stream in streams:
        stream.close()
    wait_until(lambda: server.metric("lily_running") == 0, "all have stopped")


def test_random_cancels_leave_nothing_behind(server):
    process = psutil.Process(server.process.pid)
    rng = random.Random(5)
    body = chat("Tell me a long story.", stream=True, max_tokens=3000, ignore_eos=True)
    prompt = chat("word " * 3000, stream=True, max_tokens=3000)
    plans = [(rng.random(), rng.choice([0, 200, 3000, 20_000])) for _ in range(CANCELS)]

    def one(plan):
        kind, size = plan
        connection = server.send(prompt if kind < 0.3 else {**body, "stream": kind < 0.8})
        got = 0
        while kind < 0.8 and got < size:
            piece = connection.recv(4096)
            if not piece:
                break
            got += len(piece)
        connection.close()

    def run():
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, plans))
        wait_until(lambda: server.metric("lily_running") == 0, "none runs")
        wait_until(lambda: server.metric("lily_waiting") == 0, "none waits")

    run()  # sessions, threads and buffers are made
    files, threads = process.num_fds(), process.num_threads()
    run()
    wait_until(lambda: process.num_fds() <= files + 2, "no file is left open")
    assert process.num_threads() <= threads
    assert server.chat("What is 7 + 5?").json["choices"][0]["message"]["content"] == "7 + 5 = 12"


def test_the_title_request_beside_the_main_stream(server):
    """What chat apps do: name the chat while its first answer still comes."""
    main = chat("Tell me a story about a fox.", max_tokens=80)
    title = chat("What is 7 + 5?")
    alone = message(server, main), message(server, title)
    found = {}
    threads = [
        threading.Thread(
            target=lambda name=name, body=body: found.update({name: message(server, body)})
        )
        for name, body in (("main", main), ("title", title))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found["main"], found["title"]) == alone
