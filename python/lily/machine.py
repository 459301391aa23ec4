"""What this machine is, and whether it is fit to be measured: chip, memory, system, heat, power.

Owns the questions to the operating system. Imports nothing of Lily, not even the native module, so
that it can speak of a machine on which that does not load. Records no host name and no path.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_THERMAL_STATES = ("nominal", "fair", "serious", "critical")  # NSProcessInfoThermalState
_ASK_S = 10


def is_mac() -> bool:
    """Whether this is macOS."""
    return sys.platform == "darwin"


def is_apple_silicon() -> bool:
    """Whether the chip is Apple's, even where this Python was built for Intel."""
    return is_mac() and (platform.machine() == "arm64" or is_translated())


def is_translated() -> bool:
    """Whether Rosetta runs this Python: an Intel build on Apple's chip."""
    return is_mac() and _output("sysctl", "-n", "sysctl.proc_translated") == "1"


def facts() -> dict[str, Any]:
    """All that belongs next to a finding or a figure."""
    return {
        "chip": chip(),
        "gpu_cores": gpu_cores(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "os": operating_system(),
        "python": f"{platform.python_version()} {platform.machine()}",
        "lily": package_version("lily-engine"),
        "numpy": package_version("numpy"),
    }


def chip() -> str:
    """The processor's own name."""
    if is_mac():
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or "unknown"
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def gpu_cores() -> int | None:
    """Cores of Apple's GPU; None elsewhere."""
    if not is_mac():
        return None
    for line in _output("ioreg", "-rc", "AGXAccelerator", "-d1").splitlines():
        name, _, value = line.partition("=")
        if "gpu-core-count" in name and value.strip().isdigit():
            return int(value)
    return None


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory_bytes() -> int:
    """What could be allocated now without swapping; elsewhere than on Linux, half of everything."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return memory_bytes() // 2


def operating_system() -> str:
    """System, version to the minor number, and architecture."""
    if is_mac():
        build = _output("sysctl", "-n", "kern.osversion")
        return f"macOS {platform.mac_ver()[0]} ({build}) {platform.machine()}"
    release = ".".join(platform.release().split(".")[:2])
    return f"{platform.system()} {release} {platform.machine()}"


def package_version(name: str) -> str:
    """Of an installed distribution; "not installed" otherwise."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def thermal_state() -> str | None:
    """The system's own word: nominal, fair, serious or critical; None where it has none."""
    if not is_mac():
        return None
    try:
        return _THERMAL_STATES[_ask_process_info("thermalState")]
    except (OSError, AttributeError, IndexError, TypeError):
        return None


def unfit_to_measure() -> list[str]:
    """Why figures taken now would not count; empty where the system knows of nothing.

    Linux has no common word for heat or power supply: nothing is known there, and `facts` of a
    report have to say so.
    """
    if not is_mac():
        return []
    found = []
    state = thermal_state()
    if state not in (None, "nominal"):
        found.append(f"the machine is hot: thermal state '{state}', expected 'nominal'")
    warnings = [
        line.strip()
        for line in _output("pmset", "-g", "therm").splitlines()
        if "=" in line and not line.strip().endswith(("= 100", "= 0"))
        and line.strip().startswith(("CPU_Speed_Limit", "CPU_Scheduler_Limit", "Thermal"))
    ]  # fmt: skip
    found += [f"pmset reports '{warning}'" for warning in warnings]
    if "Battery Power" in _output("pmset", "-g", "batt"):
        found.append("the machine runs on its battery, expected mains power")
    for line in _output("pmset", "-g").splitlines():
        if line.split()[:2] == ["lowpowermode", "1"]:
            found.append("low power mode is on")
    return found


def _ask_process_info(selector: str) -> int:
    """An integer property of NSProcessInfo, through the Objective-C runtime."""
    ctypes.CDLL("/System/Library/Frameworks/Foundation.framework/Foundation")
    runtime = ctypes.CDLL(ctypes.util.find_library("objc"))
    runtime.objc_getClass.restype = runtime.sel_registerName.restype = ctypes.c_void_p
    runtime.objc_getClass.argtypes = runtime.sel_registerName.argtypes = [ctypes.c_char_p]
    address = ctypes.cast(runtime.objc_msgSend, ctypes.c_void_p).value or 0
    get_object, get_integer = (
        ctypes.CFUNCTYPE(kind, ctypes.c_void_p, ctypes.c_void_p)(address)
        for kind in (ctypes.c_void_p, ctypes.c_long)
    )
    name = runtime.sel_registerName
    info = get_object(runtime.objc_getClass(b"NSProcessInfo"), name(b"processInfo"))
    return int(get_integer(info, name(selector.encode())))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
