"""Draws the pictures in the README, docs/session.svg and docs/hybrid.svg, from what it runs.

Owns the lists of commands, the frame around them and the planner's script; what they print is the
program's, and what the planner got is what its socket received.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 92
COMMANDS = (
    ["lily", "generate", "What is a volcano?", "--seed", "1", "--no-think"],
    ["lily", "generate", "What is 17 + 25?", "--seed", "1"],
    ["lily", "generate", "Answer in JSON with the keys name and age: Anna is 30 years old.",
     "--seed", "1", "--no-think"],
    ["lily", "generate", "Tell me a short story about a fox.", "--seed", "4", "--no-think"],
)  # fmt: skip
NOTE = "The card of Anna Berg is 4111 1111 1111 1111."
HYBRID = (
    ["cat", "note.txt"],
    ["lily", "ask", "Add 128 and 212 and write it to ann.berg@example.org; say whose card pays.",
     "-f", "note.txt", "--receipt", "receipt.json"],
)  # fmt: skip


def main() -> None:
    """Run each command and record it under its prompt."""
    console = _console()
    for command in COMMANDS:
        _run(console, command)
    _save(console, "session")
    _save(_hybrid(), "hybrid")


def _hybrid() -> Console:
    sys.path.insert(0, str(ROOT))
    from tests.hybrid.planner import Say, ScriptedPlanner, Use

    def plan(messages: list[dict[str, Any]]) -> Any:
        told = [each["content"] for each in messages if each["role"] == "tool"]
        if told:
            address = re.search(r"\[EMAIL_\w+\]", messages[1]["content"])
            assert address, "the address was masked"
            return Say(f"To {address[0]}: it comes to {told[0]}. {{{{r1}}}}")
        return Use(
            [
                ("calculate", {"expression": "128 + 212"}),
                ("ask_worker", {"handles": ["d1"], "request": "Who is it about?"}),
            ]
        )

    console = _console()
    with tempfile.TemporaryDirectory() as home, ScriptedPlanner(plan) as planner:
        (Path(home) / "note.txt").write_text(NOTE)
        settings = Path(home) / ".config" / "lily" / "hybrid.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[planner]\nbase_url = "{planner.base_url}"\nmodel = "scripted"\n')
        for command in HYBRID:
            _run(console, command, home)
        console.print(Text("What the planner got, besides Lily's own constants:", "bold green"))
        for message in json.loads(planner.bodies[-1])["messages"][1:]:
            if message["role"] != "assistant":
                console.print(Text(f"{message['role']:>5}  {message['content']}"))
    return console


def _console() -> Console:
    return Console(record=True, width=COLUMNS, force_terminal=True)


def _run(console: Console, command: list[str], home: str | None = None) -> None:
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    if home:
        environment["HOME"] = home
    console.print(Text(f"$ {shlex.join(command)}", style="bold green"))
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=True, timeout=120
    )
    console.print(Text.from_ansi(done.stdout.rstrip()))
    if done.stderr.strip():
        console.print(Text.from_ansi(done.stderr.rstrip()), style="dim")
    console.print()


def _save(console: Console, name: str) -> None:
    # Rich asks for a web font; the picture shall load nothing.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="lily"), flags=re.DOTALL)
    (ROOT / "docs" / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
