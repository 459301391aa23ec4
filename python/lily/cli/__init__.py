"""The ``lily`` command.

This file owns the list of commands and how errors end the program: one line on stderr, exit code 2
for bad input, 1 for anything else that Lily reports, 130 for Ctrl-C. Commands import the engine
only when they run, so that ``lily --help`` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lily.cli import ask, batch, bench, chat, convert, doctor, gate, generate, info, serve
from lily.errors import InvalidInput, LilyError

app = typer.Typer(
    name="lily",
    help="Runs Qwen3.6-35B-A3B-type models on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(generate.generate)
app.command()(chat.chat)
app.command()(serve.serve)
app.command()(info.info)
app.command()(bench.bench)
app.command()(ask.ask)
app.command()(batch.batch)
app.command()(doctor.doctor)
app.command()(convert.convert)
app.command()(gate.gate)


def _show_version(wanted: bool) -> None:
    if wanted:
        import lily

        typer.echo(f"lily {lily.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line in ``sys.argv``; does not return."""
    try:
        app()
    except InvalidInput as error:
        _fail(str(error), 2)
    except LilyError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader (`| head`) has gone; without this, Python complains once more while exiting.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(message: str, code: int) -> None:
    print(f"lily: {message}", file=sys.stderr)
    sys.exit(code)
