"""The packaged model whole on a GPU: the CPU device's tokens, logits near its own, sessions apart.

Runs on the device "cuda" where there is one, and is skipped, and counted so, elsewhere; with
`--require-device cuda` a missing one is a failure.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from lily import CancelToken, Engine, _native
from lily.errors import DeviceError
from lily.hub import shipped_model

PROMPTS = [
    "Once upon",
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Tell me a short story about a fox."}],
    "The quick brown fox jumps over the lazy dog. " * 40,
]
TOKENS = 64


@pytest.fixture(scope="module")
def gpu(request):
    """The engine on the GPU, or a loud skip."""
    try:
        # No prefix cache: a resumed prompt is cut elsewhere, and rounds elsewhere.
        engine = Engine.load(device="cuda", max_context=2048, cache_bytes=0)
    except DeviceError as error:
        if "cuda" in request.config.getoption("--require-device"):
            raise
        pytest.skip(f"no GPU ran the model: {error}")
    with engine:
        yield engine


@pytest.fixture(scope="module")
def cpu():
    """The same model on the CPU, with the KV cache that GPUs have."""
    with Engine.load(device="cpu", max_context=2048, kv_dtype="bf16") as engine:
        yield engine


def greedy(engine: Engine, prompt: object, tokens: int = TOKENS) -> list[int]:
    """Token ids of a greedy answer."""
    return list(engine.generate(prompt, temperature=0, max_tokens=tokens).token_ids)


@pytest.mark.parametrize("prompt", PROMPTS[:3], ids=["few rows", "chat", "story"])
def test_same_tokens_as_the_cpu_device(gpu, cpu, prompt):
    """Far from ties, bf16 activations turn no choice of this model."""
    got, want = greedy(gpu, prompt, 12), greedy(cpu, prompt, 12)
    assert got == want
    assert len(got) >= 2


def test_logits_are_near_the_cpu_devices():
    """The error of bf16 activations, and no more.

    Each of the six products of a layer rounds its input to 8 bits, an error of 2^-9 each,
    independent and of the size of what the layer adds to the residual stream: sqrt(6 layers) 2^-9
    of the whole if layers add alike. Twice that, because they do not.
    """
    folder = str(shipped_model())
    layers = int(_native.describe(folder)["config"]["layers"])  # type: ignore[index]
    rows = {}
    for device in ("cpu", "cuda"):
        try:
            engine = _native.Engine(folder, device=device, max_context=256, kv_dtype="bf16")
        except DeviceError as error:
            pytest.skip(f"no GPU ran the model: {error}")
        ids = np.arange(100, 228, dtype=np.uint32)
        rows[device] = engine.session().all_logits(ids).astype(np.float64)
        assert np.isfinite(rows[device]).all()
    error = np.linalg.norm(rows["cuda"] - rows["cpu"]) / np.linalg.norm(rows["cpu"])
    assert error < 2 * np.sqrt(6 * layers) * 2**-9, error


def test_answers_repeat(gpu):
    """Sixty-four tokens, the same each time, whatever ran in between."""
    first = [greedy(gpu, prompt) for prompt in PROMPTS]
    assert [greedy(gpu, prompt) for prompt in PROMPTS] == first


def test_sessions_stay_apart(gpu):
    """Threads with prompts of their own get their lone answers, with cancels beside them."""
    alone = [greedy(gpu, prompt) for prompt in PROMPTS]
    wrong: list[object] = []

    def work(index: int) -> None:
        for _ in range(6):
            if greedy(gpu, PROMPTS[index]) != alone[index]:
                wrong.append(index)

    def interrupt() -> None:
        for _ in range(10):
            token = CancelToken()
            timer = threading.Timer(0.02, token.cancel)
            timer.start()
            answer = gpu.generate(PROMPTS[2], temperature=0, max_tokens=200, cancel=token)
            if answer.finish_reason not in ("cancelled", "stop", "length"):
                wrong.append(answer)
            timer.join()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(PROMPTS))]
    threads.append(threading.Thread(target=interrupt))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_does_not_fit_is_refused_before_it_is_allocated(gpu):
    """The plan, the numbers, and an engine that goes on."""
    before = gpu.generate("Once upon", temperature=0, max_tokens=4).token_ids
    with pytest.raises(MemoryError, match="MB are allowed"):
        _native.Engine(str(shipped_model()), device="cuda", memory_limit_bytes=1 << 20)
    assert gpu.generate("Once upon", temperature=0, max_tokens=4).token_ids == before
