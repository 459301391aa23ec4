"""What an examination means: one sentence, an exit code, and one line for a bug report.

Pure functions over an `Examination`; prints nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lily import machine, words
from lily.doctor.examine import DeviceState, Examination, Finding

SOUND, WRONG, INCOMPLETE = 0, 1, 3  # 2 is a wrong command line, as everywhere in `lily`
LARGEST_READ = "sample_logits"  # the kernel whose rate says most of the memory: lm_head's product
_NAMED = 4  # kernels in a sentence


@dataclass(frozen=True)
class Verdict:
    """The exit code tells the same as the sentence."""

    exit_code: int
    sentence: str


def verdict(found: Examination) -> Verdict:
    """Judge the devices that were examined, and whether one is missing that should be there."""
    bad = {name: [f for f in found.of(name) if f.is_bad] for name in _examined(found)}
    broken = [name for name, findings in bad.items() if findings]
    # What agrees with a CPU that is wrong is not right.
    sound = [] if "cpu" in broken else [name for name in bad if name not in broken]
    if broken:
        return Verdict(WRONG, _wrong(found, bad, broken, sound))
    missing = _missing(found)
    if missing:
        usable = f"; {_listed(sound)} works" if sound else ""
        return Verdict(INCOMPLETE, f"{missing}{usable}.")
    skipped = [finding for finding in found.findings if finding.result == "skipped"]
    if skipped:
        first = skipped[0]
        return Verdict(
            INCOMPLETE,
            f"Nothing is wrong as far as was seen, but {len(skipped)} of {len(found.findings)} "
            f"checks did not run ({first.kernel}: {first.detail}).",
        )
    parts = [f"{len(found.of(name))} checks on {name} agree with {_reference(name)}"
             for name in sound]  # fmt: skip
    return Verdict(SOUND, f"Lily computes right here: {' and '.join(parts)}.")


def _examined(found: Examination) -> list[str]:
    return list(dict.fromkeys(finding.device for finding in found.findings))


def _reference(name: str) -> str:
    return "NumPy in float64" if name == "cpu" else "the CPU"


def _wrong(
    found: Examination, bad: dict[str, list[Finding]], broken: Sequence[str], sound: Sequence[str]
) -> str:
    parts = []
    for name in broken:
        kernels = list(dict.fromkeys(finding.kernel for finding in bad[name]))
        named = ", ".join(kernels[:_NAMED]) + (", ..." if len(kernels) > _NAMED else "")
        parts.append(f"{name} fails {len(bad[name])} of {len(found.of(name))} checks ({named})")
    advice = f"use --device {sound[-1]}" if sound else "no device is to be trusted here"
    return f"Something is wrong: {'; '.join(parts)}: {advice}, and please report it."


def _absent(found: Examination) -> list[DeviceState]:
    """The device that was asked for, or that a Mac should have, where it is not there."""
    wanted = found.asked
    if wanted == "auto" and machine.is_apple_silicon():
        wanted = "metal"
    return [state for state in found.devices if state.name == wanted and not state.there]


def _missing(found: Examination) -> str:
    return "".join(f"The device {s.name} is not there ({s.why})" for s in _absent(found))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def report_line(found: Examination) -> str:
    """Everything that a bug report needs, on one line, without a name of anybody or of a host."""
    facts = found.machine
    cores = f", {facts['gpu_cores']} GPU cores" if facts["gpu_cores"] else ""
    parts = [
        f"lily {facts['lily']}",
        facts["os"],
        f"{facts['chip']}{cores}",
        words.size(facts["memory_bytes"]),
        f"python {facts['python']}",
    ]
    for name in _examined(found):
        findings = found.of(name)
        right = sum(finding.result == "ok" for finding in findings)
        parts.append(f"{name} {right}/{len(findings)}")
    parts += [f"{state.name} absent: {state.why}" for state in _absent(found)]
    for finding in [finding for finding in found.findings if finding.is_bad][:_NAMED]:
        where = f"{finding.kernel} [{finding.model}: {finding.shape}]"
        parts.append(f"{finding.result} on {finding.device}: {where}")
    for figure in found.figures:
        if figure.kernel == LARGEST_READ and figure.gb_per_s:
            parts.append(f"{figure.kernel} {figure.gb_per_s:.0f} GB/s on {figure.device}")
    if found.quick:
        parts.append("quick")
    return " | ".join(" ".join(part.split()) for part in parts)
