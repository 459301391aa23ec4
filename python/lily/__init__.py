"""Lily runs Qwen3.6-35B-A3B-type models on one machine, from Python.

This file owns the list of public names and nothing else. They are imported when first used, so
that ``lily --help`` starts quickly and the native module can import ``lily.errors`` while loading.

Example:
    >>> import lily
    >>> with lily.Engine.load() as engine:                              # doctest: +SKIP
    ...     print(engine.generate("Once upon a time", max_tokens=20).text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lily.cancel import CancelToken as CancelToken
    from lily.completion import Chunk as Chunk
    from lily.completion import Completion as Completion
    from lily.completion import Score as Score
    from lily.completion import ToolCall as ToolCall
    from lily.completion import ToolCallDelta as ToolCallDelta
    from lily.engine import Engine as Engine
    from lily.errors import Cancelled as Cancelled
    from lily.errors import ContextFull as ContextFull
    from lily.errors import DeviceError as DeviceError
    from lily.errors import DownloadError as DownloadError
    from lily.errors import InvalidInput as InvalidInput
    from lily.errors import LilyError as LilyError
    from lily.errors import ModelError as ModelError
    from lily.errors import OutOfMemory as OutOfMemory
    from lily.sampling import SamplingParams as SamplingParams

    __version__: str

_HOME = {
    "CancelToken": "cancel",
    "Chunk": "completion",
    "Completion": "completion",
    "Score": "completion",
    "Engine": "engine",
    "Cancelled": "errors",
    "ContextFull": "errors",
    "DeviceError": "errors",
    "DownloadError": "errors",
    "InvalidInput": "errors",
    "LilyError": "errors",
    "ModelError": "errors",
    "OutOfMemory": "errors",
    "SamplingParams": "sampling",
    "ToolCall": "completion",
    "ToolCallDelta": "completion",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("lily-engine")
    if name in _HOME:
        value: object = getattr(importlib.import_module(f"lily.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lily' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, "__version__"])
