"""Text to token ids and back, for byte-level BPE tokenizers (``tokenizer.json``).

This file owns the difference between text and control tokens: text is encoded by a tokenizer that
has no added tokens at all, so no spelling of ``<|im_end|>`` in it can ever become the control
token. Decoding works on bytes, so that streamed text never breaks a UTF-8 character. It knows no
chat template and no model.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from lily.errors import InvalidInput, ModelError


def _byte_of_char() -> dict[str, int]:
    """The byte-level alphabet of GPT-2: printable bytes are themselves, the rest follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return table


_BYTE_OF_CHAR = _byte_of_char()


class Tokenizer:
    """A checkpoint's tokenizer.

    Args:
        folder: holds ``tokenizer.json``.
        vocab_rows: rows of the model's embedding; a token id beyond them raises ModelError.

    Example:
        >>> tokenizer = Tokenizer(folder)                    # doctest: +SKIP
        >>> tokenizer.decode(tokenizer.encode("naïve"))      # doctest: +SKIP
        'naïve'
    """

    def __init__(self, folder: Path, vocab_rows: int | None = None) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} has no tokenizer.json")
        try:
            full = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{path} cannot be read: {error}") from error
        self._full = full
        self._plain = tokenizers.Tokenizer(full.model)
        if full.normalizer is not None:
            self._plain.normalizer = full.normalizer
        if full.pre_tokenizer is not None:
            self._plain.pre_tokenizer = full.pre_tokenizer
        added = full.get_added_tokens_decoder()
        _require_plain_matching(path, added.values())
        self.control_ids = {token.content: token_id for token_id, token in added.items()}
        """Every added token (``<|im_start|>``, ``<think>``, ...) and its id."""
        self.special_tokens = frozenset(t.content for t in added.values() if t.special)
        """Those of them that are never part of readable text."""
        self._special_ids = frozenset(self.control_ids[t] for t in self.special_tokens)
        longest_first = sorted(self.control_ids, key=len, reverse=True)
        # Without added tokens, a pattern that matches nowhere.
        self._control = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.size = max([full.get_vocab_size(with_added_tokens=True) - 1, *added]) + 1
        self.rows = self.size if vocab_rows is None else vocab_rows
        if self.size > self.rows:
            raise ModelError(
                f"the tokenizer has {self.size:,} tokens and the model {self.rows:,} rows; "
                "they do not belong together"
            )
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``.

        With ``special`` False, ``<|im_end|>`` and the like in the text stay text. With True they
        become the control tokens, as in Hugging Face tokenizers; only for text you wrote.
        """
        if not special:
            return self._encode_plain(text)
        ids: list[int] = []
        for piece, control_id in self.split_controls(text):
            ids += self._encode_plain(piece) if control_id is None else [control_id]
        return ids

    def split_controls(self, text: str) -> Iterable[tuple[str, int | None]]:
        """Cut ``text`` at control tokens: pairs of piece and control id (None for text)."""
        start = 0
        for match in self._control.finditer(text):
            if match.start() > start:
                yield text[start : match.start()], None
            yield match.group(), self.control_ids[match.group()]
            start = match.end()
        if start < len(text):
            yield text[start:], None

    def _encode_plain(self, text: str) -> list[int]:
        try:
            return list(self._plain.encode(text, add_special_tokens=False).ids)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidInput(f"the text cannot be encoded as UTF-8: {error}") from error

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for the unused rows above the vocabulary."""
        known = self._bytes.get(token_id)
        if known is not None:
            return known
        if not 0 <= token_id < self.rows:
            raise InvalidInput(f"token id {token_id} is outside 0..{self.rows - 1}")
        token = self._full.id_to_token(token_id)
        if token is None:
            found = b""
        elif token in self.control_ids or not all(char in _BYTE_OF_CHAR for char in token):
            found = token.encode()
        else:
            found = bytes(_BYTE_OF_CHAR[char] for char in token)
        self._bytes[token_id] = found
        return found

    def is_special(self, token_id: int) -> bool:
        """Whether the token is never part of readable text (``<|im_end|>``; not ``<think>``)."""
        return token_id in self._special_ids

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ``token_ids``; bytes that are no UTF-8 become U+FFFD."""
        detokenizer = Detokenizer(self, skip_special=skip_special)
        return "".join([*map(detokenizer.push, token_ids), detokenizer.finish()])


def _require_plain_matching(path: Path, added: Iterable[tokenizers.AddedToken]) -> None:
    for token in added:
        if token.lstrip or token.rstrip or token.single_word:
            raise ModelError(
                f"{path}: added token {token.content!r} swallows neighbouring text "
                "(lstrip, rstrip or single_word); Lily does not support that"
            )
        if len(token.content) < 2:
            # Text could not be kept apart from it: chat.py marks the inside of control tokens.
            raise ModelError(f"{path}: added token {token.content!r} is a single character")


class Detokenizer:
    """Turns a stream of tokens into text, one token at a time, in constant time per token.

    An incomplete UTF-8 character is held back until its last byte is there; U+FFFD stands only
    for bytes that can no longer become a character.

    Example:
        >>> detokenizer = Detokenizer(tokenizer)                       # doctest: +SKIP
        >>> "".join(map(detokenizer.push, ids)) + detokenizer.finish() # doctest: +SKIP
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes; often all of it, sometimes none."""
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What was held back, as U+FFFD, when no more tokens follow."""
        return self._decoder.decode(b"", final=True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's folder; empty if the file is not there."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds {type(found).__name__}, expected an object")
    return found


def end_ids(folder: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end an answer, from all the files that may name one.

    The union, because conversions drop now one file and now another, and none of these tokens
    ever belongs inside an answer.
    """
    found: set[int] = set()
    config = read_json(folder / "config.json")
    text_config = config.get("text_config")
    places = [read_json(folder / "generation_config.json"), config]
    for place in [*places, text_config if isinstance(text_config, dict) else {}]:
        value = place.get("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        for token_id in values:
            if not isinstance(token_id, int) or not 0 <= token_id < tokenizer.rows:
                raise ModelError(f"eos_token_id {token_id!r} is not below {tokenizer.rows:,}")
            found.add(token_id)
    named = read_json(folder / "tokenizer_config.json").get("eos_token")
    content = named.get("content") if isinstance(named, dict) else named
    if isinstance(content, str) and content in tokenizer.control_ids:
        found.add(tokenizer.control_ids[content])
    return frozenset(found)
