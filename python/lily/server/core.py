"""Jobs on the engine: admitted, started, interleaved, stopped.

This file owns who runs and who waits. An API turns its request into a ``ChatJob`` and gets an
``Answer``; a job that cannot be done raises before its first event. The engine's sessions take
turns token by token, so all that is needed here is a thread for each running job and a first-come,
first-served queue before them. It knows no wire shape and no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lily.cancel import CancelToken
from lily.completion import Chunk
from lily.engine import Engine
from lily.request import PromptLike
from lily.server.answer import Answer, Event
from lily.server.errors import Busy, ShuttingDown
from lily.server.host import ModelHost
from lily.server.settings import Settings

_T = TypeVar("_T")
_PREPARING_THREADS = 2  # render and tokenize beside the running answers


@dataclass(frozen=True, kw_only=True)
class ChatJob:
    """One answer to make.

    Attributes:
        prompt: messages, a string that is continued as it is, or token ids.
        tools: JSON schemas of functions, as OpenAI writes them.
        tool_choice: "auto", "none", "required" or ``{"name": ...}``.
        constraint: at most one of ``schema``, ``regex`` and ``grammar``, by that name.
        sampling: fields of SamplingParams; the checkpoint's defaults hold for the others.
        enable_thinking: None leaves the template's default.
        template_variables: further names for the chat template.
    """

    prompt: PromptLike
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, str] = "auto"
    parallel_tool_calls: bool = True
    constraint: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    enable_thinking: bool | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rendering(self) -> dict[str, Any]:
        """What decides the prompt's tokens, for ``Engine.prompt_tokens``."""
        if isinstance(self.prompt, str) or not all(isinstance(m, Mapping) for m in self.prompt):
            return {}
        variables = {"preserve_thinking": self._keeps_thinking, **self.template_variables}
        return {
            "tools": self.tools or None,
            "enable_thinking": self.enable_thinking,
            "template_variables": variables,
        }

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the prompt, for ``Engine.stream``."""
        options = {**self.sampling, **self.constraint, **self.rendering}
        if self.tools:
            options["tool_choice"] = self.tool_choice
            options["parallel_tool_calls"] = self.parallel_tool_calls
        return options

    @property
    def _keeps_thinking(self) -> bool:
        """Whether the history is rendered with its thinking, so that it repeats, token by token,
        what was computed for the turns before. Not when the client has dropped the thinking: empty
        blocks in its place would repeat nothing and teach the model not to think."""
        return self.enable_thinking is False or all(
            message.get("reasoning_content")
            for message in self.prompt
            if isinstance(message, Mapping) and message.get("role") == "assistant"
        )


class Core:
    """Runs jobs on the engine that ``host`` holds. One event loop.

    Args:
        on_end: called with every answer that was started, when its thread is done.
    """

    def __init__(
        self,
        host: ModelHost,
        settings: Settings,
        *,
        on_end: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        self.host = host
        self.settings = settings
        self._on_end = on_end
        self._slots = asyncio.Semaphore(settings.parallel)
        self._runners = ThreadPoolExecutor(settings.parallel, "lily-answer")
        self._preparers = ThreadPoolExecutor(_PREPARING_THREADS, "lily-prepare")
        self._live: dict[Answer, asyncio.Task[None]] = {}
        self._admitted = 0
        self._stopping = False
        self.running = 0
        """Jobs that have a thread and a session."""

    @property
    def waiting(self) -> int:
        """Jobs that are admitted and do not run yet."""
        return self._admitted - self.running

    @property
    def stopping(self) -> bool:
        """Whether new jobs are refused for good."""
        return self._stopping

    async def start(self, job: ChatJob, *, admitted: bool = False) -> Answer:
        """Admit a job, check it, and set it going; the answer must be closed.

        ``admitted``: it follows another job of the same request, and a full queue is no reason to
        refuse it. Raises Busy, ShuttingDown, ModelLoading, and what ``Engine.stream`` raises.
        """
        async with contextlib.AsyncExitStack() as held:
            held.enter_context(self._place(admitted))
            engine = await held.enter_async_context(self.host.lend())
            cancel = CancelToken()
            answer = Answer(
                cancel,
                keep_alive_s=self.settings.keep_alive_s,
                timeout_s=self.settings.request_timeout_s,
            )
            chunks: Generator[Chunk, None, None] = await self._prepare(
                engine.stream,
                job.prompt,
                cancel=cancel,
                progress=answer.on_progress,
                **job.options,
            )
            if self._stopping:
                raise ShuttingDown
            task = asyncio.ensure_future(self._run(answer, chunks, held.pop_all()))
            self._live[answer] = task
            return answer

    async def stream(self, job: ChatJob) -> AsyncGenerator[Event, None]:
        """The events of a job, to the end or until this generator is closed."""
        async with await self.start(job) as answer:
            async for event in answer:
                yield event

    async def tokens(self, job: ChatJob) -> list[int]:
        """The token ids of a job's prompt; nothing is computed for it."""
        return await self.ask(lambda engine: engine.prompt_tokens(job.prompt, **job.rendering))

    async def ask(self, question: Callable[[Engine], _T]) -> _T:
        """Run something short on the engine, in a thread; it counts as a job while it runs."""
        async with self.borrow() as engine:
            return await self._prepare(question, engine)

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Engine, None]:
        """The engine for work that runs in a thread of its own; it counts as a job meanwhile.

        Raises Busy, ShuttingDown, ModelLoading.
        """
        with self._place():
            async with self.host.lend() as engine:
                yield engine

    async def drain(self, grace_s: float) -> None:
        """Refuse new jobs, let the others go on for a while, then fail them."""
        self._stopping = True
        if self._live:
            await asyncio.wait(self._live.values(), timeout=grace_s)
        self.stop()

    def stop(self) -> None:
        """Refuse new jobs and fail all others now."""
        self._stopping = True
        for answer in list(self._live):
            answer.fail(ShuttingDown("the server is shutting down; the answer is not complete"))

    async def close(self) -> None:
        """Stop everything, wait for the threads, and free the model."""
        self.stop()
        if self._live:
            await asyncio.wait(self._live.values())
        await self.host.close()
        self._runners.shutdown(wait=False)
        self._preparers.shutdown(wait=False)

    @contextlib.contextmanager
    def _place(self, admitted: bool = False) -> Generator[None, None, None]:
        """A place among those that run or wait."""
        if self._stopping:
            raise ShuttingDown
        limit = self.settings.parallel + self.settings.queue
        if self._admitted >= limit and not admitted:
            raise Busy(f"{self._admitted} requests run or wait, expected at most {limit}")
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1

    async def _prepare(self, call: Callable[..., _T], *args: Any, **options: Any) -> _T:
        loop = asyncio.get_running_loop()
        bound = functools.partial(call, *args, **options)
        return await loop.run_in_executor(self._preparers, bound)

    async def _run(
        self,
        answer: Answer,
        chunks: Generator[Chunk, None, None],
        held: contextlib.AsyncExitStack,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "it was made as a task"
        # While it waits for its turn no thread looks at the cancel token, so the task is cancelled.
        answer.on_close = task.cancel
        loop = asyncio.get_running_loop()
        try:
            async with held, self._slots:
                answer.on_close = lambda: None
                self.running += 1
                try:
                    await loop.run_in_executor(self._runners, answer.run, chunks)
                finally:
                    self.running -= 1
        except asyncio.CancelledError:
            answer.cancel.cancel()  # at the end of the loop a thread may still be at work
        finally:
            del self._live[answer]
            self._on_end(answer)
            answer.finished()
