"""The marks around a call, as patterns that also know their own beginnings.

This file owns the spelling of ``<tool_call>``, ``<function=...>`` and ``<parameter=...>``. Each
place has two patterns: one that finds the mark, and one that finds what may yet become it, which
reaches to the end of the text so far. It knows no state of a parser.
"""

from __future__ import annotations

import re

OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"
FUNCTION, CLOSE_FUNCTION = "<function=", "</function>"
PARAMETER, CLOSE_PARAMETER = "<parameter=", "</parameter>"

_Part = tuple[str, str]  # a pattern, and a pattern for all its beginnings
# Bounds keep a hostile text from being held back for ever.
_SPACES: _Part = (r"\s{0,99}", r"\s{0,99}")
_NEWLINES: _Part = (r"\n{0,2}", r"\n{0,2}")
_NEWLINE: _Part = (r"\n?", r"\n?")
_NAME: _Part = (r"[^<>\s]{1,256}", r"[^<>\s]{0,256}")
_KEY: _Part = (r"[^<>\n]{1,256}", r"[^<>\n]{0,256}")
# What models write in place of the ">" of "</parameter>": "1>", "/>", "_function>", nothing.
_DEBRIS: _Part = (r"[^<>\n]{0,32}>?", r"[^<>\n]{0,32}>?")


def _word(text: str) -> _Part:
    beginnings = [re.escape(text[:length]) for length in range(len(text) - 1, 0, -1)]
    return re.escape(text), f"(?:{'|'.join([*beginnings, ''])})"


def _beginnings(*ways: tuple[_Part, ...]) -> re.Pattern[str]:
    """Finds where the text so far ends in a beginning of one of these sequences."""
    patterns = []
    for way in ways:
        pattern = r"\Z"
        for whole, begun in reversed(way):
            pattern = rf"(?:{whole}{pattern}|{begun}\Z)"
        patterns.append(pattern)
    return re.compile("|".join(patterns))


_TO_PARAMETER = (_SPACES, _word(PARAMETER), _KEY, _word(">"))
_TO_FUNCTION_END = (_SPACES, _word(CLOSE_FUNCTION))
_TO_CALL_END = (_SPACES, _word(CLOSE_CALL))
_HEAD = (_word(FUNCTION), _NAME, _word(">"))
_IN_CALL = (_NEWLINES, _word(OPEN_CALL), _SPACES)
_VALUE_END = (_NEWLINE, _word(CLOSE_PARAMETER[:-1]), _DEBRIS)

BEGIN = re.compile(
    r"\n{0,2}(?:(?:<tool_call>\s{0,99})?<function=(?P<name>[^<>\s]{1,256})>"
    r"(?=\s{0,99}(?:<parameter=[^<>\n]{1,256}>|</function>))"
    r"|<tool_call>\s{0,99}(?=\{))"
)
"""A call: of XML with its function's name, or, without a name, of JSON.

The newlines before it are those that templates write between the text and a call."""

MAY_BEGIN = _beginnings(
    (*_IN_CALL, *_HEAD, *_TO_PARAMETER),
    (*_IN_CALL, *_HEAD, *_TO_FUNCTION_END),
    (_NEWLINES, *_HEAD, *_TO_PARAMETER),
    (_NEWLINES, *_HEAD, *_TO_FUNCTION_END),
)

NEXT = re.compile(
    r"\s{0,99}(?:<parameter=(?P<key>[^<>\n]{1,256})>|(?P<end></function>)|</tool_call>)"
)
"""What follows a function's name or a value: another parameter, or the end."""

END_VALUE = re.compile(
    r"\n?</parameter[^<>\n]{0,32}>?"
    r"(?=\s{0,99}(?:<parameter=[^<>\n]{1,256}>|</function>|</tool_call>))"
    r"|\n?(?=</function>\s{0,99}</tool_call>)"
)
"""The end of a value. A mark that nothing of a call follows is a part of the value."""

MAY_END_VALUE = _beginnings(
    (*_VALUE_END, *_TO_PARAMETER),
    (*_VALUE_END, *_TO_FUNCTION_END),
    (*_VALUE_END, *_TO_CALL_END),
    (_NEWLINE, _word(CLOSE_FUNCTION), *_TO_CALL_END),
    (_NEWLINE, _word(CLOSE_CALL), _SPACES),
)

END_CALL = re.compile(r"\s{0,99}</tool_call>")
MAY_END_CALL = _beginnings(_TO_CALL_END)
