"""The layout of DESIGN section 1, checked: homes of kernel families, layers, charters, sizes.

This file owns the rules that no compiler enforces. It imports nothing of Lily.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("embed", "norm", "rope", "linear", "attention", "delta", "moe", "sample", "encoder")
CPP, PYTHON = {".cpp", ".h", ".metal"}, {".py", ".pyi"}
MAX_LINES = {".cpp": 500, ".h": 500, ".metal": 500, ".py": 400}
MAX_FUNCTION_LINES = 60

# C++ folder -> folders whose headers it may include, besides its own.
CPP_LAYERS = {
    "core": set(),
    "cpu": {"core"},
    "device": {"core"},
    "ops": {"device", "core"},
    "model": {"ops", "device", "core"},
    "engine": {"model", "ops", "device", "core"},
    "bindings": {"engine", "model", "ops", "device", "core", "cpu"},
}
READS_PARAMS = {"cpu", "ops", "model", "engine", "bindings"}  # metal/params.h

# Python modules from the top; those not named stand at the bottom, beside errors and tokenizer.
PYTHON_LAYERS = [
    ("__main__",),
    ("cli",),
    ("batch", "integrations"),
    ("server",),
    ("hybrid",),
    ("engine",),
]


@cache
def files() -> list[Path]:
    """All files of the repository that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    # An unpacked source distribution.
    folders = ("metal", "src", "python", "tests", "bench", "tools")
    return [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]


def code(suffixes: set[str], folder: str = "") -> list[Path]:
    """Source files below a folder."""
    return [
        path for path in files() if path.suffix in suffixes and path.is_relative_to(ROOT / folder)
    ]


def name(path: Path) -> str:
    """A path as messages show it."""
    return str(path.relative_to(ROOT))


def stems(folder: str, pattern: str) -> set[str]:
    """Names of the files in a folder, without suffix."""
    return {path.stem for path in (ROOT / folder).glob(pattern)}


# --- families ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_family_has_its_homes(family):
    """One name, four homes; metal counts as soon as there is any kernel."""
    assert family in stems("src/cpu", "*.cpp")
    assert family in stems("src/ops", "*.cpp")
    assert f"test_{family}" in stems("tests/kernels", "test_*.py")
    kernels = stems("metal", "*.metal")
    assert not kernels or any(re.fullmatch(rf"{family}(_\w+)?", stem) for stem in kernels)


def test_nothing_else_calls_itself_a_family():
    """A kernel file belongs to a family, or is one of the few that serve all."""
    prefixes = re.compile(rf"({'|'.join(FAMILIES)})(_\w+)?")
    known = {
        "src/cpu": {"dispatch", "table"},
        "src/ops": {"check", "tensor", "tensor_check", "tiles"},
        "metal": set(),
    }
    for folder, shared in known.items():
        for pattern in ("*.cpp", "*.metal"):
            for stem in stems(folder, pattern) - shared:
                assert prefixes.fullmatch(stem), f"{folder}/{stem} belongs to no family"
    # Three are about a kind of tile that several families have.
    tiles = {"test_lane_tiles", "test_prefill_lanes", "test_prefill_tensor"}
    for stem in stems("tests/kernels", "test_*.py") - tiles:
        assert prefixes.fullmatch(stem.removeprefix("test_")), f"{stem} belongs to no family"


# --- layers -----------------------------------------------------------------------------------


def test_cpp_layers():
    """bindings -> engine -> model -> ops -> device -> core; params.h is a leaf."""
    wrong = []
    for path in code(CPP, "src"):
        layer = path.relative_to(ROOT / "src").parts[0]
        allowed = CPP_LAYERS[layer] | {layer}
        if name(path).startswith("src/device/cpu/"):
            allowed = allowed | {"cpu"}
        for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            folder = header.split("/")[0]
            if folder not in allowed and not (header == "params.h" and layer in READS_PARAMS):
                wrong.append(f"{name(path)} includes {header}")
    assert not wrong, "\n".join(wrong)


def test_only_bindings_see_python():
    """No other folder includes nanobind or Python."""
    seen = re.compile(r'#\s*include\s+[<"](nanobind|Python\.h)')
    wrong = [
        name(path)
        for path in code(CPP, "src")
        if seen.search(path.read_text()) and path.parent.name != "bindings"
    ]
    assert not wrong


def test_only_the_metal_device_sees_metal():
    """No other folder of the library includes metal-cpp, or asks which system this is."""
    seen = re.compile(r"#\s*include\s+[<\"](Metal/|Foundation/|objc/|device/metal/metal_cpp)")
    wrong = [
        name(path)
        for path in code(CPP, "src")
        if seen.search(path.read_text()) and not name(path).startswith("src/device/metal/")
    ]
    assert not wrong


