"""Engine: a loaded model that generates and scores text.

This file owns the public calls: it turns prompts into requests, lends them sessions, and keeps the
list of what is running. The loop itself is in ``generation``; numbers are computed in ``_native``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lily import _native, words
from lily.cancel import CancelToken
from lily.chat import ChatTemplate, Prompt
from lily.completion import Chunk, Completion, Score
from lily.conversation import Conversation
from lily.errors import Cancelled, ContextFull, InvalidInput
from lily.generation import Generation, whole
from lily.hub import resolve
from lily.pool import SessionPool
from lily.request import (
    Progress,
    PromptLike,
    Request,
    checked_ids,
    checked_request,
    is_messages,
)
from lily.sampling import SamplingParams
from lily.structured import Structure
from lily.tokenizer import Tokenizer, end_ids, read_json
from lily.toolcalls import ToolChoice, chosen, declared


class Engine:
    """A model in memory. Safe to use from many threads; ``close`` it, or use it in ``with``.

    Make one with ``Engine.load``.

    Example:
        >>> with Engine.load() as engine:
        ...     engine.generate([{"role": "user", "content": "Hello!"}]).text   # doctest: +SKIP
    """

    def __init__(
        self,
        native: _native.Engine,
        folder: Path,
        *,
        name: str,
        facts: Mapping[str, Any],
        max_sessions: int = 4,
    ) -> None:
        self._native = native
        self._folder = folder
        self._tokenizer = Tokenizer(folder, native.vocab_size)
        self._template = ChatTemplate(folder, self._tokenizer)
        self._end_ids = end_ids(folder, self._tokenizer)
        self._structure = Structure(self._tokenizer, self._end_ids)
        self._pool = SessionPool(native.session, max_sessions)
        self._lock = threading.Lock()
        self._running: list[_native.Cancel] = []
        self._facts = facts
        self.name = name
        """Short name of the model, for people."""
        self.defaults = SamplingParams.from_generation_config(
            read_json(folder / "generation_config.json")
        )
        """Sampling parameters that the checkpoint asks for."""

    @classmethod
    def load(
        cls,
        path_or_repo: str | os.PathLike[str] | None = None,
        *,
        device: str = "auto",
        max_context: int | None = None,
        revision: str | None = None,
        offline: bool = False,
        token: str | None = None,
        kv_dtype: str = "auto",
        cache_bytes: int | None = None,
        memory_limit_bytes: int | None = None,
        threads: int | None = None,
        max_sessions: int = 4,
        progress: bool = True,
    ) -> Engine:
        """Load a checkpoint: a folder, a hub id ``org/name``, or the model in the package (None).

        Args:
            device: "auto" takes metal, then cuda, then cpu; ``engine.device`` says which.
            max_context: tokens of prompt and answer together; None: what config and memory allow.
            revision: branch, tag or commit of a hub model.
            offline: use only what is in the local cache.
            token: hub token for private models.
            kv_dtype: storage of the KV cache; "auto" is the model's own.
            cache_bytes: budget of the prefix cache; None: chosen from memory.
            memory_limit_bytes: refuse to plan more than this; None: what the machine has.
            threads: CPU threads; None: all.
            max_sessions: most requests that run at once; more of them wait.
            progress: show a bar while downloading.

        Raises InvalidInput, ModelError, DownloadError, OutOfMemory or DeviceError.
        """
        if max_sessions < 1:
            raise InvalidInput(f"max_sessions is {max_sessions}, expected 1 or more")
        folder = resolve(
            path_or_repo, revision=revision, offline=offline, token=token, progress=progress
        )
        native = _native.Engine(
            str(folder),
            device=device,
            max_context=_positive("max_context", max_context),
            kv_dtype=kv_dtype,
            cache_bytes=-1 if cache_bytes is None else cache_bytes,
            memory_limit_bytes=_positive("memory_limit_bytes", memory_limit_bytes),
            threads=_positive("threads", threads),
        )
        name = "lily-tiny" if path_or_repo is None else words.short_name(path_or_repo)
        try:
            facts = _native.describe(str(folder))
            return cls(native, folder, name=name, facts=facts, max_sessions=max_sessions)
        except BaseException:
            native.close()
            raise

    def generate(
        self,
        prompt: PromptLike,
        *,
        sampling: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        parallel_tool_calls: bool = True,
        schema: Mapping[str, Any] | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        enable_thinking: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
        **params: Any,
    ) -> Completion:
        """Generate an answer and return it whole.

        Args:
            prompt: a string is continued as it is; a list of messages goes through the chat
                template; a list of token ids is taken as it is.
            sampling: in place of the checkpoint's defaults.
            tools: JSON schemas of functions that the model may call.
            tool_choice: "auto", "none", "required" or {"name": one of them}.
            parallel_tool_calls: False ends the answer after one call.
            schema: JSON schema that the answer, behind the thinking, shall fit.
            regex: pattern that it shall match as a whole.
            grammar: Lark grammar that it shall follow; at most one of the three.
            enable_thinking: for the chat template; None leaves its default.
            template_variables: further variables for the chat template.
            cancel: stops the answer from any thread; it then has finish_reason "cancelled".
            progress: called with (done, total) tokens while the prompt is computed.
            **params: single fields of SamplingParams, such as ``temperature=0, max_tokens=100``.

        Raises InvalidInput, ContextFull if the prompt does not fit, DeviceError.

        Example:
            >>> engine.generate("Once upon", max_tokens=8, temperature=0).text  # doctest: +SKIP
        """
        chunks = self.stream(
            prompt,
            sampling=sampling,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            schema=schema,
            regex=regex,
            grammar=grammar,
            enable_thinking=enable_thinking,
            template_variables=template_variables,
            cancel=cancel,
            progress=progress,
            **params,
        )
        return whole(chunks)

    def stream(
        self,
        prompt: PromptLike,
        *,
        sampling: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        parallel_tool_calls: bool = True,
        schema: Mapping[str, Any] | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        enable_thinking: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
        **params: Any,
    ) -> Generator[Chunk, None, None]:
        """Generate an answer in pieces; takes what ``generate`` takes.

        Bad input raises here, before the first chunk. The last chunk carries the Completion.
        Closing the generator ends the answer and frees its session at once.

        Example:
            >>> for chunk in engine.stream("Once upon"):        # doctest: +SKIP
            ...     print(chunk.text, end="", flush=True)
        """
        started = time.perf_counter()
        callable_tools = declared(tools) if is_messages(prompt) else ()
        mode, must_call = chosen(callable_tools, tool_choice)
        if mode == "none":
            tools, callable_tools = None, ()
        made = self._prompt(prompt, tools, enable_thinking, template_variables)
        base = self.defaults if sampling is None else sampling
        request = checked_request(
            made,
            base.replace(**params),
            rows=self._native.vocab_size,
            context=self.max_context,
            chat=is_messages(prompt),
            tools=callable_tools,
            parallel_tool_calls=parallel_tool_calls,
            constraint=self._structure.constraint(
                schema, regex, grammar, callable_tools, must_call, parallel_tool_calls
            ),
        )
        return self._run(request, cancel, progress, started)

    def score(self, text: PromptLike, *, cancel: CancelToken | None = None) -> Score:
        """Log-probability of each token of ``text`` after the first, in one pass.

        Raises InvalidInput for less than two tokens, ContextFull, Cancelled.

        Example:
            >>> engine.score("The sky is blue.").perplexity     # doctest: +SKIP
        """
        token_ids = self._prompt(text, None, None, None).token_ids
        if len(token_ids) < 2:
            raise InvalidInput(f"the text has {len(token_ids)} token, scoring needs 2 or more")
        if len(token_ids) > self.max_context:
            raise ContextFull(
                f"the text has {len(token_ids):,} tokens, the context holds {self.max_context:,}"
            )
        # Scoring overwrites a session from its start, so it takes the one unused longest.
        with self._flag(cancel) as flag, self._pool.borrow((), flag) as session:
            logprobs, argmax = session.score(token_ids, cancel=flag)
        return Score(tuple(token_ids), tuple(logprobs.tolist()), tuple(argmax.tolist()))

    def chat(
        self,
        system: str | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **params: Any,
    ) -> Conversation:
        """Begin a conversation that keeps its own history."""
        return Conversation(self, system, tools=tools, enable_thinking=enable_thinking, **params)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``; with ``special``, control tokens in it are taken as such."""
        return self._tokenizer.encode(text, special=special)

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ``token_ids``."""
        return self._tokenizer.decode(token_ids, skip_special=skip_special)

    def prompt_tokens(
        self,
        prompt: PromptLike,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The token ids that ``generate`` would compute for ``prompt``."""
        made = self._prompt(prompt, tools, enable_thinking, template_variables)
        return list(made.token_ids)

    def cancel_all(self) -> None:
        """Stop everything that is running now; later calls run as usual."""
        with self._lock:
            for flag in self._running:
                flag.set()

    @property
    def device(self) -> str:
        """What it runs on: "metal", "cuda" or "cpu"."""
        return self._native.device

    @property
    def device_description(self) -> str:
        """The device in words."""
        return self._native.device_description

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._native.max_context

    @property
    def text_vocab_size(self) -> int:
        """Tokens that the tokenizer knows; the model may have more rows, which mean nothing."""
        return self._tokenizer.size

    def plan(self) -> dict[str, int]:
        """Where the memory goes, in bytes, by purpose."""
        return self._native.plan()

    def cache_stats(self) -> dict[str, int]:
        """What the prefix cache holds and how often it helped."""
        return self._native.cache_stats()

    def close(self) -> None:
        """Free the model, from any thread. What runs stops; later calls raise InvalidInput."""
        self.cancel_all()
        self._pool.close()
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return words.headline(self.name, self._facts, self.device)

    def _prompt(
        self,
        prompt: PromptLike,
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None,
        variables: Mapping[str, Any] | None,
    ) -> Prompt:
        if is_messages(prompt):
            return self._template.render(
                prompt,  # type: ignore[arg-type]
                tools=tools,
                enable_thinking=enable_thinking,
                variables=variables,
            )
        if tools is not None or enable_thinking is not None or variables is not None:
            raise InvalidInput("tools, enable_thinking and template_variables need messages")
        if isinstance(prompt, str):
            token_ids = self._tokenizer.encode(prompt)
        else:
            token_ids = checked_ids(prompt, self._native.vocab_size)
        if not token_ids:
            raise InvalidInput("the prompt is empty")
        return Prompt(token_ids)

    def _run(
        self,
        request: Request,
        cancel: CancelToken | None,
        progress: Progress | None,
        started: float,
    ) -> Generator[Chunk, None, None]:
        generation = Generation(self._tokenizer, self._end_ids, request, started)
        with (
            contextlib.suppress(Cancelled),
            self._flag(cancel) as flag,
            self._pool.borrow(request.prompt.token_ids, flag) as session,
        ):
            yield from generation.chunks(session, flag, progress)
        yield generation.last_chunk()

    @contextlib.contextmanager
    def _flag(self, cancel: CancelToken | None) -> Iterator[_native.Cancel]:
        """The flag of one computation, linked to the caller's token and to ``cancel_all``."""
        flag = _native.Cancel()
        with self._lock:
            self._running.append(flag)
        try:
            if cancel is not None:
                cancel.attach(flag)
            yield flag
        finally:
            if cancel is not None:
                cancel.detach(flag)
            with self._lock:
                self._running = [other for other in self._running if other is not flag]


def _positive(name: str, value: int | None) -> int:
    """For native code, which reads 0 as "choose"."""
    if value is not None and value < 1:
        raise InvalidInput(f"{name} is {value}, expected 1 or more")
    return value or 0
