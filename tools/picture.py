"""Draws docs/session.svg, the picture in the README, from commands that it really runs.

Owns the list of commands and the frame around them; what they print is the program's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "session.svg"
COLUMNS = 92
COMMANDS = (
    ["lily", "generate", "What is a volcano?", "--seed", "1", "--no-think"],
    ["lily", "generate", "What is 17 + 25?", "--seed", "1"],
    ["lily", "generate", "Answer in JSON with the keys name and age: Anna is 30 years old.",
     "--seed", "1", "--no-think"],
    ["lily", "generate", "Tell me a short story about a fox.", "--seed", "4", "--no-think"],
)  # fmt: skip


def main() -> None:
    """Run each command and record it under its prompt."""
    console = Console(record=True, width=COLUMNS, force_terminal=True)
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    for command in COMMANDS:
        console.print(Text(f"$ {shlex.join(command)}", style="bold green"))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        console.print(Text.from_ansi(done.stdout.rstrip()))
        if done.stderr.strip():
            console.print(Text.from_ansi(done.stderr.rstrip()), style="dim")
        console.print()
    PICTURE.parent.mkdir(exist_ok=True)
    # Rich asks for a web font; the picture shall load nothing.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="lily"), flags=re.DOTALL)
    PICTURE.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
