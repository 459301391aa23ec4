"""What a figure depends on besides the code: the machine, its load, versions and the commit.

Records no host name and no path, so that results can be published as they are.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lily.machine import available_memory_bytes as available_memory_bytes
from lily.machine import chip, memory_bytes

ROOT = Path(__file__).resolve().parent.parent

# Instruction sets that decide which kernels run, here or in a peer.
_ISA_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
_PACKAGES = ("lily-engine", "numpy", "torch", "transformers", "mlx", "mlx-lm")


def facts() -> dict[str, object]:
    """Everything that belongs next to a figure, as it is now."""
    return {
        "utc": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        "cpu": chip(),
        "isa": isa_flags(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "virtual_machine": "hypervisor" in _cpu_flags(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "memory_bytes": memory_bytes(),
        "os": operating_system(),
        "load_average_at_start": load_average(),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def load_average() -> list[float]:
    """Runnable tasks over 1, 5 and 15 minutes; above the number of cores, figures are noise."""
    return [round(value, 2) for value in os.getloadavg()]


@dataclass(frozen=True)
class CpuTime:
    """Processor time since the machine started, in seconds over all cores; zeros if not told."""

    total: float
    busy: float  # by anybody, and by other guests of the host
    own: float  # by this process and its children that have ended

    @staticmethod
    def now() -> CpuTime:
        """As it is now."""
        own = sum(os.times()[:4])
        for line in _lines(Path("/proc/stat")):
            if line.startswith("cpu "):
                # user nice system idle iowait irq softirq steal
                ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in line.split()[1:9]]
                return CpuTime(sum(ticks), sum(ticks) - ticks[3] - ticks[4], own)
        return CpuTime(0.0, 0.0, own)

    def foreign_share(self) -> float | None:
        """What others took of all processor time since then; None where the system is silent."""
        now = CpuTime.now()
        total = now.total - self.total
        if total <= 0:
            return None
        foreign = (now.busy - self.busy) - (now.own - self.own)
        return round(max(foreign, 0.0) / total, 4)


def usable_cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def operating_system() -> str:
    """System, version to the minor number, and architecture."""
    release = ".".join(platform.release().split(".")[:2])
    return f"{platform.system()} {platform.mac_ver()[0] or release} {platform.machine()}"


def isa_flags() -> list[str]:
    """Vector and matrix extensions, in the system's own spelling."""
    found = _cpu_flags()
    return [flag for flag in _ISA_FLAGS if flag in found]


def last_level_cache_bytes() -> int | None:
    """The largest cache that the system reports, shared or not; None where it does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    if not sizes and (text := _sysctl("hw.l2cachesize")):
        sizes.append(int(text))
    return max(sizes, default=None)


def resident_bytes() -> dict[str, int]:
    """Resident memory of this process: all of it, its own pages, and pages of mapped files.

    Empty where the system does not tell them apart. Not from /proc/self/status, whose counters lag.
    """
    found = {}
    for line in _lines(Path("/proc/self/smaps_rollup")):
        key, _, value = line.partition(":")
        if key in ("Rss", "Anonymous"):
            found[key] = int(value.split()[0]) * 1024
    if len(found) < 2:
        return {}
    rss, own = found["Rss"], found["Anonymous"]
    return {"rss_bytes": rss, "own_bytes": own, "file_bytes": rss - own}


def commit() -> str:
    """The commit that was measured, with a mark where files differed from it."""
    described = _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"])
    return described or "not committed"


def _ask_nvidia_smi(query: str) -> list[str]:
    """Lines of values; none where it is not."""
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def ask_gpu(fields: str) -> str | None:
    """What nvidia-smi says of the first GPU, in its own names of fields; None where it is not."""
    lines = _ask_nvidia_smi(f"gpu={fields}")
    return lines[0].strip() if lines else None


def gpu_used_bytes() -> int | None:
    """Memory of the first GPU that is in use, by anybody; None where no tool tells."""
    used_mib = ask_gpu("memory.used")
    return None if used_mib is None else int(used_mib) << 20


def gpu_own_bytes() -> int | None:
    """Memory of GPUs that this process holds; None where no tool tells processes apart."""
    for line in _ask_nvidia_smi("compute-apps=pid,used_memory"):
        pid, _, used_mib = line.partition(",")
        if pid.strip() == str(os.getpid()) and used_mib.strip().isdecimal():
            return int(used_mib) << 20
    return None


def _cpu_info() -> list[str]:
    return _lines(Path("/proc/cpuinfo"))


def _cpu_flags() -> set[str]:
    for line in _cpu_info():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
    return set()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _sysctl(name: str) -> str:
    return _output(["sysctl", "-n", name]) if platform.system() == "Darwin" else ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
