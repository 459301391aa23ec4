"""One chat template, run in jinja2's sandbox with the environment that ``transformers`` gives it.

This file owns jinja2. A template comes with the checkpoint and is not trusted: it can neither
reach Python nor run without end through ``range``, recursion or output. (Loops over lists that it
builds itself are bounded by memory only.) It knows no messages and no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lily.errors import InvalidInput, ModelError

# A 262,144-token context is about 1 MB of text; these are far beyond any honest template.
MAX_OUTPUT_CHARS = 64_000_000
MAX_PIECES = 5_000_000
MAX_RANGE_ITEMS = 1_000_000


class Template:
    """A compiled chat template. Raises ModelError for a syntax error.

    Example:
        >>> Template("{% for m in messages %}{{ m.content }}{% endfor %}").render(
        ...     {"messages": [{"content": "Hi"}]})
        'Hi'
    """

    def __init__(self, source: str) -> None:
        try:
            self._template = _Environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(f"the chat template, line {error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise ModelError("the chat template is nested too deep") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for these variables.

        Raises InvalidInput with the template's own words where it refuses the messages, and
        ModelError where it fails or does not end.
        """
        pieces: list[str] = []
        chars = 0
        try:
            for piece in self._template.generate({**variables, "range": _Range()}):
                pieces.append(piece)
                chars += len(piece)
                if chars > MAX_OUTPUT_CHARS or len(pieces) > MAX_PIECES:
                    raise ModelError("the chat template does not end: it writes too much text")
        except _Refusal as error:
            raise InvalidInput(f"the chat template refuses this: {error}") from error
        except ModelError:
            raise
        except RecursionError as error:
            raise ModelError("the chat template does not end: it calls itself") from error
        except Exception as error:  # a template can raise whatever its expressions raise
            kind = type(error).__name__
            raise ModelError(f"the chat template failed: {kind}: {error}") from error
        return "".join(pieces)


class _Refusal(jinja2.TemplateError):
    """What ``raise_exception`` in a template raises."""


class _Range:
    """``range`` for one rendering, with a limit on all its items together."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_ITEMS

    def __call__(self, *bounds: int) -> range:
        items = range(*bounds)
        self._left -= len(items)
        if self._left < 0:
            raise ModelError("the chat template does not end: too many loops over range()")
        return items


class _Environment(ImmutableSandboxedEnvironment):
    # `'x' * 10**12` would take the machine's memory before any limit on output is looked at.
    intercepted_binops = frozenset(["*", "**"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        small = all(isinstance(v, (int, float)) and abs(v) < 1e18 for v in (left, right))
        if not small or (operator == "**" and abs(right) > 64):
            raise ModelError(f"the chat template computes {operator} on more than small numbers")
        return super().call_binop(context, operator, left, right)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML, which models were not trained on.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
