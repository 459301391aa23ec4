"""The model in the package, end to end: a prompt and greedy steps on a device and on the CPU.

Owns the prompt and what agreement means. Single kernels are elsewhere; this sees the order in which
they run, and the state that they hand on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lily import _native, hub
from lily.doctor.shapes import TINY

_SIZES = {False: (70, 24), True: (9, 3)}  # tokens of the prompt, steps; the latter where quick
# Largest difference of logits, as a share of their standard deviation. Measured through 8 layers:
# 0.022 with activations in bf16, 2.3e-4 in float32, where only the cache is bf16.
_ALLOWED = {"f32": 1e-3, "bf16": 0.25, "f16": 0.25}


def compare_greedy(device: str, reference: str, *, quick: bool) -> dict[str, Any]:
    """Logits after a prompt and after each step of the same tokens, and who would choose what.

    Against NumPy there is nothing to compare; then the answer must be finite and the same twice,
    once as a prompt and once step by step.
    """
    prompt_tokens, steps = _SIZES[quick]
    prompt = [(i * 2_654_435_761) % 2**32 % TINY.vocab for i in range(prompt_tokens)]
    fed: list[int | None] = [None] * steps
    wanted, tokens = _steps("cpu" if reference == "numpy" else reference, prompt, fed)
    if reference == "numpy":
        found = _prompts(device, prompt, tokens)
    else:
        found, _ = _steps(device, prompt, tokens)
    activation = _native.kernels.Device(device).activation_dtype
    if not np.isfinite(found).all():
        return {"ok": False, "result": "wrong", "detail": "logits are not finite"}
    error = float(np.abs(found - wanted).max() / wanted.std())
    share = error / _ALLOWED[activation]
    agreed = int((found.argmax(1) == wanted.argmax(1)).sum())
    detail = (
        f"logits differ by {error:.1e} standard deviations, allowed {_ALLOWED[activation]:g}; "
        f"{agreed} of {len(found)} greedy tokens agree"
    )
    right = share <= 1
    return {"ok": right, "result": "ok" if right else "wrong", "share": share, "detail": detail}


def _engine(device: str) -> _native.Engine:
    folder = str(hub.resolve(None))
    # The KV cache in bf16 on every side: a GPU has no other.
    return _native.Engine(folder, device=device, max_context=256, kv_dtype="bf16", cache_bytes=0)


def _steps(
    device: str, prompt: list[int], forced: Sequence[int | None]
) -> tuple[np.ndarray[Any, Any], list[int]]:
    """(logits at each place, the tokens that were fed): the device's own choice where None."""
    session = _engine(device).session()
    session.prefill(prompt)
    rows, fed = [session.logits()], []
    for given in forced:
        token = int(rows[-1].argmax()) if given is None else given
        session.step(token)
        fed.append(token)
        rows.append(session.logits())
    return np.stack(rows).astype(np.float64), fed


def _prompts(device: str, prompt: list[int], tokens: list[int]) -> np.ndarray[Any, Any]:
    """The same places once more, all of them as one prompt."""
    session = _engine(device).session()
    rows = session.all_logits([*prompt, *tokens])
    return rows[len(prompt) - 1 :].astype(np.float64)
