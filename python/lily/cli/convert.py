"""``lily convert``: write a quantised copy of a checkpoint.

This file owns the command's options; the work is done by ``lily.convert``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lily.cli import options


def convert(
    source: Annotated[str, typer.Argument(help="A folder or a hub id.")],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    bits: Annotated[int, typer.Option("--bits", help="Bits a weight: 4 or 8.")] = 4,
    group_size: Annotated[
        int, typer.Option("--group-size", help="Weights that share a scale: 32, 64 or 128.")
    ] = 64,
    revision: options.Revision = None,
    offline: options.Offline = False,
) -> None:
    """Quantise a checkpoint."""
    from rich.console import Console
    from rich.progress import Progress

    from lily import words
    from lily.convert import convert as write_converted
    from lily.hub import resolve

    folder = resolve(source, revision=revision, offline=offline)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("convert")
        report = write_converted(
            folder,
            target,
            bits=bits,
            group_size=group_size,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    mtp = ", with its MTP head" if report.mtp else ""
    typer.echo(
        f"{report.path}: {report.tensors} tensors, {words.size(report.written_bytes)}, "
        f"{report.bits_per_weight:.2f} bits a weight{mtp}"
    )
