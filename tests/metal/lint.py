"""The lint of metal/: what clang takes and Apple's compiler does not, and Lily's own house rules.

    python tests/metal/lint.py [FILES]     all of metal/ by default; 1 where a rule is broken

Rules about words read the text; rules about types ask clang, whose syntax tree (without any
instantiation) shows each pointer's address space, and whose warnings (with all of them) show what
converts silently. What kernels look like from outside is lint_kernels.py. Knows no kernel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import metal_clang  # noqa: E402

METAL = ROOT / "metal"
# Declares no kernel, so that no template is instantiated and the tree is the source's own.
NO_KERNELS = (
    "#include <metal_stdlib>\n#undef LILY_KERNEL\n#define LILY_KERNEL(name, threads, ...)\n"
)

SPACES = ("__global", "__constant", "__local", "__private")
_HAS_SPACE = re.compile("|".join(rf"\b{space}\b" for space in SPACES))

_DIGITS, _EXPONENT = r"(?:\d+\.\d*|\.\d+)", r"[eE][-+]?\d+"
_NO_SUFFIX = r"(?![\w.])"
TEXT_RULES = [
    ("double", r"\bdouble\b", "there is no double on a GPU"),
    (
        "literal",
        rf"(?<![\w.])(?:{_DIGITS}(?:{_EXPONENT})?|\d+{_EXPONENT}){_NO_SUFFIX}"
        rf"|\b0[xX][\da-fA-F.]+[pP][-+]?\d+{_NO_SUFFIX}",
        "a floating literal without f is a double",
    ),
    ("goto", r"\bgoto\b", "Metal has no goto"),
    ("exceptions", r"\b(?:try|throw|catch)\b", "Metal has no exceptions"),
    ("new and delete", r"\b(?:new|delete)\b", "Metal has no heap"),
    ("virtual", r"\b(?:virtual|override|final)\b", "Metal has no virtual functions"),
    ("run-time types", r"\b(?:dynamic_cast|typeid)\b", "Metal has no run-time types"),
    ("std", r"\bstd\s*::|#\s*include\s*<(?!metal_|Metal|stdint\.h>)", "Metal has no C++ library"),
    ("vec constructor", r"\bvec\s*<[^;(){}]*>\s*[({]", "write float4(...), not vec<float, 4>(...)"),
    ("kernel word", r"\bhost_name\b|\bkernel\s+void\b", "kernels are declared by LILY_KERNEL"),
]
_ASM = re.compile(r"\b(?:asm|__asm__|__asm|__nvvm_\w+)\b")
_LAMBDA = re.compile(r"(?:[=(,]|\breturn)\s*\[[^\]\[]*\]\s*(?:\([^()]*\)\s*)?(?:mutable\s*)?\{")


@dataclass(frozen=True, order=True)
class Finding:
    """A broken rule, at a line."""

    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


def plain_code(text: str) -> str:
    """The text without comments and strings; lines stay where they are."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)


def check_text(name: str, text: str) -> list[Finding]:
    """Rules about words. `name` is the file's, for *_nvidia.h has more rights."""
    # What stands in <> and "" of an include is no string here.
    code, found = plain_code(text), []

    def add(rule: str, pattern: str | re.Pattern[str], message: str) -> None:
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            found.append(Finding(name, line, rule, message))

    for rule, pattern, message in TEXT_RULES:
        if (rule, name) != ("kernel word", "kernel.h"):  # where the word is made
            add(rule, pattern, message)
    add("lambda", _LAMBDA, "Metal has no lambdas")
    if not name.endswith("_nvidia.h"):
        add("asm", _ASM, "machine code belongs into *_nvidia.h")
    if name.endswith(".metal"):
        found += _unnamed_kernels(name, code)
    return found


def _unnamed_kernels(name: str, code: str) -> Iterator[Finding]:
    """Functions marked [[kernel]] that no LILY_KERNEL names."""
    places = [match.end() for match in re.finditer(r"\bLILY_(?:EARLY_|BRIDGE_)?KERNEL\s*\(", code)]
    named = " ".join(code[place : code.find("\n\n", place)] for place in places)
    for match in re.finditer(r"\[\[kernel\]\]\s*(?:void\s+)?(\w+)", code):
        if not re.search(rf"\b{match[1]}\b", named):
            line = code.count("\n", 0, match.start()) + 1
            yield Finding(name, line, "kernel word", f"{match[1]}: no LILY_KERNEL names it")


# --- clang ------------------------------------------------------------------------------------


