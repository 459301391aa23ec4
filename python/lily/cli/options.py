"""Options that several commands share, and what they become.

This file owns their names, help and defaults; it knows no command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lily.engine import Engine


def _option(group: str, *names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group, show_default=False)


Model = Annotated[
    str | None,
    _option("Model", "--model", "-m", help="A folder or a hub id; without it the built-in model."),
]
Device = Annotated[str, _option("Model", "--device", help="auto, metal, cuda or cpu.")]
MaxContext = Annotated[
    int | None,
    _option("Model", "--max-context", help="Tokens of prompt and answer together."),
]
Revision = Annotated[
    str | None, _option("Model", "--revision", help="Branch, tag or commit of a hub model.")
]
Offline = Annotated[bool, _option("Model", "--offline", help="Use only the local cache.")]
Threads = Annotated[int | None, _option("Model", "--threads", help="CPU threads; all by default.")]

System = Annotated[str | None, _option("Answer", "--system", help="A system message.")]
Think = Annotated[
    bool | None,
    _option("Answer", "--think/--no-think", help="Think before answering, or not."),
]
MaxTokens = Annotated[int | None, _option("Answer", "--max-tokens", help="Longest answer.")]
Temperature = Annotated[
    float | None,
    _option("Answer", "--temperature", "-t", help="0 is greedy; 1 is the model's own."),
]
TopK = Annotated[int | None, _option("Answer", "--top-k", help="Keep the k likeliest tokens.")]
TopP = Annotated[
    float | None, _option("Answer", "--top-p", help="Keep the likeliest tokens of this mass.")
]
MinP = Annotated[
    float | None, _option("Answer", "--min-p", help="Drop tokens below this share of the best.")
]
Seed = Annotated[int | None, _option("Answer", "--seed", help="Makes draws repeatable.")]
Stop = Annotated[
    list[str] | None, _option("Answer", "--stop", help="End before this string; can be repeated.")
]


def load_engine(
    model: str | None,
    *,
    device: str,
    max_context: int | None,
    revision: str | None,
    offline: bool,
    threads: int | None,
    max_sessions: int = 4,
) -> Engine:
    """Load the engine that these options describe."""
    from lily.engine import Engine

    return Engine.load(
        model,
        device=device,
        max_context=max_context,
        revision=revision,
        offline=offline,
        threads=threads,
        max_sessions=max_sessions,
    )


def given(**params: Any) -> dict[str, Any]:
    """Only the options that were given, so that the checkpoint's defaults hold for the others."""
    return {name: value for name, value in params.items() if value is not None}


def resolve_cached(model: str | None, revision: str | None, download: bool) -> Path:
    """The checkpoint's folder; from the hub only if the user asked for it."""
    from lily.errors import DownloadError
    from lily.hub import resolve

    try:
        return resolve(model, revision=revision, offline=not download)
    except DownloadError as error:
        hint = "" if download else " (--download fetches it)"
        raise DownloadError(f"{error}{hint}") from error