def test_params_is_a_leaf():
    """Kernels of every compiler read it, so it includes nothing but fixed-width integers."""
    text = (ROOT / "metal" / "params.h").read_text()
    assert re.findall(r"#\s*include\s+(\S+)", text) == ["<stdint.h>"]


def python_layer(module: str) -> int:
    """0 at the top."""
    top = module.split(".")[1] if module.startswith("lily.") else module
    for layer, modules in enumerate(PYTHON_LAYERS):
        if top in modules:
            return layer
    return len(PYTHON_LAYERS)


def imports(path: Path) -> set[str]:
    """Modules of Lily that a file imports when it runs; not those for type checkers."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} has a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return {module for module in found if module.startswith("lily.")}


def test_python_layers():
    """cli, server -> hybrid -> engine -> {hub, tokenizer, chat, sampling, ...} -> _native."""
    package = ROOT / "python" / "lily"
    wrong = []
    for path in code({".py"}, "python/lily"):
        own = path.relative_to(package).with_suffix("").parts[0]
        if own == "__init__":  # gives the public names lazily
            continue
        for module in imports(path):
            above = python_layer(module) < python_layer(f"lily.{own}")
            if above or (
                own == "gate" and module.split(".")[1] not in ("gate", "errors", "_native")
            ):
                wrong.append(f"{name(path)} imports {module}")
    assert not wrong, "\n".join(wrong)


# What every API of the server stands on, from the top; none of it knows HTTP or an API's shapes.
SERVER_CORE = ["core", "answer", "host", "settings", "errors"]


@pytest.mark.parametrize("stem", SERVER_CORE)
def test_the_servers_core_knows_no_api(stem):
    """core -> answer, host -> settings, errors; no web framework and no API."""
    path = ROOT / "python" / "lily" / "server" / f"{stem}.py"
    below = SERVER_CORE[SERVER_CORE.index(stem) + 1 :]
    allowed = {f"lily.server.{other}" for other in below}
    seen = {module for module in imports(path) if module.startswith("lily.server.")}
    named = {module for module in seen if module.count(".") == 2}
    assert named <= allowed
    assert not re.search(r"^\s*(import|from) (starlette|uvicorn|pydantic)", path.read_text(), re.M)


# --- files ------------------------------------------------------------------------------------


def charter(path: Path) -> str:
    """The comment or docstring that opens a file."""
    text = path.read_text()
    if path.suffix in CPP:
        return "\n".join(re.match(r"(//[^\n]*\n)*", text).group(0).splitlines())
    return ast.get_docstring(ast.parse(text)) or ""


def test_files_open_with_their_charter():
    """What a file owns and does not know, before anything else."""

    def opens_well(path: Path) -> bool:
        text = charter(path)
        own_header = path.with_suffix(".h")  # whose charter serves both
        return len(text) >= 20 or (text == f"// See {own_header.name}." and own_header.is_file())

    wrong = [name(path) for path in code(CPP | {".py"}) if not opens_well(path)]
    assert not wrong, "\n".join(wrong)


def test_files_stay_short():
    """500 lines of C++ or Metal, 400 of Python; more with the reason in the charter."""
    wrong = []
    for path in code(set(MAX_LINES)):
        lines, limit = len(path.read_text().splitlines()), MAX_LINES[path.suffix]
        if lines > limit and "Longer than" not in charter(path):
            wrong.append(f"{name(path)} has {lines} lines, expected up to {limit}")
    assert not wrong, "\n".join(wrong)


def test_python_functions_stay_short():
    """60 lines, docstring included; tools may be longer where they list data."""
    wrong = []
    for path in code({".py"}, "python") + code({".py"}, "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    wrong.append(f"{name(path)}:{node.lineno} {node.name} has {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_no_machine_paths():
    """Nothing in the repository points at the machine where it was written."""
    # Spelled in pieces, for this file is read as well.
    places = "|".join(["/" + "work/", "/" + r"home/\w", "/" + r"Users/\w", "/" + r"tmp/\w{2}"])
    machine = re.compile(rf"(?<![\w.~}}])({places})".encode())
    wrong = []
    for path in files():
        if path.stat().st_size > 2**20:
            continue
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.splitlines(), 1):
            if machine.search(line):
                wrong.append(f"{name(path)}:{number}: {line[:80].decode(errors='replace')}")
    assert not wrong, "\n".join(wrong)