def clang(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run clang with the flags of tools/metal_clang.py, warnings off."""
    language = [word for word in metal_clang.LANGUAGE if not word.startswith(("-Werror", "-Wall"))]
    command = [metal_clang.find_clang(None), *language, "-Wno-everything", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def check_conversions(source: Path) -> list[Finding]:
    """What clang refuses, and what it converts silently; every kernel is instantiated."""
    warnings = ["-Wimplicit-float-conversion", "-Wdouble-promotion"]
    done = clang(*warnings, "-fsyntax-only", str(source))
    found = []
    for file, line, kind, message in re.findall(
        r"^(.+?):(\d+):\d+: (warning|fatal error|error): (.*)$", done.stderr, re.MULTILINE
    ):
        if kind == "warning" and not re.search(r"'(?:bfloat|__bf16|double)'", message):
            continue  # float to half is silent in Metal as well
        rule = "conversion" if kind == "warning" else "compiler"
        found.append(Finding(_short(file), int(line), rule, message))
    return found


def check_tree(source: Path) -> list[Finding]:
    """Rules about types and declarations, from clang's syntax tree of namespace lily."""
    dump = ["-Xclang", "-ast-dump=json", "-Xclang", "-ast-dump-filter=lily::"]
    prelude = ["-include", "/dev/stdin"]
    done = clang(*prelude, "-fsyntax-only", *dump, str(source), stdin=NO_KERNELS)
    if "error:" in done.stderr:
        return []  # check_conversions says which
    tree = Tree()
    decoder, at, text = json.JSONDecoder(), 0, done.stdout
    while (at := text.find("{", at)) >= 0:
        node, at = decoder.raw_decode(text, at)
        tree.visit(node, in_function=False)
    return tree.findings()


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(METAL)) if path.is_relative_to(METAL) else path.name


class Tree:
    """Walks clang's syntax tree. clang leaves out a place's file and line where they repeat."""

    def __init__(self) -> None:
        self._file, self._line = "", 0
        self._found: set[Finding] = set()
        self._same: dict[str, str] = {}  # a declaration -> the first one of the same function
        self._calls: dict[str, set[str]] = {}
        self._names: dict[str, tuple[str, str, int]] = {}

    def findings(self) -> list[Finding]:
        """All broken rules, recursion included."""
        return sorted(self._found | set(self._recursive()))

    def visit(self, node: Any, in_function: bool, function: str = "") -> None:
        """Judge a node and what is in it."""
        kind = node.get("kind", "")
        place = self._place(node)
        if node.get("isImplicit"):
            self._skip(node)
            return
        if kind == "FunctionTemplateDecl":
            pattern = next(it for it in node["inner"] if it["kind"] in _FUNCTIONS)
            self._same[node["id"]] = self._first(pattern)
        if kind in _FUNCTIONS:
            function = self._enter(node, place)
            in_function = True
        self._judge(node, kind, place, in_function)
        for called in self._called(node, kind):
            self._calls.setdefault(function, set()).add(called)
        for child in node.get("inner", ()):
            self.visit(child, in_function, function)

    def _enter(self, node: Any, place: tuple[str, int]) -> str:
        first = self._first(node)
        self._names.setdefault(first, (node.get("name", ""), *place))
        return first

    def _first(self, node: Any) -> str:
        first = self._same.get(node.get("previousDecl", ""), node["id"])
        self._same[node["id"]] = first
        return first

    @staticmethod
    def _called(node: Any, kind: str) -> list[str]:
        if kind == "DeclRefExpr":
            return [node["referencedDecl"]["id"]]
        if kind in ("UnresolvedLookupExpr", "UnresolvedMemberExpr"):
            return [it["id"] for it in node.get("lookups", ())]
        if kind == "MemberExpr":
            return [node.get("referencedMemberDecl", "")]
        return []

    def _judge(self, node: Any, kind: str, place: tuple[str, int], in_function: bool) -> None:
        def add(rule: str, message: str) -> None:
            self._found.add(Finding(*place, rule, message))

        written = node.get("type", {}).get("qualType", "")
        spelled = f"{node.get('name', 'a cast')}: {written}"
        if kind == "LambdaExpr":
            add("lambda", "Metal has no lambdas")
        if kind in _TYPED and not has_spaces(written):
            add("pointer", f"{spelled}: says no address space")
        if kind in _FUNCTIONS:
            if not has_spaces(written.split("(")[0]):
                add("pointer", f"{spelled}: returns a pointer without address space")
            # A member function is of objects somewhere; a static one is of none.
            behind = written[written.rfind(")") :]
            if kind in _METHODS and not node.get("storageClass") and not _HAS_SPACE.search(behind):
                add("pointer", f"{spelled}: a member function names where its object lies")
        if kind in _TYPED and re.search(r"\bdouble\b", written):
            add("double", spelled)
        if kind == "VarDecl":
            is_static = node.get("storageClass") in ("static", "extern")
            if (is_static or not in_function) and "__constant" not in written:
                add("state", f"{spelled}: a variable that outlives the kernel is `constant`")
            if in_function and is_static:
                add("state", f"{spelled}: a function keeps nothing")
        if (
            kind == "ImplicitCastExpr"
            and node.get("castKind") in ("FloatingCast", "IntegralToFloating")
            and re.search(r"\b(?:bfloat|__bf16)\b", written)
            and not node.get("isPartOfExplicitCast")
        ):
            add("conversion", "to bfloat, without saying so")

    def _recursive(self) -> Iterator[Finding]:
        graph = {
            caller: {self._same[it] for it in called if self._same.get(it) in self._names}
            for caller, called in self._calls.items()
            if caller
        }

        def reaches(start: str) -> bool:
            seen, open_ = set(), list(graph.get(start, ()))
            while open_:
                at = open_.pop()
                if at == start:
                    return True
                if at not in seen:
                    seen.add(at)
                    open_ += graph.get(at, ())
            return False

        for function in graph:
            name, *place = self._names[function]
            if reaches(function):
                yield Finding(*place, "recursion", f"{name} comes back to itself")

    def _place(self, node: Any) -> tuple[str, int]:
        """Follow a node's places in the order in which clang printed them."""
        where = (_short(self._file), self._line)
        for key in ("loc", "range"):
            for part in _places(node.get(key, {})):
                self._file = part.get("file", self._file)
                self._line = part.get("line", self._line)
                if key == "range" and part is node["range"].get("begin"):
                    where = (_short(self._file), self._line)
            if key == "loc" and "offset" in str(node.get("loc", {})):
                where = (_short(self._file), self._line)
        return where

    def _skip(self, node: Any) -> None:
        for child in node.get("inner", ()):
            self._place(child)
            self._skip(child)


