"""Servers for tests: a process with the model in the package, and one in a thread with a script.

The process is what users run; most tests share it. The scripted engine stands in where a test must
decide itself when a token comes.
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from lily.engine import Engine

from .processes import ServerProcess
from .scripted import ScriptedServer


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """One ``lily serve`` for all tests that leave it as they found it."""
    # One thread: with two, a step waits whenever a busy machine takes one of them away.
    options = ["--threads", "1", "--parallel", "8", "--read-timeout", "2", "--keep-alive", "1"]
    with ServerProcess(*options) as process:
        yield process


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's own client; nothing but the base URL is particular."""
    with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The same model in this process, to compare with."""
    with Engine.load(threads=1) as made:
        yield made


@pytest.fixture
def scripted() -> Iterator[type[ScriptedServer]]:
    """Makes servers in a thread; they are stopped after the test."""
    made: list[ScriptedServer] = []

    class Made(ScriptedServer):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            made.append(self)

    yield Made
    for one in made:
        one.stop()
