"""Tables: gives every cell of a CSV or markdown table its header as context.

This file owns what counts as a table. In its edits a delimiter becomes a new line with the cell's
header before the cell, as in a form. It knows no recogniser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lily.gate.readings import Edit

_MAX_COLUMNS = 64
_MAX_HEADER = 40  # characters of a header cell
_DASHES = r"[ \t]{0,8}:?-{1,99}:?[ \t]{0,8}"
_RULE = re.compile(rf"^[ \t]{{0,8}}\|?{_DASHES}(?:\|{_DASHES}){{0,63}}\|?[ \t]{{0,8}}$")
_HEADER_CELL = re.compile(r"[^\W\d_][\w /#.()'-]{0,39}")
_DELIMITERS = "|\t,;"


@dataclass(frozen=True)
class _Line:
    start: int
    text: str


def _lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    at = 0
    for line in text.split("\n"):
        lines.append(_Line(at, line.rstrip("\r")))
        at += len(line) + 1
    return lines


def _cells(line: str, delimiter: str) -> list[tuple[int, int]]:
    """Spans of the cells, quotes kept together; none where there are too many."""
    cells: list[tuple[int, int]] = []
    start, quoted = 0, False
    for index, character in enumerate(line):
        if character == '"' and delimiter != "|":
            quoted = not quoted
        elif character == delimiter and not quoted:
            cells.append((start, index))
            start = index + 1
            if len(cells) > _MAX_COLUMNS:
                return []
    cells.append((start, len(line)))
    if delimiter == "|" and len(cells) > 1:  # the frame
        cells = [
            cell
            for n, cell in enumerate(cells)
            if 0 < n < len(cells) - 1 or line[slice(*cell)].strip()
        ]
    return cells


def _header(line: str, delimiter: str) -> list[str]:
    """Header cells; none where the line does not look like a header."""
    names = [line[start:end].strip().strip("\"'*` ") for start, end in _cells(line, delimiter)]
    if len(names) < 2 or not all(_HEADER_CELL.fullmatch(name) for name in names):
        return []
    return names if len({name.lower() for name in names}) == len(names) else []


def _row_edits(line: _Line, delimiter: str, names: list[str]) -> Iterator[Edit]:
    done = line.start
    for name, (start, end) in zip(names, _cells(line.text, delimiter), strict=True):
        cell = line.text[start:end]
        inner = start + len(cell) - len(cell.lstrip(' \t"'))
        yield done, line.start + inner, f"\n{name.replace('_', ' ')}: "
        done = line.start + max(inner, start + len(cell.rstrip(' \t"')))
    yield done, line.start + len(line.text), "\n"


def table_edits(text: str) -> list[Edit]:
    """Edits for all rows of all tables."""
    if "\n" not in text:
        return []
    lines = _lines(text)
    edits: list[Edit] = []
    index = 0
    while index + 1 < len(lines):
        rows, used = _table_at(lines, index)
        for line, delimiter, names in rows:
            edits.extend(_row_edits(line, delimiter, names))
        index += max(1, used)
    return edits


def _table_at(lines: list[_Line], index: int) -> tuple[list[tuple[_Line, str, list[str]]], int]:
    """The rows of a table whose header is line `index`, and how many lines it takes."""
    head = lines[index].text
    if len(head) > _MAX_COLUMNS * _MAX_HEADER:
        return [], 1
    for delimiter in _DELIMITERS:
        if head.count(delimiter) < 1 or not (names := _header(head, delimiter)):
            continue
        first = index + 1
        if delimiter == "|" and _RULE.match(lines[first].text):
            first += 1
        rows = []
        for line in lines[first:]:
            if line.text.count(delimiter) < len(names) - 1:
                break
            if len(_cells(line.text, delimiter)) != len(names):
                break
            rows.append((line, delimiter, names))
        if rows:
            return rows, first - index + len(rows)
    return [], 1