_METHODS = ("CXXMethodDecl", "CXXConstructorDecl", "CXXDestructorDecl", "CXXConversionDecl")
_FUNCTIONS = ("FunctionDecl", *_METHODS)
_TYPED = (
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("CStyleCastExpr", "CXXFunctionalCastExpr", "CXXStaticCastExpr", "CXXReinterpretCastExpr"),
)


def _places(place: Any) -> Iterator[Any]:
    """The bare places in a place or range, macros' two included."""
    if "offset" in place:
        yield place
    for value in place.values():
        if isinstance(value, dict) and value is not place.get("includedFrom"):
            yield from _places(value)


def has_spaces(written: str) -> bool:
    """Whether each pointer and reference of a type says what it points into."""
    without_extents = re.sub(r"\[[^\]]*\]", "", written)
    # clang writes no space behind a pointer's star, and one on both sides of an operator.
    *pointees, _ = re.split(r"(?:&&|[*&](?!&))(?! \w)", without_extents)
    return all(_HAS_SPACE.search(pointee) for pointee in pointees)


# --- all --------------------------------------------------------------------------------------


def metal_files() -> list[Path]:
    """Everything of metal/ that Apple's compiler reads."""
    paths = [path for path in METAL.rglob("*") if path.suffix in (".metal", ".h")]
    return sorted(path for path in paths if METAL / "clang" not in path.parents)


def kernel_files() -> list[Path]:
    """The .metal files that clang takes too."""
    return [path for path in metal_files() if path.suffix == ".metal"]


def check_source(source: Path) -> list[Finding]:
    """Everything that clang is asked about one .metal file and what it includes."""
    return check_conversions(source) + check_tree(source)


def main(names: list[str]) -> int:
    """Check files and print what is wrong."""
    sys.path.insert(0, str(ROOT / "tests"))
    from metal import lint_host, lint_kernels

    files = [Path(name).resolve() for name in names] or metal_files()
    found: set[Finding] = set()
    for file in files:
        found.update(check_text(_short(str(file)), file.read_text()))
        if file in kernel_files():
            found.update(check_source(file))
            found.update(lint_kernels.check_kernels(file))
            found.update(lint_host.check_launches(file.name, lint_kernels.read_kernels(file)))
    for finding in sorted(found):
        print(finding)
    print(f"{len(files)} files, {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
