"""``lily bench --vs mlx-lm`` with both engines, on the model in the package."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("mlx_lm")
pytest.importorskip("matplotlib")


def test_both_engines(tmp_path):
    """One short length: figures of both, the same greedy tokens, a report with plots."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lily", "bench", "--vs", "mlx-lm", "--length", "12"),
            *("--tokens", "3", "--rounds", "1", "--cooldown", "0", "--out", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    names = [path.rpartition("/")[2] for path in done.stdout.split()]
    assert names == ["report.md", "report.json", "prefill.png", "decode.png"]
    found = json.loads((tmp_path / "report.json").read_text())
    assert [sample["engine"] for sample in found["samples"]] == ["lily", "mlx-lm"]
    ours, theirs = (sample["greedy"] for sample in found["samples"])
    assert len(ours) == 4
    assert ours == theirs
    assert "mlx-lm" in found["engines"]["mlx-lm"]
