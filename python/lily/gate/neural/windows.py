"""A text of any length as overlapping windows, and its logits from them.

This file owns where windows begin and which one speaks for a token. It knows no network and no tag.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lily.gate.neural.settings import Settings
from lily.gate.neural.tokens import Integers, Tokens


@dataclass(frozen=True)
class Windows:
    """Rows of all windows, one window behind the other.

    Attributes:
        ids, forms: of each row, [CLS] and [SEP] among them.
        lengths: rows of each window.
        rows: for each token of the text, the row whose logits are its own.
    """

    ids: Integers
    forms: Integers
    lengths: Integers
    rows: NDArray[np.int64]


def cut(tokens: Tokens, settings: Settings) -> Windows:
    """Windows over the tokens; at least one token is needed.

    Where windows overlap, a token belongs to the one in which it stands farther from the nearer
    edge, to the earlier one of two that are alike.
    """
    inside = settings.window_tokens - 2
    overlap = settings.overlap_tokens
    total = len(tokens)
    ids, forms, lengths = [], [], []
    margins = np.full(total, -1)
    rows = np.zeros(total, np.int64)
    cls, sep = np.array([[settings.cls_id], [settings.sep_id]], np.uint32)
    plain = np.zeros(1, np.uint32)
    row = 0
    for start in range(0, max(1, total - overlap), inside - overlap):
        part = slice(start, min(start + inside, total))
        ids += [cls, tokens.ids[part], sep]
        forms += [plain, tokens.forms[part], plain]
        places = np.arange(part.stop - start)
        margin = np.minimum(places, places[::-1])
        deeper = margin > margins[part]
        margins[part][deeper] = margin[deeper]
        rows[part][deeper] = row + 1 + places[deeper]
        lengths.append(len(places) + 2)
        row += lengths[-1]
    return Windows(np.concatenate(ids), np.concatenate(forms), np.array(lengths, np.uint32), rows)
