"""Fixtures of the product tests: folders, tokenizers, and an engine on the toy model.

The real 248k tokenizer is test data outside the repository. Without it those tests are skipped, and
with LILY_REQUIRE_DATA=1, as in CI, they fail.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lily.chat import ChatTemplate
from lily.engine import Engine
from lily.hub import shipped_model
from lily.tokenizer import Tokenizer

from .fake_native import FakeEngine

BESIDE_REPOSITORY = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA = Path(os.environ.get("LILY_DATA", BESIDE_REPOSITORY))
FACTS = {"parameters": 20_100_000, "formats": {"q4": 9, "bf16": 1}}


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    return shipped_model()


@pytest.fixture(scope="session")
def real_folder() -> Path:
    folder = DATA / "tokenizer"
    if not (folder / "tokenizer.json").is_file():
        if os.environ.get("LILY_REQUIRE_DATA") == "1":
            pytest.fail(f"no real tokenizer in {folder}")
        pytest.skip(f"no real tokenizer in {folder}")
    return folder


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer(tiny_folder)


@pytest.fixture(scope="session")
def template(tiny_folder: Path, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(tiny_folder, tokenizer)


@pytest.fixture(scope="session")
def real_tokenizer(real_folder: Path) -> Tokenizer:
    return Tokenizer(real_folder)


@pytest.fixture(scope="session")
def real_template(real_folder: Path, real_tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(real_folder, real_tokenizer)


@pytest.fixture
def native(tokenizer: Tokenizer) -> FakeEngine:
    return FakeEngine(tokenizer.size)


@pytest.fixture
def engine(native: FakeEngine, tiny_folder: Path):
    with Engine(native, tiny_folder, name="toy", facts=FACTS, max_sessions=2) as made:
        yield made
