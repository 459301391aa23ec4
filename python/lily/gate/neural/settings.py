"""config.json of the gate's model: what its outputs mean and where its thresholds lie; checked.

This file owns the reading of that file and the digest of the weights. It knows no text and no
arithmetic. The shapes of the network are the native encoder's to read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from lily.errors import ModelError
from lily.gate.categories import Category, Subject, Topic

_Word = TypeVar("_Word", bound=Enum)
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What the reader needs of config.json.

    Attributes:
        labels: the category of each group of four tags (B, I, E, S), which follow tag 0 (O).
        outside_offset: added to the logit of O; `label_offsets` to the four tags of each label.
        label_thresholds: the confidence below which a span is dropped, by label.
        topic_thresholds: of P(topic) * P(personal), by topic.
        languages: ISO 639-1 codes that the model has learned.
    """

    labels: tuple[Category, ...]
    topics: tuple[Topic, ...]
    subjects: tuple[Subject, ...]
    window_tokens: int
    overlap_tokens: int
    vocab: int
    cls_id: int
    sep_id: int
    outside_offset: float
    label_offsets: tuple[float, ...]
    label_thresholds: tuple[float, ...]
    topic_temperature: float
    subject_temperature: float
    topic_thresholds: tuple[float, ...]
    languages: frozenset[str]


def read_settings(folder: Path) -> Settings:
    """Read config.json and check the weights against its digest. Raises ModelError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        settings = _settings(config)
        expected = str(config["weights_sha256"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path}: {type(error).__name__}: {error}") from error
    found = _digest(folder / "model.safetensors")
    if found != expected:
        raise ModelError(
            f"{folder / 'model.safetensors'}: SHA-256 is {found}, config.json says {expected}: "
            "the file is damaged or of another model"
        )
    return settings


def _settings(config: Mapping[str, Any]) -> Settings:
    decode, document = config["decode"], config["document"]
    labels, topics = _words(config, "labels", Category), _words(config, "topics", Topic)
    window, overlap = _integer(config, "window_tokens"), _integer(config, "overlap_tokens")
    if not 0 <= overlap < window - 2:
        raise ValueError(f"overlap_tokens is {overlap}, expected 0 to {window - 3}")
    subjects = _words(config, "subjects", Subject)
    if set(subjects) != set(Subject):
        raise ValueError(f"subjects are {[one.value for one in subjects]}")
    return Settings(
        labels=labels,
        topics=topics,
        subjects=subjects,
        window_tokens=window,
        overlap_tokens=overlap,
        vocab=_integer(config, "vocab"),
        cls_id=_integer(config, "cls_id"),
        sep_id=_integer(config, "sep_id"),
        outside_offset=_number(decode, "outside_offset"),
        label_offsets=_numbers(decode["label_offsets"], labels, -math.inf, math.inf),
        label_thresholds=_numbers(decode["thresholds"], labels, 0.0, 1.0),
        topic_temperature=_number(document, "topic_temperature", above=0.0),
        subject_temperature=_number(document, "subject_temperature", above=0.0),
        topic_thresholds=_numbers(document["thresholds"], topics, 0.0, 1.0),
        languages=frozenset(map(str, config.get("languages", ["en"]))),
    )


def _words(config: Mapping[str, Any], key: str, kind: type[_Word]) -> tuple[_Word, ...]:
    words = tuple(kind(each) for each in config[key])
    if not words or len(set(words)) != len(words):
        raise ValueError(f"{key} has no entry, or one twice")
    return words


def _integer(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is {value!r}, expected an integer of at least 0")
    return value


def _number(config: Mapping[str, Any], key: str, above: float = -math.inf) -> float:
    value = float(config[key])
    if not (math.isfinite(value) and value > above):
        raise ValueError(f"{key} is {value}, expected a finite number above {above}")
    return value


def _numbers(
    given: Mapping[str, Any], words: tuple[_Word, ...], least: float, most: float
) -> tuple[float, ...]:
    values = tuple(_number(given, word.value) for word in words)
    if not all(least <= value <= most for value in values):
        raise ValueError(f"{values} reach past {least} to {most}")
    return values


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise ModelError(f"{path}: {error}") from error
    return digest.hexdigest()
