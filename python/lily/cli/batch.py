"""``lily batch``: many requests from a file, in OpenAI's batch format.

This file owns the command's options and its progress bar; the work is in ``lily.batch``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lily.cli import options
from lily.errors import InvalidInput

if TYPE_CHECKING:
    from lily.engine import Engine


def batch(
    source: Annotated[Path, typer.Argument(help="JSON lines: custom_id, url, body.")],
    target: Annotated[Path, typer.Argument(help="Where answers go; a file of before is resumed.")],
    model: options.Model = None,
    parallel: Annotated[int, typer.Option("--parallel", help="Requests that run at once.")] = 8,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Answer a file of requests; stopped and called again, it goes on where it was."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    try:
        import starlette  # noqa: F401  (the server's application, which requests run through)

        from lily.batch import run_batch
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"lily batch needs {error.name}: pip install 'lily-engine[server]'"
        ) from error

    def load() -> Engine:
        return options.load_engine(
            model,
            device=device,
            max_context=max_context,
            revision=revision,
            offline=offline,
            threads=threads,
            max_sessions=parallel,
        )

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=None)
        report = run_batch(
            source,
            target,
            load,
            parallel=parallel,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    console.print(
        f"{report.answered} answered, {report.skipped} done before, {report.failed} failed"
    )
    if report.failed:
        raise typer.Exit(1)
