"""Lily on many machines through Ray Data: one engine an actor.

This file owns the actor and its columns. Placement, retries and files are Ray's.

Example:
    >>> import ray                                                       # doctest: +SKIP
    >>> from lily.integrations.ray import answer                         # doctest: +SKIP
    >>> rows = ray.data.read_json("prompts.jsonl")                       # doctest: +SKIP
    >>> answer(rows, model="org/name", engines=4).write_json("answers")  # doctest: +SKIP
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lily.engine import Engine
from lily.errors import InvalidInput, LilyError

if TYPE_CHECKING:
    from ray.data import Dataset


class Answers:
    """An actor of ``map_batches``: holds an engine, answers a column.

    Args:
        model: folder or hub id on the actor's machine; None for the model in the package.
        column: prompts: a string each, or a list of messages.
        parallel: sessions of the engine; rows that are answered at once.
        load: further arguments of ``Engine.load``.
        generate: further arguments of ``Engine.generate``.

    Adds the columns ``text``, ``finish_reason``, ``completion_tokens`` and ``error``. A row that
    cannot be answered has an error and no text; the others go on.
    """

    def __init__(
        self,
        model: str | None,
        column: str,
        parallel: int,
        load: dict[str, Any],
        generate: dict[str, Any],
    ) -> None:
        self._engine = Engine.load(model, max_sessions=parallel, progress=False, **load)
        self._column, self._generate = column, generate
        self._threads = ThreadPoolExecutor(parallel)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """One batch of rows, as lists by column."""
        if self._column not in batch:
            raise InvalidInput(
                f"there is no column '{self._column}', only {', '.join(sorted(batch))}"
            )
        rows = list(self._threads.map(self._answer, batch[self._column]))
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        return {**batch, **columns}

    def _answer(self, prompt: Any) -> dict[str, Any]:
        asked = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
        try:
            found = self._engine.generate(asked, **self._generate)
        except LilyError as error:
            said = f"{type(error).__name__}: {error}"
            return {"text": "", "finish_reason": "error", "completion_tokens": 0, "error": said}
        return {
            "text": found.text,
            "finish_reason": found.finish_reason,
            "completion_tokens": found.usage.completion_tokens,
            "error": "",
        }


def answer(
    rows: Dataset,
    *,
    model: str | None = None,
    column: str = "prompt",
    engines: int = 1,
    parallel: int = 4,
    batch_size: int = 32,
    load: dict[str, Any] | None = None,
    generate: dict[str, Any] | None = None,
    **resources: Any,
) -> Dataset:
    """The rows with the columns of ``Answers``; lazy, as everything in Ray Data.

    Args:
        engines: actors, each with a whole engine: as many as there are machines (or GPUs).
        resources: of each actor, as ``map_batches`` takes them: ``num_cpus``, ``num_gpus``.
    """
    return rows.map_batches(
        Answers,
        fn_constructor_args=(model, column, parallel, load or {}, generate or {}),
        concurrency=engines,
        batch_size=batch_size,
        batch_format="numpy",
        **resources,
    )
