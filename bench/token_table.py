"""The tables of a token from a result file: a row a kernel, and the sum beside the time in use.

Knows the file's shape alone; `bench.token_profile` writes it.
"""

from __future__ import annotations

from typing import Any

_HEAD = (
    ("kernel", "part", "grid x block"),
    ("runs", "us", "us all", "must move", "DRAM", "GB/s", "share", "registers", "warps"),
)
_TITLES = {"decode": "A decode step after {:,} tokens", "prefill": "A prefill of {:,} tokens"}


def lines(document: dict[str, Any]) -> list[str]:
    """A table a point."""
    found: list[str] = []
    for point in document["points"]:
        found += [*([""] if found else []), *_point(point, document["limits"])]
    return found


def _point(point: dict[str, Any], limits: dict[str, Any]) -> list[str]:
    words, numbers = _HEAD
    title = _TITLES[point["phase"]].format(point["tokens"])
    text = f"**{title}**: {point['in_use_us']:,.0f} us in use; its {point['kernels']} kernels one "
    text += f"by one {point['alone_us']:,.0f} us."
    if limits and "moved_bytes" in point:
        least = point["moved_bytes"] / limits["copy_gb_per_s"] / 1e3
        text += f" {point['moved_bytes'] / 1e9:.3f} GB must move: {least:,.0f} us at "
        text += (
            f"{limits['copy_gb_per_s']:,.0f} GB/s, {least / point['in_use_us']:.0%} of the time."
        )
    return [
        text,
        "",
        f"| {' | '.join((*words, *numbers))} |",
        "|" + "---|" * len(words) + "--:|" * len(numbers),
        *(_row(row) for row in point["rows"]),
        _sum(point),
    ]


def _row(row: dict[str, Any]) -> str:
    cells = [
        row["kernel"],
        row["part"] or "–",
        f"{row['grid']} x {row['block']}",
        str(row["count"]),
    ]
    cells += [f"{row['alone_us'] / row['count']:,.2f}", *_amounts(row)]
    cells += [_or_dash(row, "registers", ".0f"), _or_dash(row, "active_warps_percent", ".0f", " %")]
    return f"| {' | '.join(cells)} |"


def _sum(point: dict[str, Any]) -> str:
    cells = ["**all**", "", "", str(point["kernels"]), "", *_amounts(point), "", ""]
    return f"| {' | '.join(cells)} |"


def _amounts(row: dict[str, Any]) -> list[str]:
    moved = f"{row['moved_bytes'] / 1e6:,.2f} MB" if "moved_bytes" in row else "–"
    dram = f"{row['dram_bytes'] / 1e6:,.2f} MB"
    share = f"{row['share']:.0%}" if "share" in row else "–"
    return [f"{row['alone_us']:,.1f}", moved, dram, f"{row['gb_per_s']:,.0f}", share]


def _or_dash(row: dict[str, Any], name: str, how: str, unit: str = "") -> str:
    return f"{row[name]:{how}}{unit}" if name in row else "–"
