"""Originals in place of placeholders: in a text, in a stream, inside a tool call's arguments.

This file owns the way back. A model may change a placeholder's case, spacing and markdown; it is
found all the same. A stream holds back only what could still become a live placeholder, and gives
it out as it is when the stream ends. It knows no detector and no rule.
"""

from __future__ import annotations

import json
import re

from lily.gate.masking import BODY, BODY_CHARS, Vault

# "\[PERSON\_1\_k3vt\]" is how markdown escapes one; the first backslash then belongs to it.
_SHAPED = re.compile(rf"(\\?)\[({BODY})\]")
_OPEN = re.compile(rf"\\?\Z|(\\?)\[((?:{BODY})?)\Z")
_HOLD_CHARS = BODY_CHARS + 2


def unmask(text: str, vault: Vault) -> str:
    """The text with the originals of all live placeholders. Those of secrets stay."""
    return _restored(text, vault, inside_json=False)


def unmask_json(arguments: str, vault: Vault) -> str:
    """The same inside JSON text: originals are escaped as the inside of a JSON string."""
    return _restored(arguments, vault, inside_json=True)


class Unmasker:
    """The same for a stream of pieces, however it is cut: for one stream and one thread.

    Args:
        vault: of the conversation and destination whose answer it is.
        inside_json: whether the pieces are JSON text, such as a tool call's arguments.
    """

    def __init__(self, vault: Vault, *, inside_json: bool = False) -> None:
        self._vault = vault
        self._inside_json = inside_json
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be given out now."""
        text = self._held + piece
        keep = len(text) - self._open_at(text)
        self._held = text[len(text) - keep :]
        return _restored(text[: len(text) - keep], self._vault, inside_json=self._inside_json)

    def end(self) -> str:
        """What was still held back: no whole placeholder, so it comes as it is."""
        rest, self._held = self._held, ""
        return rest

    def _open_at(self, text: str) -> int:
        """Where a suffix begins that may still become a placeholder; the end where none does."""
        found = _OPEN.search(text, max(0, len(text) - _HOLD_CHARS))
        if found is None:
            return len(text)
        if found[2] is None or self._vault.begins(found[2]):
            return found.start()
        return len(text) - text.endswith("\\")


def _restored(text: str, vault: Vault, *, inside_json: bool) -> str:
    def put_back(found: re.Match[str]) -> str:
        escape, body = found[1], found[2]
        original = vault.original(body)
        if original is None:
            return found[0]
        if inside_json:  # a backslash there is the second half of another
            return escape + json.dumps(original)[1:-1]
        return original if body.endswith("\\") else escape + original

    return _SHAPED.sub(put_back, text)
