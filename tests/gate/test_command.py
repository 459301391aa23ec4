"""``lily gate``: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest
from lily import cli
from lily.cli.gate import EXIT_CODES
from lily.gate import Outcome, Subject, Topic, TopicFinding
from lily.gate import gate as gate_module

from .scripted import Scripted


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``lily gate ARGS`` with scripted detectors; returns exit code, stdout, stderr."""

    def call(*arguments, stdin=b"", **detectors):
        monkeypatch.setattr(gate_module, "BuiltIn", lambda country: Scripted(**detectors))
        monkeypatch.setattr(sys, "argv", ["lily", "gate", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as left:
            cli.main()
        out = capsys.readouterr()
        return left.value.code or 0, out.out, out.err

    return call


PERSONAL = [TopicFinding(Topic.LEGAL, Subject.PERSONAL, 0.9, 0.9)]
UNSURE = [TopicFinding(Topic.LEGAL, Subject.PERSONAL, 0.4, 0.9)]


@pytest.mark.parametrize(
    ("text", "topics", "outcome"),
    [
        (b"hello", (), "allow"),
        (b"ann@example.org", (), "mask"),
        (b"hello", UNSURE, "ask"),
        (b"hello", PERSONAL, "local"),
        (b"sk-abcdefgh1234", (), "refuse"),
    ],
)
def test_exit_codes(run, text, topics, outcome):
    code, out, err = run("-", stdin=text, topics=topics)
    assert code == EXIT_CODES[outcome]
    assert out.startswith("This ")
    assert err == ""


def test_every_outcome_has_an_exit_code():
    assert set(EXIT_CODES) == {one.value for one in Outcome}
    assert len(set(EXIT_CODES.values())) == len(Outcome)
    assert not {1, 2} & set(EXIT_CODES.values())


def test_json_of_a_file(run, tmp_path):
    (tmp_path / "t.txt").write_text("to ann@example.org")
    code, out, _ = run(tmp_path / "t.txt", "--json", "--destination", "api.example.com")
    said = json.loads(out)
    assert (code, said["outcome"], said["destination"]) == (10, "mask", "api.example.com")
    assert said["findings"][0]["category"] == "email"
    assert "ann@" not in out


def test_preview(run):
    code, out, _ = run("-", "--preview", stdin=b"to ann@example.org")
    assert code == 10
    assert "to ann@example.org" in out


def test_policy_needs_no_text(run, tmp_path):
    (tmp_path / "g.toml").write_text('categories.location = "ask"')
    code, out, _ = run("--policy", "--settings", tmp_path / "g.toml")
    assert code == 0
    assert "secret.live" in out
    assert "ask" in next(line for line in out.splitlines() if line.strip().startswith("location"))


def test_audit(run, tmp_path):
    run("-", "--audit", tmp_path / "log", stdin=b"ann@example.org")
    assert json.loads((tmp_path / "log").read_text())["outcome"] == "mask"


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        ((), b"", "no text is given"),
        (("none.txt",), b"", "none.txt cannot be read"),
        (("-",), b"\xff", "stdin cannot be read as UTF-8"),
        (("-", "--json", "--preview"), b"", "expected one of them"),
        (("-", "--settings", "none.toml"), b"", "cannot be read"),
    ],
)
def test_bad_input(run, arguments, stdin, said):
    code, out, err = run(*arguments, stdin=stdin)
    assert (code, out) == (2, "")
    assert said in err


def test_a_failing_detector_is_no_allow(run):
    def fail():
        raise RuntimeError

    code, out, _ = run("-", stdin=b"hello", fail=fail)
    assert code == EXIT_CODES["local"]
    assert "was not judged" in out
