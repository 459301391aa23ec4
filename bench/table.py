"""Markdown tables from result files, for the README: python -m bench table bench/results/*.json

Every table names its command, machine, commit and date. A figure that varied by more than 5 % never
appears without its mark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import lengths_table, token_table
from bench.gate import table as gate_table

Document = dict[str, Any]
Figure = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench table``."""
    parser.add_argument("files", nargs="+", type=Path, help="bench/results/*.json")


def run(arguments: argparse.Namespace) -> None:
    """Print one table a file."""
    print("\n\n".join(render(json.loads(path.read_text())) for path in arguments.files))


def render(document: Document) -> str:
    """The table of one result file, with what it needs to be believed."""
    tables: dict[str, Callable[[Document], list[str]]] = {
        "kernels": _kernels,
        "engine": _engine,
        "peers": _peers,
        "lengths": lengths_table.lines,
        "token": token_table.lines,
        "load": _load,
        "quality": _quality,
        "gate": gate_table.lines,
    }
    lines = tables[document["bench"]](document)
    if any(not figure["steady"] for figure in document["figures"]):
        lines += ["", "(!) varied by more than 5 % between rounds: not to be quoted."]
    if not document["quiet"]:
        lines += ["", "**Taken on a busy machine: not to be quoted.**"]
    return "\n".join([*lines, "", _provenance(document)])


def _provenance(document: Document) -> str:
    machine = document["machine"]
    virtual = " (virtual machine)" if machine["virtual_machine"] else ""
    parts = [
        f"`{document['command']}`",
        f"{machine['cpu']}{virtual}, {machine['usable_cores']} cores",
        machine["os"],
        f"commit {machine['commit']}",
        f"{machine['utc']} UTC",
        f"load average at start {machine['load_average_at_start'][0]}",
    ]
    notes = "".join(f"\n- {note}" for note in document["notes"])
    return " · ".join(parts) + ("\n" + notes if notes else "")


def _rows(header: list[str], rows: list[list[str]]) -> list[str]:
    # Words to the left, numbers to the right.
    rule = ["---"] + ["--:"] * (len(header) - 1)
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _with_spread(figure: Figure) -> str:
    mark = "" if figure["steady"] else " (!)"
    low, high = _number(figure["min"]), _number(figure["max"])
    return f"{_number(figure['median'])} ({low} to {high}){mark}"


def _kernels(document: Document) -> list[str]:
    rows = []
    for figure in document["figures"]:
        rate = share = "–"
        if "gflop_per_s" in figure:
            rate = f"{_number(figure['gflop_per_s'])} GFLOP/s"
            if "share_of_fma_peak" in figure:
                share = f"{figure['share_of_fma_peak']:.0%} of fp32 peak"
        elif "gb_per_s" in figure:
            rate = f"{_number(figure['gb_per_s'])} GB/s"
            known = figure.get("share_of_read_bandwidth")
            share = "not cold" if known is None else f"{known:.0%} of bandwidth"
        name = f"{figure['model']} · {figure['kernel']} · {figure['shape'].replace('|', ', ')}"
        where = f"{figure['isa']} × {figure['threads']}"
        rows.append([name, where, f"{_with_spread(figure)} µs", rate, share])
    limits = [
        f"{count} thread{'s' if count != '1' else ''}: {known['read_gb_per_s']:.1f} GB/s read, "
        f"{known['fma_gflop_per_s']:.0f} GFLOP/s fp32"
        for count, known in document.get("ceilings", {}).get("threads", {}).items()
    ]
    header = ["model · kernel · shape", "ISA × threads", "time", "rate", "share"]
    lines = _rows(header, rows)
    return [*lines, "", f"Measured limits: {'; '.join(limits)}."] if limits else lines


def _engine(document: Document) -> list[str]:
    names = {"load": "load", "prefill": "prefill of {tokens:,}", "decode": "decode at {context:,}"}
    rows = []
    for figure in document["figures"]:
        ttft = figure.get("time_to_first_token_ms")
        rows.append(
            [
                names[figure["what"]].format(**figure),
                f"{_with_spread(figure)} {figure['unit']}",
                "–" if ttft is None else f"{_number(ttft)} ms",
            ]
        )
    return _rows(["", "median (min to max)", "time to first token"], rows)


def _peers(document: Document) -> list[str]:
    engines = list(dict.fromkeys(figure["engine"] for figure in document["figures"]))
    found = {(figure["test"], figure["engine"]): figure for figure in document["figures"]}
    rows = []
    for test in dict.fromkeys(figure["test"] for figure in document["figures"]):
        row = [test]
        for engine in engines:
            figure = found[test, engine]
            row.append(_with_spread(figure))
            if engine != "lily":
                both = figure["steady"] and found[test, "lily"]["steady"]
                row.append(f"{figure['lily_ratio']:.2f}×" + ("" if both else " (!)"))
        rows.append(row)
    header = ["tok/s"]
    for engine in engines:
        header += [engine] if engine == "lily" else [engine, f"Lily to {engine}"]
    return _rows(header, rows)


def _quality(document: Document) -> list[str]:
    sets = document["settings"]["positions"]
    names = [f"{name}, {count:,} positions" for name, count in sets.items()]
    losses = [
        [arm, *(f"{parts[name]:.4f}" for name in sets)]
        for arm, parts in document["perplexity"].items()
    ]
    rows = [
        [
            f"{pair['arm']} against {pair['against']}",
            f"{pair['top1_percent']:.2f} %",
            f"{pair['perplexity_change_percent']:+.4f} %",
            f"{pair['largest_logit_difference']:.1e}",
            f"{pair['greedy_tokens_equal_mean']:.1f} of {document['settings']['greedy_tokens']}",
        ]
        for pair in document["pairs"]
    ]
    header = ["", "same top-1", "perplexity", "largest logit difference", "greedy tokens equal"]
    return [*_rows(["perplexity", *names], losses), "", *_rows(header, rows)]


def _load(document: Document) -> list[str]:
    settings = document["settings"]
    rows = [
        ["checkpoint", f"{settings['checkpoint_bytes'] / 1e9:.2f} GB"],
        ["of it on disk", f"{settings['checkpoint_bytes_on_disk'] / 1e6:.2f} MB"],
    ]
    for figure in document["figures"]:
        if figure["unit"] == "bytes":
            rows.append([figure["what"], f"{_number(figure['median'] / 1e6)} MB"])
        else:
            rows.append([figure["what"], f"{_with_spread(figure)} {figure['unit']}"])
    return _rows(["", "median (min to max)"], rows)
