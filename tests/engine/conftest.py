"""Small checkpoints that many tests share, written once a run, and a short way to load them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lily import _native

from .checkpoints import TINY, random_tensors, write_text_only


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 checkpoint with five experts and three delta layers to one of attention."""
    return write_text_only(tmp_path_factory.mktemp("tiny"), TINY, random_tensors(TINY))


Load = Callable[..., _native.Engine]


@pytest.fixture
def load(tiny: Path) -> Load:
    """Loads the tiny checkpoint, or a given one, on two threads."""

    def load_engine(path: Path = tiny, **options: Any) -> _native.Engine:
        return _native.Engine(str(path), **({"device": "cpu", "threads": 2} | options))

    return load_engine


@pytest.fixture(scope="session")
def prompt() -> list[int]:
    """70 tokens of the tiny vocabulary."""
    return np.random.default_rng(3).integers(0, TINY.vocab, 70).tolist()
