"""Batches of requests from files: formats, resuming, and what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lily.batch import read_requests, run_batch
from lily.engine import Engine
from lily.errors import InvalidInput


def chat(number: int, **body: object) -> dict[str, object]:
    """A line of the input."""
    message = {"role": "user", "content": f"What is {number} + 1?"}
    return {
        "custom_id": f"q{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": [message], "max_tokens": 6, "temperature": 0, **body},
    }


def write(path: Path, *lines: object) -> Path:
    """JSON lines; strings as they are."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def load() -> Engine:
    """The model in the package."""
    return Engine.load(threads=1, max_sessions=2)


def answers(path: Path) -> dict[str, dict[str, object]]:
    """By custom_id; each once."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def text(answer: dict[str, object]) -> str:
    """What a chat answered."""
    return answer["response"]["body"]["choices"][0]["message"]["content"]  # type: ignore[index]


def test_batch_answers_as_the_engine(tmp_path):
    """Every line once, with the engine's own greedy answer; a bad request fails alone."""
    source = write(tmp_path / "in.jsonl", chat(1), chat(2), chat(3, messages="no"))
    seen = []
    report = run_batch(
        source, tmp_path / "out", load, parallel=2, progress=lambda *n: seen.append(n)
    )
    assert (report.answered, report.skipped, report.failed) == (3, 0, 1)
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    found = answers(tmp_path / "out")
    assert found["q3"]["response"]["status_code"] == 400
    with load() as engine:
        for number in (1, 2):
            messages = chat(number)["body"]["messages"]
            assert (
                text(found[f"q{number}"])
                == engine.generate(messages, max_tokens=6, temperature=0).text
            )


def test_batch_resumes(tmp_path):
    """What stands in the output is not asked again, but for a line that was cut off."""
    source = write(tmp_path / "in.jsonl", chat(1), chat(2), chat(3))
    run_batch(source, tmp_path / "out", load)
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    kept = json.loads(lines[0])
    (tmp_path / "out").write_text(lines[0] + "\n" + lines[1][:40], encoding="utf-8")
    report = run_batch(source, tmp_path / "out", load)
    assert (report.answered, report.skipped) == (2, 1)
    found = answers(tmp_path / "out")
    assert found.keys() == {"q1", "q2", "q3"}
    assert found[kept["custom_id"]]["id"] == kept["id"]

    def never() -> Engine:
        raise AssertionError("there is nothing to do")

    assert run_batch(source, tmp_path / "out", never).skipped == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is a list, expected an object"),
        ({**chat(2), "custom_id": 7}, "line 2: custom_id is 7"),
        (chat(1), "line 2: custom_id 'q1' was used before"),
        ({**chat(2), "url": "/v1/embeddings"}, "line 2: url is '/v1/embeddings'"),
        ({**chat(2), "method": "GET"}, "line 2: method is 'GET'"),
        ({**chat(2), "body": 1}, "line 2: body is a int"),
        (chat(2, stream=True), "line 2: body.stream is set"),
    ],
)
def test_batch_refuses_before_it_runs(tmp_path, line, said):
    """The message names the line."""
    with pytest.raises(InvalidInput, match=said.replace("(", r"\(").replace("[", r"\[")):
        read_requests(write(tmp_path / "in.jsonl", chat(1), line))


def test_batch_refuses_wrong_files(tmp_path):
    """No input, an output of something else, one file for both."""
    source = write(tmp_path / "in.jsonl", chat(1))
    with pytest.raises(InvalidInput, match="No such file"):
        run_batch(tmp_path / "none", tmp_path / "out", load)
    with pytest.raises(InvalidInput, match="line 1 is no batch answer"):
        run_batch(source, write(tmp_path / "notes", "hello"), load)
    with pytest.raises(InvalidInput, match="the same file"):
        run_batch(source, source, load)


def test_batch_passes_a_failed_load_on(tmp_path):
    """An engine that does not load is an error of the batch."""

    def fails() -> Engine:
        return Engine.load(tmp_path / "nothing")

    with pytest.raises(InvalidInput):
        run_batch(write(tmp_path / "in.jsonl", chat(1)), tmp_path / "out", fails)
