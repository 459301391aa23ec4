"""A conversation: an engine and the messages so far.

This file owns the history. Thinking is kept in it (``preserve_thinking``), so that each prompt
begins with exactly the tokens of the turn before and nothing is computed twice. It knows no tokens.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lily.completion import Chunk, Completion, ToolCall

if TYPE_CHECKING:
    from lily.engine import Engine


class Conversation:
    """Messages to and fro with one engine. One thread at a time; made by ``Engine.chat``.

    Example:
        >>> chat = engine.chat("Answer in one word.")       # doctest: +SKIP
        >>> chat.send("The capital of France?").text        # doctest: +SKIP
        'Paris'

    With tools, an answer may be calls; their results go in before the next answer:
        >>> for call in chat.send("Is it raining?").tool_calls:         # doctest: +SKIP
        ...     chat.add_tool_result(call, weather(**json.loads(call.arguments)))
        >>> chat.send().text                                            # doctest: +SKIP
        'No, it is sunny.'
    """

    def __init__(
        self,
        engine: Engine,
        system: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **params: Any,
    ) -> None:
        self._engine = engine
        self._tools = tools
        self._enable_thinking = enable_thinking
        self._params = params
        self.messages: list[dict[str, Any]] = []
        """The history, as plain messages; may be edited between turns."""
        self.reset(system)

    def reset(self, system: str | None = None) -> None:
        """Forget everything said, and begin with this system message, if one is given."""
        self.messages = [] if system is None else [{"role": "system", "content": system}]

    def add_tool_result(self, call: ToolCall | str, content: str) -> None:
        """What a called function gave; ``call`` is the call or its id."""
        call_id = call if isinstance(call, str) else call.id
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def send(self, text: str | None = None, **params: Any) -> Completion:
        """Say something and return the whole answer; ``params`` are those of ``Engine.generate``.

        Without ``text`` the model goes on from the history, for one after results of tools.
        """
        completion: Completion | None = None
        for chunk in self.stream(text, **params):
            completion = chunk.completion
        assert completion is not None, "the last chunk always carries the completion"
        return completion

    def stream(self, text: str | None = None, **params: Any) -> Generator[Chunk, None, None]:
        """Say something and get the answer in pieces.

        An answer that is broken off, by closing the generator or by Ctrl-C, stays in the history
        as far as it came; if it had not begun, the question is taken back too. Calls stay in it
        when the answer came to its end, those that are complete.
        """
        if text is not None:
            self.messages.append({"role": "user", "content": text})
        answer, reasoning = "", ""
        calls: list[ToolCall] = []
        chunks: Generator[Chunk, None, None] | None = None
        try:
            chunks = self._engine.stream(
                self.messages,
                **{
                    "tools": self._tools,
                    "enable_thinking": self._enable_thinking,
                    "template_variables": {"preserve_thinking": True},
                    **self._params,
                    **params,
                },
            )
            for chunk in chunks:
                answer += chunk.text
                reasoning += chunk.reasoning
                if chunk.completion is not None:
                    calls = [call for call in chunk.completion.tool_calls if call.complete]
                yield chunk
        finally:
            if chunks is not None:
                chunks.close()
            if answer or reasoning or calls:
                self.messages.append(_message(answer, reasoning, calls))
            elif text is not None:
                self.messages.pop()


def _message(answer: str, reasoning: str, calls: list[ToolCall]) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer, "reasoning_content": reasoning}
    if not calls:
        return message
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    listed = [
        {"id": call.id, "type": "function", "function": function}
        for call, function in zip(calls, functions, strict=True)
    ]
    return {**message, "tool_calls": listed}
