"""``lily doctor`` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "lily", "doctor", "--quick", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_json():
    done = doctor("--device", "cpu", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 0
    assert {finding["result"] for finding in found["findings"]} == {"ok"}
    assert "Lily computes right here" in found["verdict"]


def test_text_ends_with_the_line_to_paste():
    done = doctor("--device", "cpu")
    assert done.returncode == 0
    assert "moe_grouped_down" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("lily ")


def test_the_parent_does_without_the_native_module():
    """Or one that does not load would take the doctor with it."""
    code = """
import sys
sys.modules["lily._native"] = None  # an import of it fails
import lily.cli, lily.doctor.examine, lily.doctor.show, lily.doctor.verdict
found = lily.doctor.examine.examine("cpu", quick=True)
sys.exit(lily.doctor.verdict.verdict(found).exit_code)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)
    assert done.returncode == 0


def test_wrong_name():
    done = doctor("--device", "gpu")
    assert done.returncode == 2
    assert "device 'gpu' is not known" in done.stderr
