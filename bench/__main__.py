"""``python -m bench``: one command line over all benchmarks.

This file owns nothing but the list of sub-commands; each module declares its own options. Only the
one that is asked for is imported, because each needs other packages.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

COMMANDS = {
    "kernels": "kernels",
    "gpu": "gpu",
    "token": "token_profile",
    "profiled": "profiled",
    "engine": "engine",
    "encoder": "encoder",
    "gate": "gate.command",
    "peers": "peers",
    "load": "load",
    "server": "server",
    "server-cancels": "server_cancels",
    "quality": "quality.command",
    "table": "table",
    "make-mid": "make_mid",
    "make-full": "full_model",
    "make-gguf": "full_gguf",
    "lengths": "lengths",
    "soak": "soak",
    "resident": "resident",
    "worker": "worker",
}


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn a refusal into a message and exit status 1."""
    words = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        summary = _summary(module)
        command = commands.add_parser(name, help=summary, description=summary)
        if words[:1] == [name]:
            chosen = importlib.import_module(f"bench.{module}")
            chosen.add_options(command)
    arguments = parser.parse_args(words)
    try:
        chosen.run(arguments)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _summary(module: str) -> str:
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
