"""Ray Data with one engine an actor, on a local Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import lily
import pytest
from lily.engine import Engine

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'lily-engine[ray]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two processors of this machine; its workers import the lily that is under test."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    package = str(Path(lily.__file__).parents[1])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": package}},
    )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_rows_are_answered_as_by_the_engine():
    """Strings and messages alike, each row its own answer; a bad row fails alone."""
    from lily.integrations.ray import answer

    options = {"max_tokens": 8, "temperature": 0}
    prompts = ["What is 7 + 5?", "Once upon a time", ""]
    rows = ray.data.from_items([{"prompt": text, "row": at} for at, text in enumerate(prompts)])
    found = answer(rows, generate=options, load={"threads": 1}, parallel=2).take_all()
    found.sort(key=lambda row: row["row"])
    with Engine.load(threads=1) as engine:
        for row in found[:2]:
            assert row["error"] == ""
            assert row["text"] == engine.generate(row["prompt"], **options).text
    assert found[2]["text"] == ""
    assert found[2]["error"].startswith("InvalidInput: ")


@pytest.mark.usefixtures("cluster")
def test_messages_are_a_chat():
    """A column of conversations goes through the chat template."""
    from lily.integrations.ray import answer

    messages = [{"role": "user", "content": "What is 7 + 5?"}]
    options = {"max_tokens": 8, "temperature": 0}
    rows = ray.data.from_items([{"talk": messages}])
    found = answer(rows, column="talk", generate=options, load={"threads": 1}).take_all()
    with Engine.load(threads=1) as engine:
        assert found[0]["text"] == engine.generate(messages, **options).text
