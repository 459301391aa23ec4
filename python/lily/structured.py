"""Answers that must have a form: a JSON schema, a pattern, a grammar, or calls of functions.

This file owns llguidance. A ``Constraint`` says at each place of an answer which tokens may come
next. It begins behind the thinking. Control tokens are never among them, but for those that a call
is written with, and the end token where the answer may end. The next mask is computed by a thread
of its own while the device computes the next logits. It knows no sessions and no logits.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lily.chat import END_THINK
from lily.errors import InvalidInput
from lily.tokenizer import Tokenizer
from lily.toolcalls import JSON_SPACE, Tool, call_grammar

if TYPE_CHECKING:
    import llguidance

_GAP = "\n\n"  # what templates write between </think> and the answer
_CALL_TAGS = ("<tool_call>", "</tool_call>")
# Keywords of JSON Schema whose values hold schemas, by the shape of those values.
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames")


class Structure:
    """What constraints of one model have in common. Costs nothing until the first is asked for."""

    def __init__(self, tokenizer: Tokenizer, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._lock = threading.Lock()
        self._vocabulary: llguidance.LLTokenizer | None = None

    def constraint(
        self,
        schema: Mapping[str, Any] | None,
        regex: str | None,
        grammar: str | None,
        tools: Sequence[Tool],
        must_call: Sequence[Tool],
        parallel: bool,
    ) -> Constraint | None:
        """What an answer must be, or None if nothing was laid down.

        With ``must_call`` it is calls of these; else it has the form, or is calls of ``tools``.

        Raises InvalidInput that names the place of what is wrong.
        """
        given = {"schema": schema, "regex": regex, "grammar": grammar}
        forms = [name for name, value in given.items() if value is not None]
        if len(forms) > 1:
            raise InvalidInput(f"{' and '.join(forms)} are given; an answer has one form")
        if not forms and not must_call:
            return None
        vocabulary = self._llguidance()
        answer = None
        if not must_call:
            answer = _Compiler(vocabulary).answer(schema, regex, grammar)
            if not tools:
                return self._constraint(json.dumps({"grammars": [answer]}), ())
        tags = [self._tokenizer.control_ids.get(tag) for tag in _CALL_TAGS]
        calls = call_grammar(
            must_call or tools,
            tags=(_terminal(_CALL_TAGS[0], tags[0]), _terminal(_CALL_TAGS[1], tags[1])),
            many=parallel and len(must_call) != 1,
            wrong=_Compiler(vocabulary).wrong,
            first="" if answer is None else "@answer",
        )
        grammars = [{"lark_grammar": calls}] + ([] if answer is None else [answer])
        return self._constraint(
            json.dumps({"grammars": grammars}), [tag for tag in tags if tag is not None]
        )

    def _constraint(self, grammar: str, tags: Sequence[int]) -> Constraint:
        vocabulary = self._llguidance()
        error = _Compiler(vocabulary).error(grammar)
        if error:
            raise InvalidInput(f"the answer's form cannot be used: {error}")
        permitted = np.ones(self._tokenizer.rows, np.bool_)
        permitted[sorted(self._tokenizer.control_ids.values())] = False
        permitted[[*self._end_ids, *tags]] = True
        gap = self._tokenizer.encode(_GAP)
        return Constraint(
            lambda: _matcher(vocabulary, grammar),
            permitted,
            end_ids=self._end_ids,
            end_think=self._tokenizer.control_ids.get(END_THINK),
            gap=gap[0] if len(gap) == 1 else None,
        )

    def _llguidance(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer, self._end_ids)
            return self._vocabulary


class Constraint:
    """What one answer must be. For one answer and one thread; runs inside its ``with`` block."""

    def __init__(
        self,
        make: Callable[[], llguidance.LLMatcher],
        permitted: NDArray[np.bool_],
        *,
        end_ids: frozenset[int],
        end_think: int | None,
        gap: int | None,
    ) -> None:
        self._make = make
        self._permitted = permitted
        self._end_ids = end_ids
        self._end_mask = np.zeros_like(permitted)
        self._end_mask[sorted(end_ids)] = True
        self.end_think = end_think
        """The token that ends the thinking, if there is one."""
        self._gap = gap
        self._gap_open = False
        self.begun = False
        """Whether the answer has a token."""
        self.complete = False
        """Whether nothing can follow any more."""

    def __enter__(self) -> Constraint:
        self._matcher = self._make()
        self._worker = ThreadPoolExecutor(1, "lily-mask")
        self._mask: Future[NDArray[np.bool_]] = self._worker.submit(self._compute)
        return self

    def __exit__(self, *exception: object) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)

    def allowed(self, *, after_thinking: bool, may_end: bool) -> NDArray[np.bool_]:
        """For each token whether it may be the next one; at least one may.

        Args:
            after_thinking: whether the thinking has just ended; one empty line may come then.
            may_end: False only allows the end token where nothing else is.
        """
        mask = self._mask.result()
        if not may_end and (mask & ~self._end_mask).any():
            mask = mask & ~self._end_mask
        self._gap_open = after_thinking and not self.begun and self._gap is not None
        if self._gap_open:
            mask = mask.copy()
            mask[self._gap] = True
        return mask

    def accept(self, token_id: int) -> None:
        """Take the token that was chosen, and begin with the next mask."""
        self.begun = True
        if self._gap_open and token_id == self._gap:
            return
        self._matcher.consume_token(token_id)
        self._require_sound()
        self.complete = self._matcher.is_stopped()
        if not self.complete:
            self._mask = self._worker.submit(self._compute)

    def is_end(self, token_id: int) -> bool:
        """Whether this token ends an answer."""
        return token_id in self._end_ids

    def _compute(self) -> NDArray[np.bool_]:
        rows = len(self._permitted)
        words = np.zeros((rows + 31) // 32, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._require_sound()
        mask = np.unpackbits(words.view(np.uint8), bitorder="little")[:rows].view(np.bool_)
        mask &= self._permitted
        if not mask.any():
            raise InvalidInput("the answer's form asks for a control token here")
        return mask

    def _require_sound(self) -> None:
        if self._matcher.is_error():
            error = _first_line(self._matcher.get_error())
            raise InvalidInput(f"the answer's form is too complex to go on: {error}")


class _Compiler:
    """From the caller's words to grammars; finds the place of a mistake."""

    def __init__(self, vocabulary: llguidance.LLTokenizer) -> None:
        self._vocabulary = vocabulary

    def error(self, grammar: str) -> str:
        """What is wrong with a grammar, in a line; empty if nothing is."""
        wrong, messages = _library().LLMatcher.validate_grammar_with_warnings(
            grammar, self._vocabulary
        )
        return _first_line(messages[0]) if wrong else ""

    def wrong(self, lark: str) -> str:
        """The same for a grammar in Lark's notation."""
        return self.error(json.dumps({"grammars": [{"lark_grammar": lark}]}))

    def answer(
        self, schema: Mapping[str, Any] | None, regex: str | None, grammar: str | None
    ) -> dict[str, Any]:
        """The grammar named "answer". Raises InvalidInput."""
        matcher = _library().LLMatcher
        if schema is not None:
            return {"name": "answer", **self._schema(schema)}
        text, name = (regex, "regex") if regex is not None else (grammar, "grammar")
        if not isinstance(text, str):
            raise InvalidInput(f"{name} is {type(text).__name__}, expected a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{name} cannot be encoded as UTF-8: {error}") from error
        if name == "regex":
            made = json.loads(matcher.grammar_from_regex(text))["grammars"][0]
        else:
            made = {"lark_grammar": text}
        wrong = self.error(json.dumps({"grammars": [made]}))
        if wrong:
            raise InvalidInput(f"{name}: {wrong}")
        return {**made, "name": "answer"}

    def _schema(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            raise InvalidInput(f"schema is {type(schema).__name__}, expected a dict")
        try:
            made = self._schema_grammar(schema)
            _require_exact(schema, "schema")
        except InvalidInput:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"schema is not JSON: {error}") from error
        wrong = self.error(json.dumps({"grammars": [made]}))
        if wrong:
            raise InvalidInput(f"schema{self._place(schema, schema)}: {wrong}")
        return made

    def _schema_grammar(self, schema: Any) -> dict[str, Any]:
        own = schema.get("x-guidance") if isinstance(schema, Mapping) else None
        options = {"whitespace_pattern": JSON_SPACE, **(own if isinstance(own, Mapping) else {})}
        made = json.loads(json.dumps(schema))
        return {"json_schema": {**made, "x-guidance": options} if isinstance(made, dict) else made}

    def _place(self, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
        """JSON pointer to the innermost schema that is wrong by itself."""
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        for step, inner in _schemas_in(schema):
            if isinstance(inner, Mapping):
                alone = self._schema_grammar({**shared, **inner})
                if self.error(json.dumps({"grammars": [alone]})):
                    return step + self._place(inner, root)
        return ""


def _require_exact(schema: Mapping[str, Any], place: str) -> None:
    """llguidance reads numbers as doubles, and would write another integer than the listed one."""
    listed = schema.get("enum")
    for value in [*(listed if isinstance(listed, list) else []), schema.get("const")]:
        if isinstance(value, int) and abs(value) > 2**53:
            raise InvalidInput(f"{place}: {value} is beyond 2**53, where integers are not exact")
    for step, inner in _schemas_in(schema):
        if isinstance(inner, Mapping):
            _require_exact(inner, place + step)


def _schemas_in(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Steps of a JSON pointer, and the schemas that they lead to."""
    found = [(f"/{key}", schema[key]) for key in _SINGLE if key in schema]
    for key in _MAPS:
        if isinstance(schema.get(key), Mapping):
            found += [(f"/{key}/{name}", inner) for name, inner in schema[key].items()]
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            found += [(f"/{key}/{index}", inner) for index, inner in enumerate(schema[key])]
    return found


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise InvalidInput(
            "schema, regex, grammar and forced tool calls need llguidance: "
            "pip install 'lily-engine[structured]'"
        ) from error
    return llguidance


def _matcher(vocabulary: llguidance.LLTokenizer, grammar: str) -> llguidance.LLMatcher:
    made: llguidance.LLMatcher = _library().LLMatcher(vocabulary, grammar, log_level=0)
    return made


def _vocabulary(tokenizer: Tokenizer, end_ids: frozenset[int]) -> llguidance.LLTokenizer:
    library = _library()
    made: llguidance.LLTokenizer = library.LLTokenizer(
        library.TokenizerWrapper(_Wrapped(tokenizer, end_ids)),
        n_vocab=tokenizer.rows,
        eos_token=sorted(end_ids),
    )
    return made


class _Wrapped:
    """A tokenizer as llguidance reads it. No grammar knows a control token by its name."""

    def __init__(self, tokenizer: Tokenizer, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(end_ids)
        self.bos_token_id = None
        self.special_token_ids = sorted({*tokenizer.control_ids.values(), *end_ids})
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.rows)]
        for token_id in self.special_token_ids:
            self.tokens[token_id] = f"<control {token_id}>".encode()

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text)


def _terminal(tag: str, token_id: int | None) -> str:
    return json.dumps(tag) if token_id is None else f"<[{token_id}]>"


def _first_line(message: str) -> str:
    """What matters in an error of llguidance: no tokens' names, no grammar."""
    lines = [line.strip() for line in message.split("; following special tokens")[0].splitlines()]
    told = [line for line in lines if line.startswith("error: ")]
    head = lines[0] if lines else "unknown error"
    return f"{head} {told[0].removeprefix('error: ')}" if told else head
