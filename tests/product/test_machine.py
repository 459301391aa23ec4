"""What macOS says of heat and power, from its tools' own output; asked on no Mac here."""

from __future__ import annotations

import pytest
from lily import machine

# As `pmset` prints on Apple Silicon and on Intel.
COOL = """Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
Note: No CPU power status has been recorded"""
SLOWED = """CPU_Scheduler_Limit \t= 100
\tCPU_Available_CPUs \t= 8
\tCPU_Speed_Limit \t= 71"""
MAINS = "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t100%; charged; 0:00 remaining"
BATTERY = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t63%; discharging"


def on_a_mac(monkeypatch, *, therm=COOL, batt=MAINS, settings="", state="nominal"):
    """Answer for the system's tools."""
    answers = {"therm": therm, "batt": batt, None: settings}
    monkeypatch.setattr(machine, "is_mac", lambda: True)
    monkeypatch.setattr(machine, "thermal_state", lambda: state)
    monkeypatch.setattr(
        machine, "_output", lambda *words: answers[words[2] if len(words) > 2 else None]
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"state": None}, []),
        ({"state": "serious"}, ["the machine is hot: thermal state 'serious'"]),
        ({"therm": SLOWED}, ["pmset reports 'CPU_Speed_Limit \t= 71'"]),
        ({"batt": BATTERY}, ["the machine runs on its battery"]),
        ({"settings": " lowpowermode         1\n sleep 0"}, ["low power mode is on"]),
        ({"settings": " lowpowermode         0"}, []),
    ],
)
def test_unfit_to_measure(monkeypatch, changed, said):
    on_a_mac(monkeypatch, **changed)
    found = machine.unfit_to_measure()
    assert len(found) == len(said)
    for line, beginning in zip(found, said, strict=True):
        assert line.startswith(beginning)


def test_facts_name_nobody():
    """Neither the host nor its user."""
    import getpass
    import platform

    shown = str(machine.facts())
    assert platform.node() not in shown
    assert getpass.getuser() not in shown.lower().split()


def test_tools_that_are_missing(monkeypatch):
    """A system without its tools is one of which nothing is known."""
    monkeypatch.setattr(machine, "is_mac", lambda: True)
    monkeypatch.setenv("PATH", "")
    assert machine.unfit_to_measure() == []
    assert machine.chip() == "unknown"
    assert machine.gpu_cores() is None
