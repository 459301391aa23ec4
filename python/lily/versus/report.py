"""A comparison as files: report.md, report.json, and two plots.

Owns how figures are said. Every figure stands with its range, and what was left out, waited for or
broken off stands on top. Measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lily import words
from lily.versus.measure import ENGINES, Comparison

PHASES = ("prefill", "decode")
_COLOURS = {"lily": "#1f6f54", "mlx-lm": "#c1662f"}


def write_report(found: Comparison, folder: Path) -> list[Path]:
    """Write all files into a folder that may be there; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "report.md", folder / "report.json"]
    written[0].write_text(markdown(found), encoding="utf-8")
    text = json.dumps(as_dict(found), indent=1, allow_nan=False)
    written[1].write_text(text + "\n", encoding="utf-8")
    if found.complete_lengths():
        written += [_plot(found, phase, folder / f"{phase}.png") for phase in PHASES]
    return written


def as_dict(found: Comparison) -> dict[str, Any]:
    """Everything, as JSON can hold it; the model by its name, not by its folder."""
    plan = asdict(found.plan)
    del plan["model"]
    return {
        "comparison": "lily bench --vs mlx-lm",
        "machine": found.machine,
        "engines": found.engines,
        "plan": plan,
        "complete_lengths": found.complete_lengths(),
        "waits": found.waits,
        "broken_off": found.broken_off,
        "samples": [asdict(sample) for sample in found.samples],
    }


def markdown(found: Comparison) -> str:
    """The report that people read."""
    plan, facts = found.plan, found.machine
    cores = f", {facts['gpu_cores']} GPU cores" if facts["gpu_cores"] else ""
    lines = [
        f"# Lily and mlx-lm, {plan.name}",
        "",
        f"{facts['chip']}{cores}, {words.size(facts['memory_bytes'])}, {facts['os']}.",
        *(f"- {engine}: {about}" for engine, about in found.engines.items()),
        "",
        *_warnings(found),
        *(line for phase in PHASES for line in _table(found, phase)),
        *_method(found),
    ]
    return "\n".join(lines) + "\n"


def _warnings(found: Comparison) -> list[str]:
    said = []
    if found.broken_off:
        said.append(f"**This run was broken off: {found.broken_off}.** What follows is incomplete.")
    said += [f"{length:,} tokens were left out: {why}." for length, why in found.plan.left_out]
    said += [f"Waited {wait}." for wait in found.waits]
    hot = [s for s in found.samples if s.thermal_state not in (None, "nominal")]
    said += [
        f"{s.engine} at {s.length:,} tokens, round {s.round + 1}, ended with the thermal state "
        f"'{s.thermal_state}': not to be quoted."
        for s in hot
    ]
    if all(sample.thermal_state is None for sample in found.samples):
        said.append("This system reports no thermal state: that nothing throttled is not known.")
    return [*said, ""] if said else []


def _table(found: Comparison, phase: str) -> list[str]:
    lengths = found.complete_lengths()
    if not lengths:
        return []
    heading = "Prefill" if phase == "prefill" else f"Decode, {found.plan.tokens} tokens"
    lines = [
        f"## {heading}, tokens a second",
        "",
        "| prompt tokens | Lily | mlx-lm | Lily / mlx-lm |",
        "|--:|--:|--:|--:|",
    ]
    for length in lengths:
        cells = [_cell(found.rates(engine, length, phase)) for engine in ENGINES]
        ratio = found.median("lily", length, phase) / found.median("mlx-lm", length, phase)
        lines.append(f"| {length:,} | {cells[0]} | {cells[1]} | {ratio:.3f} |")
    return [*lines, "", f"![{heading}]({phase}.png)", ""]


def _cell(rates: Sequence[float]) -> str:
    middle = sorted(rates)
    median = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
    return f"{median:,.1f} ({middle[0]:,.1f} to {middle[-1]:,.1f})"


def _method(found: Comparison) -> list[str]:
    plan = found.plan
    agreed = [f"{length:,}: {found.agreement(length)}" for length in found.complete_lengths()]
    return [
        "## Method",
        "",
        f"`lily bench --vs mlx-lm`, {plan.rounds} rounds; figures are medians with their range. "
        "Both engines read the same MLX 4-bit folder and the same synthetic ids "
        "`((i * 2654435761) mod 2^32) mod vocabulary`. Each sample is a fresh process that loads, "
        "runs once at the exact shape on other ids, and is then timed: prefill up to the first "
        f"token, then {plan.tokens} greedy steps. Engines take turns, and the one that begins "
        f"changes with every round; {plan.cooldown_s:g} s of pause before each process, which does "
        "not begin on battery, in low power mode or while the system reports heat. Each engine's "
        "greedy tokens were the same in every round, or the run would have ended.",
        "",
        "What the engines do not share: mlx-lm computes the log-probabilities of the whole "
        "vocabulary for every token, Lily the best candidates and the sum that they need. Lily "
        "accepts a token before it computes the next; mlx-lm runs one step ahead. No HTTP, no "
        "tokenizer and no prefix cache is in any figure. Random ids say nothing about text.",
        "",
        f"Greedy tokens that both engines share before the first that differs, of "
        f"{plan.tokens + 1}: {'; '.join(agreed) or 'none measured'}. Engines round differently, "
        "so that a near tie may fall either way.",
    ]


def _plot(found: Comparison, phase: str, path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lengths = found.complete_lengths()
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for engine in ENGINES:
        rates = [found.rates(engine, length, phase) for length in lengths]
        medians = [found.median(engine, length, phase) for length in lengths]
        low = [middle - min(all_of) for middle, all_of in zip(medians, rates, strict=True)]
        high = [max(all_of) - middle for middle, all_of in zip(medians, rates, strict=True)]
        axes.errorbar(
            lengths, medians, yerr=[low, high], marker="o", capsize=3, label=engine,
            color=_COLOURS[engine],
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [_short(length) for length in lengths])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("prompt tokens")
    axes.set_ylabel(f"{phase} tokens a second")
    axes.set_title(f"{found.plan.name}, {found.machine['chip']}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    return path


def _short(length: int) -> str:
    return f"{length // 1024}K" if length >= 1024 and length % 1024 == 0 else str(length)
