"""``lily info``: what a model is, what it needs, and whether it would load.

This file owns the presentation; the facts come from the native reader, which opens headers only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lily.cli import options

_CONTEXTS = (4_096, 32_768, 131_072, 262_144)
_SHAPE = (
    ("layers", "layers"),
    ("attention_layers", "of them full attention"),
    ("hidden", "hidden width"),
    ("experts", "experts a layer"),
    ("experts_per_token", "experts a token"),
    ("vocab", "vocabulary"),
    ("max_positions", "longest context"),
)


def info(
    model: Annotated[
        str | None, typer.Argument(help="A folder or a hub id; without it the built-in model.")
    ] = None,
    device: options.Device = "auto",
    revision: options.Revision = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch a hub model that is not in the cache.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a model is and what it needs."""
    from lily import _native, words

    folder = options.resolve_cached(model, revision, download)
    facts = _native.describe(str(folder))
    plans = [] if facts["problems"] else memory_plans(folder, facts, device)
    name = "lily-tiny" if model is None else words.short_name(model)
    if as_json:
        found = {"name": name, "path": str(folder), **facts, "plans": plans}
        typer.echo(json.dumps(found, indent=2))
        return
    _print(name, folder, facts, plans, card=model is None)


def memory_plans(folder: Path, facts: Mapping[str, Any], device: str) -> list[dict[str, Any]]:
    """One plan for each context length: the native numbers, or why it would be refused."""
    from lily import _native
    from lily.errors import OutOfMemory

    longest = int(facts["config"]["max_positions"])
    plans: list[dict[str, Any]] = []
    for context in sorted({min(context, longest) for context in (*_CONTEXTS, longest)}):
        try:
            plan = _native.plan(str(folder), device=device, max_context=context)
            plans.append({"max_context": context, **plan, "refused": None})
        except OutOfMemory as error:
            plans.append({"max_context": context, "refused": str(error)})
    return plans


def _print(
    name: str,
    folder: Path,
    facts: Mapping[str, Any],
    plans: list[dict[str, Any]],
    *,
    card: bool,
) -> None:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.table import Table
    from rich.text import Text

    from lily import words

    console = Console(highlight=False)
    console.print(Text(name, style="bold"), Text(str(folder), style="dim"))
    table = Table(show_header=False, box=None, pad_edge=False)
    for label, value in _rows(facts):
        table.add_row(Text(label, style="dim"), Text(value))
    console.print(table)
    if plans:
        memory = Table("context", "KV cache", "prefix cache", "in all", "", box=None)
        for plan in plans:
            context = f"{plan['max_context']:,}"
            if plan["refused"]:
                memory.add_row(context, "", "", "", Text(f"refused: {plan['refused']}"))
            else:
                parts = [words.size(plan[f"{part}_bytes"]) for part in ("kv", "cache", "total")]
                memory.add_row(context, *parts, f"fits {words.size(plan['limit_bytes'])}")
        console.print("\nMemory for one session", style="bold")
        console.print(memory)
    for problem in facts["problems"]:
        console.print(Text(f"would be refused: {problem}", style="red"))
    if card:
        console.print()
        console.print(Markdown((folder / "MODEL_CARD.md").read_text("utf-8")))


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    from lily import words

    config = facts["config"]
    active = words.count(facts["active_parameters"])
    largest_first = sorted(facts["formats"].items(), key=lambda item: -item[1])
    formats = ", ".join(f"{words.storage(name)} {words.size(size)}" for name, size in largest_first)
    rows = [
        ("architecture", f"{facts['architecture']}, {facts['layout']} layout"),
        ("parameters", f"{words.count(facts['parameters'])}, {active} active for a token"),
        ("weights", f"{words.size(facts['weights_bytes'])}: {formats}"),
        *((label, f"{config[key]:,}") for key, label in _SHAPE if key in config),
        ("KV cache", f"{words.size(facts['kv_bytes_per_token'])} a token"),
        ("recurrent state", f"{words.size(facts['state_bytes'])} a session"),
    ]
    if facts["unused"]:
        rows.append(("not used", ", ".join(facts["unused"])))
    return rows
