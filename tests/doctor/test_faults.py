"""Every fault becomes a finding that names kernel and shape; everything else is still checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lily._native import kernels as native
from lily.doctor.examine import GREEDY, Examination, examine, limit_s
from lily.doctor.verdict import INCOMPLETE, SOUND, WRONG, report_line, verdict
from lily.errors import DeviceError, InvalidInput

PLANTED = str(Path(__file__).with_name("planted.py"))
HANG_LIMIT_S = 1.0


def has_fibers() -> bool:
    """Whether the second device for tests is in this build."""
    try:
        native.Device("fibers")
    except DeviceError:
        return False
    return True


def with_fault(fault: str, device: str) -> Examination:
    """A quick examination in which one kernel of one device has a fault."""

    def command(name: str, reference: str, quick: bool) -> list[str]:
        script = [PLANTED, fault] if name == device else ["-m", "lily.doctor.child"]
        return [sys.executable, *script, name, reference, *(["quick"] if quick else [])]

    def limit(job: str) -> float:
        struck = "open" if fault.endswith("@open") else "norm_rms"
        hangs = fault.startswith(("hang", "sleep")) and struck in job
        return HANG_LIMIT_S if hangs else limit_s(job)

    return examine(device, quick=True, command=command, limit=limit)


@pytest.fixture(scope="module")
def sound() -> Examination:
    """A quick examination of the CPU as it is."""
    return examine("cpu", quick=True)


def test_a_sound_device(sound):
    """Every kernel has a check that ran, with an error that was measured."""
    told = verdict(sound)
    assert told.exit_code == SOUND, told.sentence
    assert all(finding.result == "ok" for finding in sound.findings)
    assert all(finding.share is not None and finding.share < 1 for finding in sound.findings)
    assert any(finding.share for finding in sound.findings)


def test_every_kernel_is_checked(sound):
    """What kernels launch: each operation of the native module is in some check."""
    operations = {
        name for name in dir(native) if callable(getattr(native, name)) and name.islower()
    } - {"isas"}
    launched = "+".join(finding.launched for finding in sound.findings)
    # attention_merge is launched with attention_decode.
    missing = {name for name in operations if name not in launched and name != "linear"
               and name not in ("linear_norm", "linear_add")}  # fmt: skip
    assert not missing
    for name in ("linear_gemv_norm", "linear_gemv_add", "linear_gemm_q4", "linear_gemm_add"):
        assert name in launched


FAULTS = [
    ("wrong", "wrong", "past"),
    ("unwritten", "wrong", "not finite or not written"),
    ("stray", "error", "wrote past 'y'"),
    ("unsteady", "wrong", "two runs differ in extra"),
    ("fail", "error", "the command buffer was aborted"),
    ("crash", "crashed", "SIGSEGV, in string_at"),
    ("exit", "crashed", "ended with code 7"),
    ("hang", "hung", "no answer in 1 s, in hang_with_the_gil"),
    ("sleep", "hung", "no answer in 1 s"),
]
# All of them on the CPU; on the other device two, for it is slow.
CASES = [("cpu", *fault) for fault in FAULTS]
CASES += [("fibers", *fault) for fault in FAULTS if has_fibers() and fault[0] in ("wrong", "hang")]


@pytest.mark.parametrize(("device", "fault", "result", "said"), CASES)
def test_a_fault_is_named(device, fault, result, said):
    """Kernel, shape, kind and size; the sentence and the line say it too."""
    found = with_fault(fault, device)
    bad = [finding for finding in found.findings if finding.is_bad]
    assert [(f.device, f.kernel, f.shape, f.result) for f in bad] == [
        (device, "norm_rms", "33x384", result)
    ]
    assert said in bad[0].detail
    others = [finding.kernel for finding in found.of(device) if finding.result == "ok"]
    assert others == ["embed_rows", "moe_sort", GREEDY]  # nothing else was lost
    told = verdict(found)
    assert told.exit_code == WRONG
    assert f"{device} fails 1 of" in told.sentence
    assert "norm_rms" in told.sentence
    assert f"{result} on {device}: norm_rms [lily-tiny: 33x384]" in report_line(found)


@pytest.mark.parametrize(
    ("fault", "kind"), [("crash@open", "crashed"), ("fail@open", "error"), ("hang@open", "hung")]
)
def test_a_module_that_does_not_start(fault, kind):
    """Nothing can be opened: one finding a device, and no exception."""
    found = with_fault(fault, "cpu")
    assert {finding.result for finding in found.findings} == {kind}
    assert not any(state.there for state in found.devices)
    told = verdict(found)
    assert told.exit_code == WRONG
    assert "no device is to be trusted" in told.sentence


def test_a_device_that_is_not_there():
    """It is said why, and the exit code is not that of a fault."""
    found = examine("metal" if sys.platform != "darwin" else "cuda", quick=True)
    told = verdict(found)
    assert told.exit_code == INCOMPLETE
    assert "is not there (" in told.sentence
    assert found.findings == []


def test_a_device_that_is_none():
    """As everywhere, what was given and what is known."""
    with pytest.raises(InvalidInput, match="device 'gpu' is not known; expected auto, metal"):
        examine("gpu")


def test_the_line_is_one_line(sound):
    """And names neither this machine nor anybody."""
    line = report_line(sound)
    assert "\n" not in line
    assert f"cpu {len(sound.findings)}/{len(sound.findings)}" in line
    assert "quick" in line
