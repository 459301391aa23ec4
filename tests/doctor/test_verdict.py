"""The sentence, the exit code and the line, for examinations as they might be elsewhere."""

from __future__ import annotations

import io

import pytest
from lily import machine
from lily.doctor.examine import DeviceState, Examination, Figure, Finding
from lily.doctor.show import show
from lily.doctor.verdict import INCOMPLETE, SOUND, WRONG, report_line, verdict
from rich.console import Console

MAC = {
    "chip": "Apple M3 Max",
    "gpu_cores": 40,
    "cores": 16,
    "memory_bytes": 64_000_000_000,
    "os": "macOS 15.3 (24D60) arm64",
    "python": "3.12.4 arm64",
    "lily": "0.1.0",
    "numpy": "2.1",
}


def finding(device, result="ok", kernel="linear_norm"):
    """One check."""
    return Finding(device, kernel, "Qwen3.6-35B-A3B", "1x2", result, "said", share=0.1)


def examination(*findings, asked="auto", metal=True):
    """Of a Mac."""
    why = "the library has no kernel 'x'"
    devices = [
        DeviceState("metal", metal, "Apple M3 Max", "bf16", 48_000_000_000, "" if metal else why),
        DeviceState("cpu", True, "CPU, neon, 16 threads", "f32", 64_000_000_000),
    ]
    return Examination(MAC, False, asked, devices, list(findings))


@pytest.fixture(autouse=True)
def _on_apple_silicon(monkeypatch):
    monkeypatch.setattr(machine, "is_apple_silicon", lambda: True)


def test_all_right():
    found = examination(finding("cpu"), finding("metal"), finding("metal"))
    assert verdict(found).exit_code == SOUND
    assert (
        "1 checks on cpu agree with NumPy in float64 and 2 checks on metal agree with the CPU"
        in (verdict(found).sentence)
    )


def test_a_wrong_gpu():
    found = examination(finding("cpu"), finding("metal", "wrong"), finding("metal"))
    told = verdict(found)
    assert told.exit_code == WRONG
    assert "metal fails 1 of 2 checks (linear_norm): use --device cpu" in told.sentence


def test_a_wrong_reference():
    """What agrees with a wrong CPU is not recommended."""
    told = verdict(examination(finding("cpu", "wrong"), finding("metal")))
    assert told.exit_code == WRONG
    assert "no device is to be trusted" in told.sentence


def test_a_mac_without_its_device():
    found = examination(finding("cpu"), metal=False)
    told = verdict(found)
    assert told.exit_code == INCOMPLETE
    assert told.sentence.startswith("The device metal is not there (the library has no kernel")
    assert told.sentence.endswith("cpu works.")
    assert "metal absent: the library has no kernel 'x'" in report_line(found)
    alone = verdict(examination(finding("cpu"), asked="cpu", metal=False))
    assert alone.exit_code == SOUND


def test_checks_that_did_not_run():
    told = verdict(examination(finding("cpu"), finding("metal", "skipped")))
    assert told.exit_code == INCOMPLETE
    assert "1 of 2 checks did not run (linear_norm: said)" in told.sentence


def test_what_is_shown():
    """Machine, devices, a row a kernel, every finding in full, and the line at the end."""
    found = examination(finding("cpu"), finding("metal", "wrong"), finding("metal"))
    found.copy_gb_per_s = 180.0
    found.figures.append(Figure("metal", "sample_logits", "Qwen3.6-35B-A3B: 2x2", 900.0, 317.6))
    text = io.StringIO()
    show(Console(file=text, width=160), found)
    lines = [" ".join(line.split()) for line in text.getvalue().splitlines()]
    assert (
        "memory 64.0 GB, the CPU copies 180 GB/s, read and written, "
        "metal reads lm_head at 318 GB/s, Apple states 400 or 300 GB/s"
    ) in lines
    assert "metal there: Apple M3 Max, bf16 activations, can hold 48.0 GB" in lines
    assert "linear_norm 1/2 10% of allowed" in lines
    assert "WRONG: metal linear_norm [Qwen3.6-35B-A3B: 1x2]" in lines
    assert lines[-1] == report_line(found)


def test_the_line():
    found = examination(finding("cpu"), finding("metal", "hung"), finding("metal"))
    found.figures.append(Figure("metal", "sample_logits", "Qwen3.6-35B-A3B: 2x2", 900.0, 317.6))
    assert report_line(found) == (
        "lily 0.1.0 | macOS 15.3 (24D60) arm64 | Apple M3 Max, 40 GPU cores | 64.0 GB | "
        "python 3.12.4 arm64 | cpu 1/1 | metal 1/2 | "
        "hung on metal: linear_norm [Qwen3.6-35B-A3B: 1x2] | sample_logits 318 GB/s on metal"
    )
