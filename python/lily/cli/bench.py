"""``lily bench``: how fast a model runs here.

This file owns the method: synthetic prompts that share no prefix, greedy answers that ignore the
end token, medians over rounds after one warm-up. It uses the public engine only.
"""

from __future__ import annotations

import json
import random
import statistics
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lily.cli import options

if TYPE_CHECKING:
    from lily.engine import Engine


def bench(
    model: options.Model = None,
    length: Annotated[
        list[int] | None,
        typer.Option("--length", "-l", help="Prompt tokens; can be repeated. [128, 512, 2048]"),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="Tokens to generate.")] = 64,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Median over these.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Measure prefill and decode speed."""
    from rich.console import Console
    from rich.table import Table

    with options.load_engine(
        model,
        device=device,
        max_context=max_context,
        revision=revision,
        offline=offline,
        threads=threads,
    ) as engine:
        # Asked-for lengths that do not fit are an error; of the usual ones the fitting are taken.
        fitting = [usual for usual in (128, 512, 2048) if usual + tokens <= engine.max_context]
        results = measure(engine, length or fitting, tokens, rounds)
        about = {"model": repr(engine), "device": engine.device_description}
    if as_json:
        typer.echo(json.dumps({**about, "rounds": rounds, "results": results}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"{about['model']} · {about['device']}", markup=False)
    table = Table("prompt tokens", "prefill tok/s", "decode tok/s", box=None, pad_edge=False)
    for row in results:
        prefill, decode = row["prefill_tokens_per_s"], row["decode_tokens_per_s"]
        table.add_row(f"{row['prompt_tokens']:,}", f"{prefill:,.1f}", f"{decode:,.1f}")
    console.print(table)


def measure(engine: Engine, lengths: list[int], tokens: int, rounds: int) -> list[dict[str, Any]]:
    """Medians for each prompt length: tokens, prefill and decode tokens per second."""
    rng = random.Random(0)
    results = []
    for length in lengths:
        timings = []
        for _ in range(rounds + 1):
            # New ids each time, so that the prefix cache has nothing to offer.
            prompt = [rng.randrange(engine.text_vocab_size) for _ in range(length)]
            done = engine.generate(prompt, max_tokens=tokens, temperature=0, ignore_eos=True)
            timings.append(done.timings)
        warm = timings[1:]
        results.append(
            {
                "prompt_tokens": length,
                "decode_tokens": tokens,
                "prefill_tokens_per_s": statistics.median(t.prefill_tokens_per_s for t in warm),
                "decode_tokens_per_s": statistics.median(t.decode_tokens_per_s for t in warm),
            }
        )
    return results
