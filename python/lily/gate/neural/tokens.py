"""A text as the encoder takes it: token ids, the form of each word, and where words lie.

This file owns the tokenizer and the forms. It knows no window and no network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lily.errors import ModelError
from lily.gate.neural.settings import Settings

Integers = NDArray[np.uint32]

_SURROGATES = re.compile("[\ud800-\udfff]")  # alone they are no text; the tokenizer refuses them
_SHAPES = 8


@dataclass(frozen=True)
class Tokens:
    """Tokens of one text, each array of length [tokens].

    `starts` and `ends` are the characters of the whole word that a token belongs to, `text[a:b]`.
    """

    ids: Integers
    forms: Integers
    starts: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.ids)


class WordPieces:
    """The model's tokenizer."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise ModelError(f"{path}: {error}") from error
        special = {"[CLS]": settings.cls_id, "[SEP]": settings.sep_id}
        for token, expected in special.items():
            if (found := self._tokenizer.token_to_id(token)) != expected:
                raise ModelError(f"{path}: {token} is {found}, config.json says {expected}")
        if (size := self._tokenizer.get_vocab_size()) != settings.vocab:
            raise ModelError(f"{path}: {size} tokens, config.json says {settings.vocab}")
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def tokens(self, text: str) -> Tokens:
        """Tokens of the text as given. Any thread may call."""
        whole = _SURROGATES.sub("\ufffd", text)
        encoding = self._tokenizer.encode(whole, add_special_tokens=False)
        ids = np.array(encoding.ids, np.uint32)
        offsets = np.array(encoding.offsets, np.uint32).reshape(-1, 2)
        words = np.array(encoding.word_ids, np.int64)
        firsts = np.flatnonzero(np.diff(words, prepend=-1))
        lengths = np.diff(firsts, append=len(ids))
        starts, ends = offsets[firsts, 0], offsets[firsts + lengths - 1, 1]
        forms = np.array(_forms(whole, starts.tolist(), ends.tolist()), np.uint32)
        return Tokens(ids, *(np.repeat(each, lengths) for each in (forms, starts, ends)))


def _forms(text: str, starts: list[int], ends: list[int]) -> list[int]:
    """Of each word: its shape, and the white space in front of it."""
    forms: list[int] = []
    before = 0
    for start, end in zip(starts, ends, strict=True):
        gap = text[before:start]
        space = 2 if not forms or "\n" in gap or "\r" in gap else int(any(map(str.isspace, gap)))
        forms.append(shape(text[start:end]) + _SHAPES * space)
        before = end
    return forms


def shape(word: str) -> int:
    """How a word is written.

    0 no letter and no digit, 1 lower case, 2 Capitalised, 3 UPPER CASE, 4 one upper-case letter,
    5 letters in aNother way, 6 digits, 7 letters and digits.
    """
    letters = [each for each in word if each.isalpha()]
    has_digit = any(map(str.isdigit, word))
    if has_digit or not letters:
        return 7 if letters else 6 if has_digit else 0
    upper = [each.isupper() for each in letters]
    if not any(upper):
        return 1
    if len(letters) == 1:
        return 4
    if all(upper):
        return 3
    return 2 if upper[0] and not any(upper[1:]) else 5
