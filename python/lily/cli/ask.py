"""``lily ask``: a task with private material; a planner elsewhere may help, as far as the gate lets
it.

This file owns the command's options, its question for consent, and how steps and receipt are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lily.cli.terminal import AnswerPrinter, harmless
from lily.completion import Chunk
from lily.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from lily.hybrid import ConsentRequest, HybridAnswer, Receipt


def ask(
    task: Annotated[str, typer.Argument(help="What to do; '-' reads it from stdin.")],
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A file or folder of private material; repeatable."),
    ] = None,
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Nothing leaves, or the command fails.")
    ] = False,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file.", show_default=False)
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree to whatever the gate would ask about.")
    ] = False,
    receipt: Annotated[
        Path | None, typer.Option("--receipt", help="Save the receipt as JSON.", show_default=False)
    ] = None,
) -> None:
    """Do a task on this machine, with a planner's help where one is configured.

    The answer goes to stdout; steps and the receipt's summary to stderr.
    """
    from rich.console import Console

    try:
        from lily.hybrid import Hybrid, HybridSettings, Receipt
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"lily ask needs the package {error.name}; pip install 'lily-engine[hybrid]'"
        ) from error
    console = Console(stderr=True)
    if task == "-":
        task = sys.stdin.read()
    chosen = HybridSettings.load(settings)
    consent = (lambda request: True) if yes else (lambda request: _agrees(console, request))
    found = Receipt()
    try:
        with Hybrid.open(chosen, consent=consent) as hybrid:
            _show(hybrid.stream(task, files=file or (), sensitive=sensitive, receipt=found))
    finally:  # of a run that failed, too: what has left, has left
        if found.steps or found.decisions:
            _show_steps(console, found)
        if receipt:
            found.save(receipt)
            console.print(f"Receipt: {receipt}", highlight=False)


def _show(pieces: Generator[str, None, HybridAnswer]) -> None:
    """Print pieces as they come."""
    printer = AnswerPrinter()
    try:
        for piece in pieces:
            printer.show(Chunk(piece))
    finally:
        printer.end()


def _agrees(console: Console, request: ConsentRequest) -> bool:
    """Show exactly what would leave, and ask. Where nobody can answer, that is a no."""
    if not sys.stdin.isatty():
        return False
    console.print(f"The {request.what} would be sent to {request.destination}:", style="bold")
    console.print(harmless(request.text), markup=False, highlight=False)
    for reason in request.reasons:
        console.print(f"  {reason}", style="yellow", markup=False, highlight=False)
    return typer.confirm("Send it?", default=False, err=True)


def _show_steps(console: Console, receipt: Receipt) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("work", "where", "result", box=None, header_style="bold")
    for step in receipt.steps:
        table.add_row(*(Text(harmless(each)) for each in (step.work, step.where, step.result)))
    console.print(table)
    console.print(receipt.summary(), style="bold", highlight=False)
