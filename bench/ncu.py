"""Nsight Compute: the command that profiles a program's kernels, and its CSV as a list of launches.

Every kernel is run alone, to its end, before the next begins. Knows no kernel of Lily.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2, REGISTERS = "lts__t_bytes.sum", "launch__registers_per_thread"
ACTIVE_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
NEEDED = (TIME, READ, WRITTEN)
ALL = (*NEEDED, L2, REGISTERS, ACTIVE_WARPS)

# To microseconds, bytes, and what has no unit; ncu has spelled units in two ways.
_UNITS = {
    **dict.fromkeys(("ns", "nsecond"), 1e-3),
    **dict.fromkeys(("us", "usecond"), 1.0),
    **dict.fromkeys(("ms", "msecond"), 1e3),
    **dict.fromkeys(("s", "second"), 1e6),
    **dict.fromkeys(("byte", "", "%", "register/thread"), 1.0),
    **dict.fromkeys(("Kbyte", "KB"), 1e3),
    **dict.fromkeys(("Mbyte", "MB"), 1e6),
    **dict.fromkeys(("Gbyte", "GB"), 1e9),
}


@dataclass(frozen=True)
class Launch:
    """One kernel as it ran; values in microseconds, bytes, registers and percent."""

    kernel: str
    grid: str
    block: str
    values: dict[str, float] = field(default_factory=dict)

    @property
    def microseconds(self) -> float:
        """From its begin to its end, alone on the GPU."""
        return self.values[TIME]

    @property
    def dram_bytes(self) -> float:
        """Read and written past the caches."""
        return self.values[READ] + self.values[WRITTEN]


def command(metrics: Sequence[str], log: Path, program: Sequence[str]) -> list[str]:
    """Profile what the program does between cuProfilerStart and cuProfilerStop.

    Clocks and caches are left as they are in use.
    """
    return [
        *("ncu", "--profile-from-start", "off", "--clock-control", "none"),
        *("--cache-control", "none", "--print-units", "base", "--csv", "--page", "raw"),
        *("--log-file", str(log), "--metrics", ",".join(metrics)),
        *program,
    ]


def parse(text: str) -> list[Launch]:
    """The launches, in order; raises ValueError where the text is not what `command` asks for."""
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if line.startswith('"ID",')]
    if not begins:
        said = " | ".join(line for line in lines if line.startswith("==")) or "nothing"
        raise ValueError(f"ncu wrote no table of kernels; it said: {said[-600:]}")
    body = [line for line in lines[begins[0] :] if not line.startswith("==")]
    header, units, *rows = csv.reader(body)
    metrics = {at: name for at, name in enumerate(header) if name in ALL}
    missing = [name for name in NEEDED if name not in metrics.values()]
    if missing:
        raise ValueError(f"ncu's table lacks {', '.join(missing)}")
    at = {name: header.index(name) for name in ("Kernel Name", "Grid Size", "Block Size")}
    found = []
    for row in rows:
        known = {place: name for place, name in metrics.items() if row[place] not in ("", "n/a")}
        values = {name: _number(row[place], units[place]) for place, name in known.items()}
        kernel, grid, block = (row[place] for place in at.values())
        if not set(NEEDED) <= set(values):
            raise ValueError(f"ncu could not measure all of {', '.join(NEEDED)} of '{kernel}'")
        found.append(Launch(kernel.split("(")[0], _extents(grid), _extents(block), values))
    if not found:
        raise ValueError("ncu profiled no kernel")
    return found


def _number(text: str, unit: str) -> float:
    if unit not in _UNITS:
        raise ValueError(f"ncu gave '{text}' in '{unit}', expected one of {', '.join(_UNITS)}")
    return float(text.replace(",", "")) * _UNITS[unit]


def _extents(text: str) -> str:
    """Turn "(96, 1, 1)" into "96x1x1"."""
    return "x".join(text.strip("()").replace(" ", "").split(","))
