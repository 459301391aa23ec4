"""The packaged model through the Metal kernels, thread by thread: the CPU device's greedy tokens.

Every kernel that generation takes runs here in its own order and on its own outputs, at the shapes
of a real checkpoint. Skipped, and counted so, in builds without the device "fibers".
"""

from __future__ import annotations

import pytest
from lily import Engine
from lily.errors import DeviceError

# A prompt of one short chunk (few rows) and one of a longer (matrix tiles), in words that the model
# knows: its choices are far from ties, so bf16 activations do not turn them.
PROMPTS = [
    "Once upon",
    [{"role": "user", "content": "What is the capital of France? Answer in one word, please."}],
]
TOKENS = 6


def load(device: str) -> Engine:
    """The packaged model on one device."""
    return Engine.load(device=device, max_context=512)


@pytest.fixture(scope="module")
def fibers():
    """The engine on the kernels, or a loud skip."""
    try:
        engine = load("fibers")
    except DeviceError as error:
        pytest.skip(f"the Metal kernels were not run: {error}")
    with engine:
        yield engine


@pytest.mark.parametrize("prompt", PROMPTS, ids=["few rows", "tiles"])
def test_same_tokens_as_the_cpu_device(fibers, prompt):
    """Prefill, then decode steps that feed themselves."""
    with load("cpu") as cpu:
        want = cpu.generate(prompt, temperature=0, max_tokens=TOKENS)
    got = fibers.generate(prompt, temperature=0, max_tokens=TOKENS)
    assert got.token_ids == want.token_ids
    assert len(got.token_ids) >= 2
