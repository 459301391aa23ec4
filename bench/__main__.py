"""``python -m bench``: one command line over all benchmarks.

This file owns nothing but the list of sub-commands; each module declares its own options.
"""

from __future__ import annotations

import argparse
import sys

from bench import (
    encoder,
    engine,
    full_gguf,
    full_model,
    gpu,
    kernels,
    lengths,
    load,
    make_mid,
    peers,
    resident,
    server,
    server_cancels,
    soak,
    table,
    worker,
)
from bench.gate import command as gate
from bench.quality import command as quality

COMMANDS = {
    "kernels": kernels,
    "gpu": gpu,
    "engine": engine,
    "encoder": encoder,
    "gate": gate,
    "peers": peers,
    "load": load,
    "server": server,
    "server-cancels": server_cancels,
    "quality": quality,
    "table": table,
    "make-mid": make_mid,
    "make-full": full_model,
    "make-gguf": full_gguf,
    "lengths": lengths,
    "soak": soak,
    "resident": resident,
    "worker": worker,
}


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn a refusal into a message and exit status 1."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        module.add_options(commands.add_parser(name, help=summary, description=summary))
    arguments = parser.parse_args(argv)
    try:
        COMMANDS[arguments.command].run(arguments)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
