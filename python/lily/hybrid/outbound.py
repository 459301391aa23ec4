"""The only door: one HTTP client, which sends what ``release`` has released and nothing else.

This file owns requests to the planner: their bytes, retries of the very same bytes, limits, and the
entries in the receipt. It knows no document, no worker and no policy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from lily.cancel import CancelToken
from lily.errors import Cancelled
from lily.hybrid.errors import PlannerError
from lily.hybrid.receipt import Receipt, Sent, shown_headers
from lily.hybrid.release import Released
from lily.hybrid.settings import PlannerSettings

_LONGEST_PAUSE_S = 20.0
_MOST_ANSWER_BYTES = 4 << 20
_PATIENCE = 10  # times timeout_s, for a whole answer that comes drop by drop
_AGAIN = (408, 409, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Call:
    """A tool call as the planner wrote it; nothing about it has been checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """A message of the conversation with the planner, all its words released.

    ``calls`` repeats what the planner itself said, as the protocol wants it.
    """

    role: str
    content: Released
    calls: tuple[Call, ...] = ()
    call_id: str = ""

    def wire(self) -> dict[str, Any]:
        """As OpenAI's chat completions have it."""
        message: dict[str, Any] = {"role": self.role, "content": self.content.text}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.call_id:
            message["tool_call_id"] = self.call_id
        return message


@dataclass(frozen=True)
class Reply:
    """The planner's whole answer to one request."""

    text: str
    calls: tuple[Call, ...]


class Outbound:
    """Sends conversations to the planner. One for each run."""

    def __init__(
        self,
        settings: PlannerSettings,
        receipt: Receipt,
        check: Callable[[str], None],
        cancel: CancelToken,
        *,
        transport: httpx2.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._receipt, self._check = settings, receipt, check
        self._cancel, self._pause = cancel, pause
        self._client = httpx2.Client(
            timeout=settings.timeout_s,
            transport=transport,
            follow_redirects=False,  # another host is another destination
            trust_env=False,  # no proxy that nobody named
        )
        self._requests = 0

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def ask(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        """Yields pieces of the answer's text as they come, and the whole ``Reply`` last.

        Raises PlannerError, Cancelled, and Kept where the last check finds something private.
        """
        settings = self._settings
        document = {
            "model": settings.model,
            "messages": [message.wire() for message in messages],
            "tools": list(tools),
            "stream": True,
        }
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        # The planner's own words are no news to it, whatever they happen to say.
        own = [message.wire() for message in messages if message.role != "assistant"]
        self._check(json.dumps(own, ensure_ascii=False))
        size = len(body.encode())
        for attempt in range(settings.max_retries + 1):
            if self._requests >= settings.max_requests:
                raise PlannerError(f"the limit of {settings.max_requests} requests is reached")
            if self._receipt.sent_bytes + size > settings.max_sent_bytes:
                raise PlannerError(
                    f"the limit of {settings.max_sent_bytes:,} bytes sent is reached"
                )
            self._requests += 1
            try:
                yield from self._once(body)
                return
            except _Again as again:
                if attempt == settings.max_retries:
                    raise PlannerError(again.reason) from None
                self._pause(min(again.after_s or 0.5 * 2**attempt, _LONGEST_PAUSE_S))

    def _once(self, body: str) -> Iterator[Any]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # so that the size of an answer is what arrives
        }
        if key := self._settings.key():
            headers["authorization"] = f"Bearer {key}"
        url = self._settings.base_url.rstrip("/") + "/chat/completions"
        request = self._client.build_request("POST", url, content=body.encode(), headers=headers)
        shown = shown_headers(list(request.headers.items()))
        at = len(self._receipt.sent)
        self._receipt.sent.append(Sent("POST", url, shown, body))
        try:
            response = self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            self._outcome(at, type(error).__name__)
            # Without its cause, whose text could hold a header.
            raise _Again(f"the planner cannot be reached: {type(error).__name__}") from None
        try:
            self._outcome(at, str(response.status_code))
            if response.status_code in _AGAIN:
                wait = response.headers.get("retry-after", "")
                raise _Again(
                    f"the planner answers with status {response.status_code}",
                    float(wait[:9]) if wait.isascii() and wait.isdecimal() else None,
                )
            if response.status_code != 200:
                raise PlannerError(f"the planner answers with status {response.status_code}")
            yield from self._read(response)
        finally:
            response.close()

    def _read(self, response: httpx2.Response) -> Iterator[Any]:
        text: list[str] = []
        calls: dict[int, dict[str, str]] = {}
        try:
            for event in self._events(response):
                piece = _merge(event, calls)
                if piece:
                    text.append(piece)
                    yield piece
        except httpx2.HTTPError as error:
            raise PlannerError(f"the planner's answer broke off: {type(error).__name__}") from error
        yield Reply("".join(text), tuple(Call(**call) for _, call in sorted(calls.items())))

    def _events(self, response: httpx2.Response) -> Iterator[Mapping[str, Any]]:
        """Choices' deltas, until [DONE]; an answer that ends before it is a broken one."""
        for line in self._lines(response):
            if not line.startswith(b"data:"):
                continue
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            try:
                event = json.loads(data)
                choices = event["choices"]
                delta = choices[0]["delta"] if choices else {}
            except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
                raise PlannerError(
                    "the planner's answer is no stream of chat completions"
                ) from error
            if isinstance(delta, Mapping):
                yield delta
        raise PlannerError("the planner's answer broke off before its end")

    def _lines(self, response: httpx2.Response) -> Iterator[bytes]:
        """Lines as they come, within the limits of size and time."""
        until = time.monotonic() + _PATIENCE * self._settings.timeout_s
        received, rest = 0, b""
        for part in response.iter_raw():
            if self._cancel.cancelled:
                raise Cancelled("the run was cancelled")
            received += len(part)
            if received > _MOST_ANSWER_BYTES:
                raise PlannerError(f"the planner's answer passes {_MOST_ANSWER_BYTES:,} bytes")
            if time.monotonic() > until:
                raise PlannerError("the planner's answer takes too long")
            *lines, rest = (rest + part).split(b"\n")
            yield from lines

    def _outcome(self, at: int, outcome: str) -> None:
        self._receipt.sent[at] = replace(self._receipt.sent[at], outcome=outcome)


class _Again(Exception):  # noqa: N818  (a request that may be tried once more)
    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after_s = reason, after_s


def _merge(delta: Mapping[str, Any], calls: dict[int, dict[str, str]]) -> str:
    """Adds a delta's tool calls to those so far, and returns its text."""
    parts = delta.get("tool_calls") or []
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise PlannerError("the planner's tool calls are malformed")
    for part in parts:
        index = part.get("index", 0)
        call = calls.setdefault(
            index if isinstance(index, int) else 0, {"id": "", "name": "", "arguments": ""}
        )
        function = part.get("function")
        function = function if isinstance(function, Mapping) else {}
        call["id"] = _text(part.get("id")) or call["id"]
        call["name"] += _text(function.get("name"))
        call["arguments"] += _text(function.get("arguments"))
    return _text(delta.get("content"))


def _text(value: object) -> str:
    """What can be shown and sent back: half of a surrogate pair can not."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
