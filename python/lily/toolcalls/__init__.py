"""Calls of functions, as the model writes them in its answer.

This package owns what a call looks like: which functions a caller declared (``declared``), what a
parameter's text means under its JSON schema (``values``), where in a stream of text calls begin and
end (``parser``), and the grammar that makes a model write nothing but calls (``grammar``). It knows
text and schemas, no tokens and no engine.
"""

from lily.toolcalls.declared import Tool, ToolChoice, chosen, declared
from lily.toolcalls.grammar import JSON_SPACE, call_grammar
from lily.toolcalls.parser import CallParser, Event

__all__ = [
    "JSON_SPACE",
    "CallParser",
    "Event",
    "Tool",
    "ToolChoice",
    "call_grammar",
    "chosen",
    "declared",
]
