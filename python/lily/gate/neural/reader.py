"""The neural reader: a text in, findings and topics out.

This file owns the order of the parts. It knows no rule and no policy, opens no socket, and imports
of Lily nothing but the native encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lily._native import Encoder
from lily.errors import DeviceError
from lily.gate.findings import Finding, TopicFinding
from lily.gate.neural import coverage, decode, document
from lily.gate.neural.mentions import mentions
from lily.gate.neural.settings import Settings, read_settings
from lily.gate.neural.tokens import WordPieces
from lily.gate.neural.windows import cut

PACKAGED = Path(__file__).resolve().parents[1] / "models" / "lily_gate"


@dataclass(frozen=True)
class Reading:
    """What the reader says of one text.

    Attributes:
        findings: spans in order of their place; they may touch, and spans of different categories
            may overlap where two labels meet inside a word.
        topics: what the text may be about, and whom.
        judged: False where the text is in a script or a language that the model has not learned:
            that nothing was found then says nothing.
    """

    findings: tuple[Finding, ...] = ()
    topics: tuple[TopicFinding, ...] = ()
    judged: bool = True


class Reader:
    """A loaded model. Any thread may read; the encoder takes one text after the other.

    Example:
        >>> reader = Reader.load()  # doctest: +SKIP
        >>> reader.read("My name is Ada Lovelace.").findings  # doctest: +SKIP
    """

    def __init__(
        self, encoder: Encoder, pieces: WordPieces, settings: Settings, outside_offset: float
    ) -> None:
        self._encoder = encoder
        self._pieces = pieces
        self._settings = settings
        self._outside_offset = outside_offset

    @staticmethod
    def load(
        folder: str | Path | None = None,
        *,
        device: str = "cpu",
        threads: int = 0,
        outside_offset: float = 0.0,
    ) -> Reader:
        """Load a model, by default the packaged one, and check its weights against their digest.

        Args:
            folder: with config.json, model.safetensors and tokenizer.json.
            device: "cpu", "metal" or "cuda".
            threads: of the CPU device; 0 takes all processors.
            outside_offset: the dial between precision (positive) and recall (negative), in logits
                of a token's being outside of everything.

        Raises:
            ModelError: a file is missing, damaged, or of another kind.
            DeviceError: the device is not there.
        """
        path = PACKAGED if folder is None else Path(folder)
        settings = read_settings(path)
        pieces = WordPieces(path, settings)
        encoder = Encoder(str(path), device=device, threads=threads)
        return Reader(encoder, pieces, settings, outside_offset)

    def read(self, text: str) -> Reading:
        """Read a text of any length. Raises DeviceError where the model gives no finite numbers."""
        judged = coverage.is_covered(text, self._settings.languages)
        tokens = self._pieces.tokens(text)
        if not len(tokens):
            return Reading(judged=judged)
        windows = cut(tokens, self._settings)
        token_logits, document_logits = self._encoder.run(
            windows.ids, windows.forms, windows.lengths
        )
        if not (np.isfinite(token_logits).all() and np.isfinite(document_logits).all()):
            raise DeviceError("the gate's encoder gave numbers that are not finite")
        logits = decode.shifted(token_logits[windows.rows], self._settings, self._outside_offset)
        spans = decode.spans(logits, tokens, self._settings)
        found = sorted([*spans, *mentions(text, spans)])
        topics = document.topics(document_logits, self._settings)
        return Reading(tuple(found), tuple(topics), judged)
