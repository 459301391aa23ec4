"""``lily generate``: one prompt, one answer.

This file owns the command's options; the answer goes to stdout, all else to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lily.cli import options
from lily.errors import InvalidInput

if TYPE_CHECKING:
    from lily.completion import Chunk


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads it from stdin.")],
    model: options.Model = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without chat template.")
    ] = False,
    system: options.System = None,
    think: options.Think = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Answer one prompt."""
    from lily.cli.terminal import remark

    if prompt == "-":
        try:
            prompt = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"stdin is not UTF-8 text: {error}") from error
    if raw and (system is not None or think is not None):
        raise InvalidInput("--system and --think need the chat template; leave out --raw")
    messages = [{"role": "user", "content": prompt}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    params = options.given(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    with options.load_engine(
        model,
        device=device,
        max_context=max_context,
        revision=revision,
        offline=offline,
        threads=threads,
    ) as engine:
        remark(f"{engine!r} · {engine.device_description}")
        print_answer(engine.stream(prompt if raw else messages, enable_thinking=think, **params))


def print_answer(chunks: Iterator[Chunk]) -> None:
    """Print an answer as it comes, and how fast it came; a broken-off one as far as it came."""
    from lily.cli.terminal import AnswerPrinter

    printer = AnswerPrinter()
    speed = ""
    try:
        for chunk in chunks:
            printer.show(chunk)
            speed = chunk.completion.speed if chunk.completion else ""
    finally:
        printer.end(speed)
