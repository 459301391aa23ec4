"""`lily convert` on the command line: what it says, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from test_convert import make_checkpoint


def test_command_line(tmp_path: Path) -> None:
    source, target = make_checkpoint(tmp_path / "hf"), tmp_path / "mlx"
    command = [sys.executable, "-m", "lily", "convert", str(source), str(target), "--bits", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{target}: ")
    assert "bits a weight" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 2
    assert "not an empty folder" in again.stderr
