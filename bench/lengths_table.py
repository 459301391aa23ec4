"""The table of prompt lengths from a result file: rates, and Lily's ratio to each peer.

Knows the file's shape alone; `bench.lengths` writes it.
"""

from __future__ import annotations

from typing import Any

Figure = dict[str, Any]


def lines(document: dict[str, Any]) -> list[str]:
    """A row a prompt length, decode before prefill; then what the device held."""
    figures = document["figures"]
    peers = [name for name in dict.fromkeys(f["engine"] for f in figures) if name != "lily"]
    heads = ["prompt"]
    for phase in ("decode", "prefill"):
        heads += [f"{phase}: Lily", *(head for name in peers for head in (name, "ratio"))]
    table = [f"| {' | '.join(heads)} |", "|" + "--:|" * len(heads)]
    by = {(f["phase"], f["tokens"], f["engine"]): f for f in figures}
    for length in dict.fromkeys(figure["tokens"] for figure in figures):
        cells = [f"{length:,}"]
        for phase in ("decode", "prefill"):
            own = by.get((phase, length, "lily"))
            cells.append(_rate(own))
            for name in peers:
                figure = by.get((phase, length, name))
                cells += [_rate(figure), _ratio(own, figure)]
        table.append(f"| {' | '.join(cells)} |")
    return [*table, "", "Tokens a second; a ratio above 1: Lily is faster.", *_memory(document)]


def _mark(figure: Figure) -> str:
    return "" if figure["steady"] else " (!)"


def _rate(figure: Figure | None) -> str:
    return f"{figure['median']:,.0f}{_mark(figure)}" if figure else "–"


def _ratio(own: Figure | None, peer: Figure | None) -> str:
    if not own or not peer:
        return "–"
    return f"{peer['lily_ratio']:.2f}" + (_mark(own) or _mark(peer))


def _memory(document: dict[str, Any]) -> list[str]:
    memory = document.get("memory", {})
    if "over_plan" not in memory:
        return []
    used, planned = memory["used_bytes"] / 1e9, memory["plan"]["total_bytes"] / 1e9
    verdict = "within" if memory["as_planned"] else "NOT within"
    return [
        "",
        f"Device memory of Lily with the longest context: {used:.2f} GB, planned {planned:.2f} GB "
        f"({memory['over_plan']:+.1%}, {verdict} {memory['tolerance']:.0%}).",
    ]
