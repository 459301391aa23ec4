"""FORMAT.md's reading of a text in plain PyTorch and NumPy: the reference for calibration and
evaluation.

This file owns windows, the join of their logits, Viterbi and the document score. It knows no data
set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import data
import numpy as np
import torch
from labels import LABELS, SUBJECTS, TAGS, TOPICS
from tokenizers import Tokenizer

from model import CLS, OVERLAP, SEP, WINDOW, GateModel

INSIDE = WINDOW - 2
FORBIDDEN = -1e9


@dataclass
class Reading:
    """What the network says of one text, before any threshold."""

    text: str
    offsets: list[tuple[int, int]]
    words: list[int]
    logits: np.ndarray  # [tokens, tags]
    documents: np.ndarray  # [windows, topics + subjects]


def _transitions() -> np.ndarray:
    """[tags, tags] 0 where the second tag may follow the first, else FORBIDDEN."""
    allowed = np.full((TAGS, TAGS), FORBIDDEN, np.float32)
    closed = [0, *(1 + 4 * j + k for j in range(len(LABELS)) for k in (2, 3))]
    opening = [0, *(1 + 4 * j + k for j in range(len(LABELS)) for k in (0, 3))]
    allowed[np.ix_(closed, opening)] = 0
    for j in range(len(LABELS)):
        b, i, e = (1 + 4 * j + k for k in range(3))
        allowed[b, i] = allowed[b, e] = allowed[i, i] = allowed[i, e] = 0
    return allowed


TRANSITIONS = _transitions()
START = TRANSITIONS[0]
END = TRANSITIONS[:, 0]


def viterbi(scores: np.ndarray) -> np.ndarray:
    """The best allowed tags [tokens] of scores [tokens, tags].

    Only O and the four tags of a label meet, so a label's step looks at O's and closed labels'
    best once.
    """
    n = len(scores)
    closed = np.array([0, *(1 + 4 * j + k for j in range(len(LABELS)) for k in (2, 3))])
    begin = 1 + 4 * np.arange(len(LABELS))
    back = np.zeros((n, TAGS), np.int32)
    best = scores[0] + START
    for t in range(1, n):
        top = closed[np.argmax(best[closed])]
        step = np.full(TAGS, FORBIDDEN, np.float64)
        step[0] = step[begin] = step[begin + 3] = best[top]
        back[t, 0] = back[t, begin] = back[t, begin + 3] = top
        longer = np.where(best[begin + 1] > best[begin], begin + 1, begin)
        for k in (1, 2):
            step[begin + k], back[t, begin + k] = best[longer], longer
        best = step + scores[t]
    tags = np.zeros(n, np.int32)
    tags[-1] = np.argmax(best + END)
    for t in range(n - 1, 0, -1):
        tags[t - 1] = back[t, tags[t]]
    return tags


class Reader:
    """Runs the network over texts."""

    def __init__(self, state: dict[str, torch.Tensor], tokenizer: Tokenizer) -> None:
        self.model = GateModel(TAGS, len(TOPICS), len(SUBJECTS)).eval()
        self.model.load_state_dict(state)
        self.tokenizer = tokenizer

    @torch.no_grad()
    def read(self, texts: Sequence[str], batch: int = 48) -> list[Reading]:
        """One `Reading` a text, in order; windows of like length are computed together."""
        encodings = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        rows = []
        for which, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
            form = data.forms(text, encoding)
            for start in range(0, max(1, len(encoding.ids) - OVERLAP), INSIDE - OVERLAP):
                rows.append(
                    (
                        which,
                        start,
                        encoding.ids[start : start + INSIDE],
                        form[start : start + INSIDE],
                    )
                )
        done: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][2]))
        for at in range(0, len(order), batch):
            some = [rows[i] for i in order[at : at + batch]]
            width = max(len(ids) for _, _, ids, _ in some) + 2
            ids, forms = torch.zeros(len(some), width).long(), torch.zeros(len(some), width).long()
            mask = torch.zeros(len(some), width, dtype=torch.bool)
            for i, (_, _, tokens, form) in enumerate(some):
                n = len(tokens) + 2
                ids[i, :n] = torch.tensor([CLS, *tokens, SEP])
                forms[i, :n] = torch.tensor([0, *form, 0])
                mask[i, :n] = True
            logits, documents = self.model(ids, forms, mask)
            for i, (which, start, tokens, _) in enumerate(some):
                done[which, start] = (logits[i, 1 : len(tokens) + 1].numpy(), documents[i].numpy())
        return [
            self._joined(which, text, encodings[which], done) for which, text in enumerate(texts)
        ]

    @staticmethod
    def _joined(which, text, encoding, done) -> Reading:  # type: ignore[no-untyped-def]
        n = len(encoding.ids)
        logits, depth = np.zeros((n, TAGS), np.float32), np.full(n, -1)
        documents = []
        for start in range(0, max(1, n - OVERLAP), INSIDE - OVERLAP):
            part, document = done[which, start]
            documents.append(document)
            inner = np.minimum(np.arange(len(part)), len(part) - 1 - np.arange(len(part)))
            where = slice(start, start + len(part))
            deeper = inner > depth[where]
            logits[where][deeper] = part[deeper]
            depth[where] = np.maximum(depth[where], inner)
        return Reading(text, encoding.offsets, encoding.word_ids, logits, np.stack(documents))


def spans(reading: Reading, decode: dict[str, object]) -> list[tuple[int, int, str, float]]:
    """(start, end, label, confidence) under the settings `decode` of config.json."""
    if not len(reading.logits):
        return []
    scores = reading.logits.astype(np.float64).copy()
    scores[:, 0] += decode["outside_offset"]
    for j, label in enumerate(LABELS):
        scores[:, 1 + 4 * j : 5 + 4 * j] += decode["label_offsets"].get(label, 0.0)  # type: ignore[attr-defined]
    tags = viterbi(scores)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    out, i, n = [], 0, len(tags)
    while i < n:
        if tags[i] == 0:
            i += 1
            continue
        j = (tags[i] - 1) // 4
        last = i
        while (tags[last] - 1) % 4 in (0, 1):
            last += 1
        confidence = float(p[i : last + 1, 1 + 4 * j : 5 + 4 * j].sum(1).mean())
        a, b = i, last
        while a > 0 and reading.words[a - 1] == reading.words[a]:
            a -= 1
        while b + 1 < n and reading.words[b + 1] == reading.words[b]:
            b += 1
        if confidence >= decode["thresholds"].get(LABELS[j], 0.0):  # type: ignore[attr-defined]
            out.append((reading.offsets[a][0], reading.offsets[b][1], LABELS[j], confidence))
        i = last + 1
    return out


def document(reading: Reading, settings: dict[str, object]) -> dict[str, float]:
    """P(topic) * P(personal) of each topic, the greatest over the windows."""
    n = len(TOPICS)
    logits = reading.documents.astype(np.float64)
    topic = 1 / (1 + np.exp(-logits[:, :n] / settings["topic_temperature"]))
    z = logits[:, n:] / settings["subject_temperature"]
    z = np.exp(z - z.max(1, keepdims=True))
    personal = z[:, :1] / z.sum(1, keepdims=True)
    return dict(zip(TOPICS, (topic * personal).max(0).tolist(), strict=True))
