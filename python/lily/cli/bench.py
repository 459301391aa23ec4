"""``lily bench``: how fast a model runs here, beside mlx-lm, or on a chip that is not here.

This file owns the method: synthetic prompts that share no prefix, greedy answers that ignore the
end token, medians over rounds after one warm-up. It uses the public engine only. An estimate is
counted by `lily.estimate`, a comparison made by `lily.versus`; here both are only shown.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lily.cli import options
from lily.errors import DeviceError, DownloadError, InvalidInput, ModelError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from lily.engine import Engine


_Length = Annotated[
    list[int] | None,
    typer.Option("--length", "-l", help="Prompt tokens; can be repeated. [128, 512, 2048]"),
]
_Tokens = Annotated[int, typer.Option("--tokens", min=2, help="Tokens to generate.")]
_Rounds = Annotated[
    int | None, typer.Option("--rounds", min=1, help="Median over these. [3; 2 with --vs]")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_ModelOf = Annotated[
    str | None,
    typer.Option(
        "--model-of",
        metavar="CHIP",
        help="Measure nothing: estimate decode on an Apple chip, such as m5-max, at contexts "
        "of --length. The model's config.json is enough.",
    ),
]
_Versus = Annotated[
    str | None,
    typer.Option(
        "--vs",
        metavar="ENGINE",
        help="Measure beside mlx-lm: ten lengths, unattended, with a report to publish.",
    ),
]
_Out = Annotated[Path, typer.Option("--out", help="With --vs: the folder of the report.")]
_Cooldown = Annotated[
    float, typer.Option("--cooldown", min=0, help="With --vs: seconds before each process.")
]


def bench(
    model: options.Model = None,
    length: _Length = None,
    tokens: _Tokens = 64,
    rounds: _Rounds = None,
    as_json: _Json = False,
    model_of: _ModelOf = None,
    vs: _Versus = None,
    out: _Out = Path("lily-vs-mlx-lm"),
    cooldown: _Cooldown = 20.0,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Measure prefill and decode speed."""
    if model_of is not None:
        found = estimate(model_of, model, revision, length or [])
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _print_estimate(found)
        return
    if vs is not None:
        if as_json or threads is not None or max_context is not None:
            raise InvalidInput("--vs takes no --json, --threads and --max-context")
        folder = options.resolve_cached(model, revision, not offline)
        settings = {"lengths": length or [], "tokens": tokens, "rounds": rounds or 2}
        compare_with(vs, folder, model, out, device=device, cooldown_s=cooldown, **settings)
        return
    from rich.console import Console
    from rich.table import Table

    rounds = rounds or 3
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


def compare_with(engine: str, folder: Path, model: str | None, out: Path, **settings: Any) -> None:
    """Run the comparison of `lily.versus` and write its report.

    Raises DeviceError after what was measured has been written, where it was broken off.
    """
    from rich.console import Console

    from lily import words

    if engine != "mlx-lm":
        raise InvalidInput(f"--vs {engine}: there is no such comparison; known is mlx-lm")
    from lily.versus.measure import compare
    from lily.versus.plan import make_plan
    from lily.versus.report import write_report

    name = "lily-tiny" if model is None else words.short_name(model)
    plan = make_plan(folder, name, **settings)
    remarks = Console(stderr=True, highlight=False)
    with remarks.status("") as status:
        found = compare(plan, progress=lambda what: status.update(what))
    for path in write_report(found, out):
        typer.echo(str(path))
    if found.broken_off:
        raise DeviceError(f"broken off, and the report says so: {found.broken_off}")


def estimate(
    chip_name: str, model: str | None, revision: str | None, lengths: list[int]
) -> dict[str, Any]:
    """What `lily.estimate` counts for a checkpoint here, of which only config.json is needed."""
    from lily import _native, hub, words
    from lily import estimate as counted

    chip = counted.find_chip(chip_name)
    try:
        folder = hub.resolve(model, revision=revision, offline=True)
    except DownloadError as error:
        raise DownloadError(f"{error}; a folder with its config.json alone is enough") from error
    facts: Mapping[str, Any] = _native.describe(str(folder))
    if not facts["config"]:
        raise ModelError("\n".join(facts["problems"]))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    at = counted.contexts(lengths, facts["config"]["max_positions"])
    name = "lily-tiny" if model is None else words.short_name(model)
    return {"model": name, **counted.report(chip, counted.count(facts, config), at)}


def _print_estimate(found: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    chip, contexts = found["chip"], found["contexts"]
    console.print(found["estimate"], style="bold", markup=False)
    about = f"{chip['name']}, {chip['gpu_cores']} GPU cores, {chip['gb_per_s']} GB/s"
    variant = f" ({chip['variant']})" if chip["variant"] else ""
    console.print(f"\n{found['model']} on {about}{variant}\n", markup=False)
    speeds = Table("context", "MB a token", *(f"{case} tok/s" for case in found["cases"]), box=None)
    for row in contexts:
        figures = (f"{speed:,.0f}" for speed in row["tokens_per_s"].values())
        speeds.add_row(f"{row['context']:,}", _megabytes(row["bytes_per_token"]), *figures)
    _print_figures(console, speeds)
    parts = found["bytes_by_part"]
    total = sum(parts.values())
    table = Table("read or written for one token, empty context", "MB", "%", box=None)
    for part, size in [*parts.items(), ("in all", total)]:
        table.add_row(part, _megabytes(size), f"{100 * size / total:.1f}")
    table.add_row(
        "for each 1,000 tokens of context", _megabytes(1000 * found["kv_bytes_per_context_token"])
    )
    table.add_row("dispatches", str(found["dispatches_per_token"]))
    console.print()
    _print_figures(console, table)
    console.print("\nAssumed", style="bold")
    for line in found["assumptions"]:
        console.print(f"- {line}", markup=False)


def _print_figures(console: Console, table: Table) -> None:
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"
