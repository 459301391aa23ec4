"""Who may import whom in python/lily: the table of DESIGN section 1, checked in the source."""

from __future__ import annotations

import ast
from pathlib import Path

import lily.errors
import pytest

SOURCE = Path(lily.errors.__file__).parent
# A module may import those of lower rows only; modules of one row do not know each other.
LAYERS = (
    ("errors", "machine", "watch", "words"),
    ("cancel", "completion", "gate", "hub", "sampling", "stops", "template", "tokenizer"),
    ("chat", "toolcalls"),
    ("estimate", "structured"),
    ("doctor", "request", "versus"),
    ("answer", "pool", "conversation"),
    ("generation",),
    ("engine",),
    ("hybrid", "integrations"),
    ("server",),
    ("batch",),
    ("cli",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
PACKAGES = ("cli", "doctor", "gate", "hybrid", "integrations", "server", "toolcalls", "versus")
MAX_LINES = 400


def modules() -> dict[str, Path]:
    packages = [
        file
        for name in (
            "cli",
            "doctor",
            "gate",
            "hybrid",
            "integrations",
            "server",
            "toolcalls",
            "versus",
        )
        for file in (SOURCE / name).glob("*.py")
    ]
    files = [*SOURCE.glob("*.py"), *packages]
    return {str(file.relative_to(SOURCE)): file for file in files}


def imported(tree: ast.AST) -> set[str]:
    """Names of lily's modules that this code imports when it runs, also inside functions."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            root, *rest = node.module.split(".")
            if root == "lily":
                found |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {n.name.split(".")[1] for n in node.names if n.name.startswith("lily.")}
        found |= imported(node)
    return found


@pytest.mark.parametrize("name", RANK)
def test_imports_go_down(name):
    files = [path for key, path in modules().items() if key.split("/")[0] in (name, f"{name}.py")]
    assert files, f"lily.{name} is gone; mend the table"
    for file in files:
        for other in imported(ast.parse(file.read_text("utf-8"))) - {"_native", name}:
            if name == "cli" and other == "convert":
                continue
            assert RANK.get(other, 99) < RANK[name], f"{file.name} imports {other}"


@pytest.mark.parametrize("name", modules())
def test_files_are_short_and_open_with_their_charter(name):
    text = modules()[name].read_text("utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text)), "no charter"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            docstring = ast.get_docstring(node) or ""
            assert lines - len(docstring.splitlines()) <= 60, f"{node.name} has {lines} lines"
