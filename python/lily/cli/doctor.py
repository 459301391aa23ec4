"""``lily doctor``: whether Lily computes right on this machine.

This file owns the command's options and its exit code; everything else is in ``doctor``.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lily.cli import options


def doctor(
    device: options.Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the small shapes, and no timings: seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: every kernel's numbers, then speeds.

    Exit code 0: all right. 1: something is wrong. 3: not everything could be checked.
    """
    from rich.console import Console

    from lily.doctor.examine import examine
    from lily.doctor.show import show
    from lily.doctor.verdict import report_line, verdict

    remarks = Console(stderr=True, highlight=False)
    with remarks.status("looking for devices") as status:
        found = examine(device, quick=quick, progress=lambda job: status.update(job))
    told = verdict(found)
    if as_json:
        judged = {"verdict": told.sentence, "exit_code": told.exit_code}
        typer.echo(json.dumps({**judged, "line": report_line(found), **found.as_dict()}, indent=2))
    else:
        show(Console(highlight=False), found)
    raise typer.Exit(told.exit_code)
