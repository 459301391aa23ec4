"""The watchdog alone: order, limits, and children that do not keep to the form."""

from __future__ import annotations

import sys
import time

import pytest
from lily.watch import run_jobs

ANSWERS = """
import json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)["job"]
    if job == "sleep":
        time.sleep(100)
    if job == "die":
        os.abort()
    print(json.dumps({"ok": job != "bad", "pid": os.getpid()}), flush=True)
"""


def results(jobs, **options):
    """What became of these jobs."""
    command = [sys.executable, "-c", ANSWERS]
    return list(run_jobs(command, jobs, limit_s=lambda _: 0.5, **options))


def test_a_child_lives_while_all_goes_well():
    found = results(["a", "b", "bad", "c"])
    pids = [result.data["pid"] for result in found]
    assert [result.status for result in found] == ["done"] * 4
    assert pids[0] == pids[1] == pids[2] != pids[3]


def test_lost_children_do_not_cost_the_others():
    begin = time.monotonic()
    found = results(["a", "die", "b", "sleep", "c"])
    assert [result.status for result in found] == ["done", "crashed", "done", "hung", "done"]
    assert "SIGABRT" in found[1].detail
    assert time.monotonic() - begin < 30  # and not the 100 s of the sleeper


def test_every_fresh_child_starts_with_the_same_job():
    """And a start that is lost is the result of the job whose turn it was."""
    found = results(["a", "bad", "b"], first="start")
    assert [result.status for result in found] == ["done"] * 3
    found = results(["a", "b"], first="die")
    assert [(result.job, result.status) for result in found] == [("a", "crashed"), ("b", "crashed")]
    assert found[0].detail.startswith("at its start: the process died of SIGABRT")


def test_too_many_losses_end_it():
    found = results(["die", "die", "a", "b"], most_lost=2)
    assert [result.status for result in found] == ["crashed", "crashed", "not run", "not run"]


@pytest.mark.parametrize("command", [["-c", "pass"], ["-c", "import sys; sys.exit(3)"]])
def test_a_child_that_never_answers(command):
    (found,) = run_jobs([sys.executable, *command], ["a"], limit_s=lambda _: 5)
    assert found.status == "crashed"
