"""Text of a file on this machine: plain text, CSV, HTML, PDF, XLSX.

This file owns the choice of the library by the file's name. It reads what the user named and knows
neither planner nor gate. Its messages name files: they are for the user, never for the planner.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from lily.errors import InvalidInput

_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


def files_below(path: Path) -> Iterator[Path]:
    """The file itself, or the readable files of a folder, in the order of their names.

    Links that lead out of the folder are left out: the user named this folder and no other.
    """
    if not path.exists():
        raise InvalidInput(f"'{path}' does not exist")
    if path.is_file():
        yield path
        return
    root = path.resolve()
    for found in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") or part in _SKIPPED for part in found.parts)
        inside = found.resolve().is_relative_to(root)
        if found.is_file() and inside and not hidden and kind_of(found):
            yield found


def kind_of(path: Path) -> str | None:
    """What a planner may know of it: "PDF document", "table", ...; None where we cannot read it."""
    found = _READERS.get(path.suffix.lower())
    return found[0] if found else None


def read_text(path: Path, max_bytes: int) -> str:
    """All text of the file. Raises InvalidInput naming the file."""
    found = _READERS.get(path.suffix.lower())
    if not found:
        known = ", ".join(sorted(_READERS))
        raise InvalidInput(f"'{path}' is of a kind that cannot be read, expected one of {known}")
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise InvalidInput(f"'{path}' has {size:,} bytes, expected up to {max_bytes:,}")
        text = found[1](path.read_bytes())
    except InvalidInput:
        raise
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"reading '{path.name}' needs {error.name}: pip install 'lily-engine[hybrid]'"
        ) from error
    except Exception as error:  # damaged files make these libraries raise anything
        raise InvalidInput(f"'{path}' cannot be read: {type(error).__name__}: {error}") from error
    if not text.strip():
        raise InvalidInput(f"'{path}' holds no text (a scan?)")
    return text


def _plain(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _csv(data: bytes) -> str:
    text = _plain(data)
    try:
        dialect: type[csv.Dialect] = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    rows = csv.reader(io.StringIO(text), dialect)
    return "\n".join(" | ".join(cell.strip() for cell in row) for row in rows)


def _html(data: bytes) -> str:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(data, "html.parser")
    for hidden in soup(["script", "style", "noscript", "template"]):
        hidden.decompose()
    lines = (line.strip() for line in soup.get_text("\n").splitlines())
    return "\n".join(line for line in lines if line)


def _pdf(data: bytes) -> str:
    from pypdf import PdfReader

    return "\n\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


def _xlsx(data: bytes) -> str:
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    lines = []
    for sheet in book.worksheets:
        lines.append(f"# {sheet.title}")
        for row in sheet.iter_rows(values_only=True):
            if any(cell is not None for cell in row):
                lines.append(" | ".join("" if cell is None else str(cell) for cell in row))
    return "\n".join(lines)


_READERS: dict[str, tuple[str, Callable[[bytes], str]]] = {
    **dict.fromkeys((".txt", ".md", ".rst", ".log", ".eml"), ("text", _plain)),
    **dict.fromkeys((".json", ".yaml", ".yml", ".toml", ".xml"), ("structured data", _plain)),
    **dict.fromkeys((".py", ".js", ".ts", ".c", ".cpp", ".h", ".rs", ".go"), ("source", _plain)),
    **dict.fromkeys((".csv", ".tsv"), ("table", _csv)),
    **dict.fromkeys((".html", ".htm"), ("web page", _html)),
    ".pdf": ("PDF document", _pdf),
    ".xlsx": ("spreadsheet", _xlsx),
}
