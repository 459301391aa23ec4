"""``lily gate``: what may happen with a text before it leaves this machine.

This file owns the command's options and its exit codes; ``lily.gate`` does the work. It needs no
model of the engine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lily.errors import InvalidInput

if TYPE_CHECKING:
    from lily.gate.settings import Settings

# By outcome; 2 is bad input, as everywhere, and 1 any other failure.
EXIT_CODES = {"allow": 0, "mask": 10, "ask": 11, "local": 12, "refuse": 13}


def gate(
    file: Annotated[
        str | None, typer.Argument(help="A text file; '-' reads stdin.", show_default=False)
    ] = None,
    destination: Annotated[
        str, typer.Option("--destination", "-d", help="Where the text would go.")
    ] = "cloud",
    settings: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the text with what was found, in colours.")
    ] = False,
    policy: Annotated[bool, typer.Option("--policy", help="Print the policy and leave.")] = False,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", help="Append the verdict, without text.", show_default=False),
    ] = None,
) -> None:
    """Judge what may leave this machine.

    The exit code is the verdict: 0 allow, 10 mask, 11 ask, 12 local, 13 refuse.
    """
    from lily.gate import Gate, Settings
    from lily.gate.receipt import as_json as receipt_json
    from lily.gate.receipt import as_text

    chosen = Settings() if settings is None else Settings.load(settings)
    if audit is not None:
        chosen = replace(chosen, audit=replace(chosen.audit, file=audit))
    if policy:
        _show_policy(chosen)
        return
    if file is None:
        raise InvalidInput("no text is given, expected a file, '-' for stdin, or --policy")
    if as_json and preview:
        raise InvalidInput("--json and --preview are given, expected one of them")
    text = _read(file)
    verdict = Gate(chosen).inspect(text, destination)
    if as_json:
        typer.echo(json.dumps(receipt_json(verdict), indent=2))
    elif preview:
        from rich.console import Console

        from lily.gate.preview import preview as coloured

        Console().print(coloured(verdict, text))
    else:
        typer.echo(as_text(verdict), nl=False)
    raise typer.Exit(EXIT_CODES[verdict.outcome.value])


def _show_policy(settings: Settings) -> None:
    from rich.console import Console

    from lily.gate.preview import effective_table, policy_table, settings_lines

    console = Console()
    console.print(effective_table(settings))
    console.print()
    console.print(policy_table())
    for line in settings_lines(settings):
        console.print(line, markup=False, highlight=False)


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        where = "stdin" if file == "-" else file
        raise InvalidInput(f"{where} cannot be read as UTF-8 text: {error}") from error
