"""What is refused before anything is measured, and what is left out."""

from __future__ import annotations

import importlib.util

import pytest
from lily import _native, hub, machine
from lily.errors import DeviceError, InvalidInput, OutOfMemory
from lily.versus import plan as planning
from lily.versus.plan import make_plan

TINY = hub.resolve(None)


@pytest.fixture(autouse=True)
def _all_packages(monkeypatch):
    # These tests load neither package; whether they are installed must not matter.
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


def test_usual_lengths_that_fit():
    found = make_plan(TINY, "lily-tiny", device="cpu")
    assert found.lengths == (256, 512, 1024, 2048, 4096)
    assert [length for length, _ in found.left_out] == list(planning.USUAL_LENGTHS[5:])
    assert "the model takes 8,192 tokens, expected room for 8,257" in found.left_out[0][1]
    assert (found.tokens, found.rounds) == (64, 2)


@pytest.mark.parametrize("module", ["mlx", "mlx_lm", "matplotlib"])
def test_missing_package(monkeypatch, module):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name != module else None)
    with pytest.raises(InvalidInput, match=f"needs the package {module}; pip install"):
        make_plan(TINY, "lily-tiny")


def test_other_storage(monkeypatch):
    facts = _native.describe(str(TINY))
    for changed in ({"layout": "hf"}, {"formats": {"bf16": 10, "q4": 1}}):
        monkeypatch.setattr(_native, "describe", lambda _, changed=changed: facts | changed)
        with pytest.raises(InvalidInput, match=r"'toy' is stored as .*, expected MLX 4-bit"):
            make_plan(TINY, "toy")


def test_asked_length_that_does_not_fit():
    with pytest.raises(OutOfMemory, match="a prompt of 10,000 tokens: the model takes 8,192"):
        make_plan(TINY, "lily-tiny", device="cpu", lengths=[10_000])


def test_too_little_memory(monkeypatch):
    """The peer's memory counts too: Lily alone would fit."""
    monkeypatch.setattr(machine, "memory_bytes", lambda: 16_000_000_000)
    facts = _native.describe(str(TINY))
    large = facts | {"weights_bytes": 19_500_000_000}
    monkeypatch.setattr(_native, "describe", lambda _: large)
    with pytest.raises(OutOfMemory, match=r"no length .*mlx-lm needs 19.5 GB .* has 16.0 GB"):
        make_plan(TINY, "large", device="cpu")


def test_hot_machine(monkeypatch):
    monkeypatch.setattr(machine, "unfit_to_measure", lambda: ["the machine is hot"])
    with pytest.raises(DeviceError, match="not the time to measure: the machine is hot"):
        make_plan(TINY, "lily-tiny")
