"""The machine's own limits, measured in the same run as the kernels that are held against them.

Compiles ceilings.cpp with the system's compiler into a temporary folder. The limit is the best that
was seen, so that a share is never flattered by a slow moment of the probe.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("ceilings.cpp")
ROUNDS = 5


@dataclass
class Ceilings:
    """Samples for each number of threads; measure() adds to them whenever it is called."""

    megabytes: int
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=tempfile.TemporaryDirectory, repr=False
    )
    samples: dict[int, dict[str, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        compiler = os.environ.get("CXX", "c++")
        command = [compiler, "-O3", "-march=native", "-std=c++20", "-pthread", str(SOURCE)]
        done = subprocess.run(
            [*command, "-o", str(self._program)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"cannot compile {SOURCE.name}: {done.stderr.strip()}")

    @property
    def _program(self) -> Path:
        return Path(self._folder.name) / "ceilings"

    def measure(self, thread_counts: list[int]) -> None:
        """A few more rounds with each number of threads."""
        for threads in sorted(set(thread_counts)):
            command = [str(self._program), str(threads), str(self.megabytes), str(ROUNDS)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            known = self.samples.setdefault(threads, {})
            for name, values in json.loads(done.stdout).items():
                known.setdefault(name, []).extend(values)

    def limits(self, threads: int) -> dict[str, float]:
        """read_gb_per_s, and fma_gflop_per_s (two operations a multiply-add): the best rounds."""
        return {name: max(values) for name, values in self.samples[threads].items()}

    def as_dict(self) -> dict[str, object]:
        """For the result file."""
        return {
            "probe": f"ceilings.cpp, {self.megabytes} MiB, -O3 -march=native",
            "threads": {
                str(threads): {**self.limits(threads), "samples": samples}
                for threads, samples in sorted(self.samples.items())
            },
        }
