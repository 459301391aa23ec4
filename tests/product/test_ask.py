"""``lily ask``: the answer, the steps, the question for consent, and the receipt.

The planner is a scripted server; the gate is the product's own, and the worker the model in the
package, of which nothing but its voice is expected.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time

import pytest

from tests.hybrid.parts import script
from tests.hybrid.planner import Fail, Say, ScriptedPlanner, Use

CARD = "4111 1111 1111 1111"
# What these tests are about are spans; where the model draws its line for topics is not.
TOPICS = "thresholds = {topic = 1.0, topic_unsure = 1.0}\n"
ASKS = 'categories.payment_card = {untrusted = "ask"}\n'


@pytest.fixture
def settings(tmp_path):
    """Writes the two files; returns the path of the hybrid's."""

    def made(planner, gate="", **more):
        (tmp_path / "gate.toml").write_text(TOPICS + gate)
        lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
        lines += [f'gate = "{tmp_path / "gate.toml"}"', "[worker]", "max_tokens = 8", "[planner]"]
        lines += [f'base_url = "{planner.base_url}"', 'model = "m"', "max_retries = 0"]
        (tmp_path / "hybrid.toml").write_text("\n".join(lines))
        return str(tmp_path / "hybrid.toml")

    return made


def lily(*arguments, home="/nowhere", stdin=""):
    """(exit code, stdout, stderr) of ``lily ask``."""
    command = [sys.executable, "-m", "lily", "ask", *arguments]
    env = {**os.environ, "HOME": str(home), "COLUMNS": "100"}
    done = subprocess.run(
        command, env=env, input=stdin, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_a_planner_a_worker_and_a_receipt(settings, tmp_path):
    """Answer to stdout, steps and summary to stderr, and the receipt is what left."""
    letter = tmp_path / "letter-from-ann.txt"
    letter.write_text("The fox went to the river. It was a quiet day.")

    def plan(messages):
        if messages[-1]["role"] == "tool":
            return Say(f"It went well for {messages[1]['content'].split()[-1]}")
        return Use([("ask_worker", {"handles": ["d1"], "request": "What happened?"})])

    with ScriptedPlanner(plan) as planner:
        task = f"Sum up the file. The card for it is {CARD}"
        paths = ("--settings", settings(planner), "--receipt", str(tmp_path / "r.json"))
        code, out, err = lily(task, "-f", str(letter), *paths)
    assert (code, out) == (0, f"It went well for {CARD}\n"), err
    for part in ("work", "where", "result", "plans", "planner", "this machine", "1 item masked"):
        assert part in err
    receipt = json.loads((tmp_path / "r.json").read_text())
    assert [each["body"].encode() for each in receipt["sent"]] == planner.bodies
    assert receipt["summary"] in " ".join(err.split())
    assert b"letter-from-ann" not in b"".join(planner.received)
    assert b"4111" not in b"".join(planner.received)


def test_no_settings(tmp_path):
    """All of it here, and it says so; the task may come from stdin."""
    code, out, err = lily("-", home=tmp_path, stdin="What is a volcano?")
    assert code == 0
    assert out.strip()
    assert "no planner is configured" in err
    assert "Nothing left this machine." in err


@pytest.mark.parametrize("option", ["--sensitive", None, "--yes"])
def test_who_is_asked(settings, option):
    """Without a terminal nobody can be asked; --yes agrees; --sensitive does not come so far."""
    with ScriptedPlanner(script(Say("Done."))) as planner:
        options = [option] if option else []
        code, _, err = lily(f"Pay {CARD}", *options, "--settings", settings(planner, ASKS))
        assert (code, bool(planner.received)) == (0, option == "--yes"), err
    assert ("Nothing left" in err) == (option != "--yes")


@pytest.mark.parametrize(("answer", "leaves"), [("y", True), ("n", False), ("", False)])
def test_the_question(settings, answer, leaves):
    """On a terminal: what would leave, where to, why; and nothing before the answer."""
    with ScriptedPlanner(script(Say("Done."))) as planner:
        command = ["ask", f"Pay {CARD}", "--settings", settings(planner, ASKS)]
        pid, terminal = pty.fork()
        if not pid:
            os.execve(
                sys.executable,
                [sys.executable, "-m", "lily", *command],
                {**os.environ, "COLUMNS": "100", "TERM": "dumb"},
            )
        shown = read_until(terminal, b"[y/N]")
        assert not planner.received
        os.write(terminal, answer.encode() + b"\n")
        shown += read_until(terminal, None)
        assert os.waitpid(pid, 0)[1] == 0
    text = shown.decode()
    assert "The task would be sent to planner:" in text
    assert re.search(r"Pay \[PAYMENT_CARD_1_\w{4}\]", text)
    assert "Ask first:" in text
    assert bool(planner.received) == leaves
    assert ("Nothing left this machine." in text) != leaves


def read_until(terminal, mark):
    """What the program shows, up to `mark` or to its end."""
    got, until = b"", time.monotonic() + 100
    while time.monotonic() < until:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side has ended
            piece = b""
        got += piece
        if not piece or (mark and mark in got):
            return got
    raise AssertionError(f"no {mark!r} in {got!r}")


@pytest.mark.parametrize(
    ("task", "reply", "code", "said"),
    [
        ("My password is Heliotrope#4471!", Say("x"), 1, "lily: not sent: Refuse: a password"),
        ("Go.", Fail(500), 1, "lily: the planner answers with status 500"),
        (" ", Say("x"), 2, "lily: the task is empty"),
    ],
)
def test_errors_are_one_line(settings, tmp_path, task, reply, code, said):
    """As of every command; the receipt has what had left by then."""
    with ScriptedPlanner(script(reply)) as planner:
        path = settings(planner, local_fallback=False)
        got, out, err = lily(task, "--settings", path, "--receipt", str(tmp_path / "r.json"))
        sent = json.loads((tmp_path / "r.json").read_text())["sent"]
        assert [each["body"].encode() for each in sent] == planner.bodies
    assert (got, out) == (code, "")
    assert err.splitlines()[-1].startswith(said)
    assert "Traceback" not in err


def test_a_missing_extra():
    """Its name and how to get it, instead of a traceback."""
    code = (
        "import sys; sys.modules['httpx2'] = None\n"
        "sys.argv = ['lily', 'ask', 'x']\n"
        "from lily.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "lily: lily ask needs the package httpx2; " + (
        "pip install 'lily-engine[hybrid]'\n"
    )
