"""An examination on a terminal: the machine, its devices, a table of kernels, the verdict.

Owns how it looks; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lily import estimate, words
from lily.doctor.examine import Examination, Figure, Finding
from lily.doctor.verdict import LARGEST_READ, SOUND, report_line, verdict

_STYLES = {"ok": "green", "skipped": "yellow"}


def show(console: Console, found: Examination) -> None:
    """Print everything, what matters most at the end."""
    _show_machine(console, found)
    for name in dict.fromkeys(finding.device for finding in found.findings):
        console.print()
        console.print(_kernels(name, found.of(name), found))
    for finding in found.findings:
        if finding.is_bad or finding.result == "skipped":
            style = _STYLES.get(finding.result, "red")
            console.print(Text(f"\n{finding.result.upper()}: ", style=style), end="")
            where = f"[{finding.model}: {finding.shape}]" if finding.shape else ""
            console.print(Text(f"{finding.device} {finding.kernel} {where} {finding.launched}"))
            console.print(Text(f"  {finding.detail}"))
    told = verdict(found)
    console.print()
    console.print(
        Text(told.sentence, style="bold green" if told.exit_code == SOUND else "bold red")
    )
    console.print("\nFor a bug report:", style="dim")
    # One line as it is, however wide the terminal.
    console.print(Text(report_line(found)), soft_wrap=True)


def _show_machine(console: Console, found: Examination) -> None:
    facts = found.machine
    table = Table(show_header=False, box=None, pad_edge=False)
    cores = f", {facts['gpu_cores']} GPU cores" if facts["gpu_cores"] else ""
    rows = [
        ("chip", f"{facts['chip']}{cores}, {facts['cores']} CPU cores"),
        ("memory", words.size(facts["memory_bytes"]) + _bandwidths(found)),
        ("system", f"{facts['os']}, Python {facts['python']}"),
        ("lily", f"{facts['lily']}, NumPy {facts['numpy']}"),
    ]
    for state in found.devices:
        holds = words.size(state.memory_bytes)
        yes = f"there: {state.description}, {state.activation} activations, can hold {holds}"
        rows.append((state.name, yes if state.there else f"not there: {state.why}"))
        rows += [("", f"{name}: {value}") for name, value in state.facts.items()]
    rows += [("note", remark) for remark in found.remarks]
    for label, value in rows:
        table.add_row(Text(label, style="dim"), Text(value))
    console.print(table)


def _bandwidths(found: Examination) -> str:
    parts = []
    if found.copy_gb_per_s:
        parts.append(f"the CPU copies {found.copy_gb_per_s:.0f} GB/s, read and written")
    for figure in found.figures:
        if figure.kernel == LARGEST_READ and figure.gb_per_s:
            parts.append(f"{figure.device} reads lm_head at {figure.gb_per_s:.0f} GB/s")
    known = [chip for chip in estimate.CHIPS.values() if chip.name == found.machine["chip"]]
    if known:
        stated = " or ".join(str(chip.gb_per_s) for chip in known)
        parts.append(f"Apple states {stated} GB/s")
    return "".join(f", {part}" for part in parts)


def _kernels(name: str, findings: Sequence[Finding], found: Examination) -> Table:
    """A row a kernel: how many of its checks are right, its worst error, its best figure."""
    table = Table(title=Text(name, style="bold"), title_justify="left", box=None, pad_edge=False)
    table.add_column("kernel")
    for heading in ("right", "worst error", "time", "rate"):
        table.add_column(heading, justify="right")
    for kernel in dict.fromkeys(finding.kernel for finding in findings):
        own = [finding for finding in findings if finding.kernel == kernel]
        right = sum(finding.result == "ok" for finding in own)
        style = "green" if right == len(own) else "red"
        shares = [finding.share for finding in own if finding.share is not None]
        worst = f"{max(shares):.0%} of allowed" if shares else ""
        figures = [f for f in found.figures if f.device == name and f.kernel == kernel]
        time, rate = _speed(figures)
        table.add_row(kernel, Text(f"{right}/{len(own)}", style=style), worst, time, rate)
    return table


def _speed(figures: Sequence[Figure]) -> tuple[str, str]:
    if not figures:
        return "", ""
    largest = max(figures, key=lambda figure: figure.us)
    if largest.gflop_per_s:
        return f"{largest.us:,.0f} µs", f"{largest.gflop_per_s:,.0f} GFLOP/s"
    return f"{largest.us:,.0f} µs", f"{largest.gb_per_s or 0:,.0f} GB/s"
