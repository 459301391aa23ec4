"""The order of a run, its gates, and what ends it; with engines that compute nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lily import machine
from lily.versus.measure import Comparison, compare
from lily.versus.plan import Plan
from lily.versus.report import as_dict, markdown, write_report

FAKE = str(Path(__file__).with_name("fake_engine.py"))
RATES = {"lily": 30, "mlx-lm": 20}


def plan(**changed) -> Plan:
    """Two lengths, two rounds, no pauses."""
    given = {
        "model": Path("nowhere"),
        "name": "toy",
        "device": "cpu",
        "lengths": (256, 1024),
        "left_out": (),
        "tokens": 4,
        "rounds": 2,
        "cooldown_s": 0.0,
        "weights_bytes": 1,
        "vocab": 100,
    }
    return Plan(**given | changed)


def run(faults=(), **options) -> tuple[Comparison, list[str]]:
    """A comparison of fakes, and what was said on the way."""
    said: list[str] = []
    given = options.pop("plan", plan())

    def command(engine, _):
        return [sys.executable, FAKE, engine, str(RATES[engine]), dict(faults).get(engine, "none")]

    options.setdefault("gate", list)
    return compare(given, command=command, progress=said.append, **options), said


@pytest.fixture(scope="module")
def whole() -> tuple[Comparison, list[str]]:
    """A run in which nothing goes wrong."""
    return run()


def test_engines_take_turns(whole):
    found, said = whole
    order = [sample.engine for sample in found.samples]
    assert order == ["lily", "mlx-lm", "mlx-lm", "lily"] * 2
    assert [sample.length for sample in found.samples] == [256] * 4 + [1024] * 4
    assert said[0] == "256 tokens, round 1 of 2: lily"
    assert found.broken_off == ""
    assert found.complete_lengths() == [256, 1024]


def test_figures(whole):
    found, _ = whole
    assert found.median("lily", 256, "decode") == pytest.approx(30)
    assert found.median("mlx-lm", 1024, "prefill") == pytest.approx(200)
    assert found.agreement(256) == 4  # of 5: the last differs


def test_report(whole, tmp_path):
    found, _ = whole
    names = [path.name for path in write_report(found, tmp_path)]
    assert names == ["report.md", "report.json", "prefill.png", "decode.png"]
    text = (tmp_path / "report.md").read_text()
    assert "| 1,024 | 300.0 (300.0 to 300.0) | 200.0 (200.0 to 200.0) | 1.500 |" in text
    assert "of 5: 256: 4; 1,024: 4" in text
    assert "nowhere" not in text + (tmp_path / "report.json").read_text()
    saved = json.loads((tmp_path / "report.json").read_text())
    assert len(saved["samples"]) == 8
    for name in names[2:]:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unsteady", "other greedy tokens for the same 256 ids in another round"),
        ("crash", "mlx-lm at 256 tokens: crashed: the process died of SIGABRT"),
        ("error", "mlx-lm at 256 tokens: OutOfMemory: no memory"),
    ],
)
def test_what_ends_a_run(fault, said, tmp_path):
    """What was measured is kept, and the report says on top that it is not all."""
    found, _ = run([("mlx-lm", fault)])
    assert said in found.broken_off
    assert found.complete_lengths() == []
    assert [path.name for path in write_report(found, tmp_path)] == ["report.md", "report.json"]
    assert f"broken off: {found.broken_off}" in markdown(found)
    assert as_dict(found)["samples"]


def test_figures_of_an_unsteady_engine_are_not_shown():
    """Not even where all its rounds were run before it was seen."""
    found, _ = run([("lily", "unsteady")], plan=plan(lengths=(256,)))
    assert len(found.samples) == 4
    assert "lily gave other greedy tokens" in found.broken_off
    assert found.complete_lengths() == []
    assert "| 256 |" not in markdown(found)


def test_a_machine_that_became_hot(monkeypatch):
    """What was measured meanwhile is named."""
    monkeypatch.setattr(machine, "thermal_state", lambda: "serious")
    found, _ = run(plan=plan(lengths=(256,), rounds=1))
    text = markdown(found)
    assert "lily at 256 tokens, round 1, ended with the thermal state 'serious'" in text


def test_waits_for_a_hot_machine():
    """And says for how long and why."""
    states = iter([["hot"], ["hot"], []])
    found, _ = run(gate=lambda: next(states, []), longest_wait_s=0.2)
    assert len(found.waits) == 1
    assert found.waits[0].endswith("s: hot")
    assert found.complete_lengths() == [256, 1024]
    assert "Waited 0 s: hot." in markdown(found)


def test_gives_a_hot_machine_up():
    found, _ = run(gate=lambda: ["the machine is hot"], longest_wait_s=0.05)
    assert "the machine is hot" in found.broken_off
    assert found.samples == []


def test_left_out_lengths_are_named():
    found, _ = run(plan=plan(lengths=(256,), left_out=((131_072, "too little memory"),)))
    assert "131,072 tokens were left out: too little memory." in markdown(found)
