"""The errors that Lily raises, for Python and native code alike.

This file owns the names and their place among Python's built-in errors; it imports nothing and
knows neither the engine nor any file format. The native module raises these very classes.
"""

from __future__ import annotations


class LilyError(Exception):
    """Base of every error that Lily raises on purpose.

    Example:
        >>> issubclass(InvalidInput, ValueError)
        True
    """


class InvalidInput(LilyError, ValueError):  # noqa: N818  (said aloud, it needs no "Error")
    """The caller asked for something that cannot be done; the message says given and expected."""


class ContextFull(InvalidInput):
    """The tokens do not fit the context; the message names both numbers. Nothing was changed."""


class ModelError(LilyError, ValueError):
    """The checkpoint is damaged, incomplete, or of a kind that Lily does not run."""


class OutOfMemory(LilyError, MemoryError):  # noqa: N818
    """The plan does not fit the memory; the message gives the numbers and what would fit."""


class DeviceError(LilyError, RuntimeError):
    """The device failed, or gave numbers that cannot be right."""


class Cancelled(LilyError):  # noqa: N818
    """A computation was stopped on request."""


class DownloadError(LilyError, OSError):
    """Files could not be fetched from the hub, or are not in the cache when offline."""
