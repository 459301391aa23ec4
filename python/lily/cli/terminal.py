"""What goes to the terminal, and how.

This file owns styling: answers are plain, thinking and remarks are dim. It knows no engine.
"""

from __future__ import annotations

import sys
from typing import TextIO

from lily.completion import Chunk

# What a model writes is not trusted: an escape sequence in it could rewrite the user's screen.
_HARMLESS = {
    code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def harmless(text: str) -> str:
    """A text as a terminal may get it."""
    return text.translate(_HARMLESS)


class AnswerPrinter:
    """Prints the chunks of one answer as they come.

    The answer goes to ``out``. Thinking goes, dim, to ``remarks``, if that is a terminal.
    """

    def __init__(self, out: TextIO | None = None, remarks: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._remarks = sys.stderr if remarks is None else remarks
        self._thought = False
        self._line_open = False

    def show(self, chunk: Chunk) -> None:
        """Print what is new in ``chunk``."""
        if chunk.reasoning and self._remarks.isatty():
            text = harmless(chunk.reasoning)
            self._write(self._remarks, f"{_DIM}{text}{_PLAIN}")
            self._line_open = not text.endswith("\n")
            self._thought = True
        if chunk.text:
            if self._thought:
                self._write(self._remarks, "\n\n" if self._line_open else "\n")
                self._thought = False
            shown = harmless(chunk.text) if self._out.isatty() else chunk.text
            self._write(self._out, shown)
            self._line_open = not shown.endswith("\n")

    def end(self, remark: str = "") -> None:
        """Finish the line, and add a dim remark on a terminal."""
        if self._line_open:
            self._write(self._out, "\n")
        if remark and self._remarks.isatty():
            self._write(self._remarks, f"{_DIM}{remark}{_PLAIN}\n")

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


def remark(text: str) -> None:
    """A dim line on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        print(f"{_DIM}{text}{_PLAIN}", file=sys.stderr)
