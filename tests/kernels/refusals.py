"""How operations must refuse: with InvalidInput, naming the operation and the tensor.

This file owns the generic wrong tensors. It knows no operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from lily._native import kernels as native
from lily.errors import InvalidInput


def tensors_of(arguments: dict[str, Any]) -> dict[str, native.Tensor]:
    """The arguments that are tensors."""
    return {name: it for name, it in arguments.items() if isinstance(it, native.Tensor)}


def assert_refused(
    operation: Callable[..., None],
    valid: dict[str, Any],
    wrong: str | dict[str, native.Tensor],
    rebuild: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Check a refusal by message; or, given tensors, that each is refused by rank and by dtype.

    `rebuild` puts changed tensors into the operation's real arguments, where they are members of a
    layer. Nothing may have been recorded afterwards.
    """
    build = rebuild or (lambda arguments: arguments)
    if isinstance(wrong, str):
        _refuse(operation, build(valid), wrong)
        return
    step = native.Step()
    operation(step, **build(valid))
    assert len(step) > 0, "the arguments are not valid to begin with"
    for name, tensor in wrong.items():
        deeper = tensor.part(0, [*tensor.shape, 1])
        if tensor.dtype == "u8":  # structs: any rank will do, any number of bytes will not
            _refuse(operation, build(valid | {name: tensor.part(0, [4])}), f"{name} has 4 bytes")
        else:
            _refuse(operation, build(valid | {name: deeper}), f"{name} has shape")
        other = _as_other_dtype(tensor)
        _refuse(operation, build(valid | {name: other}), f"{name} is {other.dtype}, expected")


def _refuse(operation: Callable[..., None], arguments: dict[str, Any], message: str) -> None:
    step = native.Step()
    with pytest.raises(InvalidInput, match=f"{re.escape(operation.__name__)}: .*{message}"):
        operation(step, **arguments)
    assert len(step) == 0


_OTHER_DTYPE = {"f32": "u32", "bf16": "u32", "f16": "u32", "u32": "f32", "u8": "f32"}


def _as_other_dtype(tensor: native.Tensor) -> native.Tensor:
    return tensor.retyped(_OTHER_DTYPE[tensor.dtype])
