"""Many requests from a file: OpenAI's batch format in and out, resumable.

This file owns the two files: lines in, lines out, and which of them are done. Each request runs
through the server's own application inside this process, without a socket, so that a batch gives
exactly what the server would.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from lily.engine import Engine
from lily.errors import InvalidInput, LilyError

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


@dataclass(frozen=True)
class BatchRequest:
    """One line of the input."""

    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class BatchReport:
    """What a run did: lines answered now, lines that were answered before, and failures of both."""

    answered: int
    skipped: int
    failed: int


def read_requests(path: Path) -> list[BatchRequest]:
    """All lines. Raises InvalidInput that names the line and what is wrong with it.

    The whole file is checked before anything runs: an error in the last line should not cost a
    night.
    """
    requests: dict[str, BatchRequest] = {}
    for number, line in _lines(path):
        where = f"{path.name}, line {number}"
        try:
            document = json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{where} is not JSON: {error}") from error
        request = _checked(document, where)
        if request.custom_id in requests:
            raise InvalidInput(f"{where}: custom_id '{request.custom_id}' was used before")
        requests[request.custom_id] = request
    return list(requests.values())


def run_batch(
    source: Path,
    target: Path,
    load: Callable[[], Engine],
    *,
    parallel: int = 8,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BatchReport:
    """Answer the lines of `source` into `target`; those that stand there already are left alone.

    Args:
        load: makes the engine, with at least `parallel` sessions.
        parallel: requests that run at once.
        progress: told (done, total) after each line.

    Answers are in the order in which they end, each written whole before the next, so that a run
    which was stopped goes on where it was. Raises InvalidInput for the files, and what `load`
    raises.
    """
    if source.resolve() == target.resolve():
        raise InvalidInput("input and output are the same file")
    requests = read_requests(source)
    done = _done(target)
    waiting = [request for request in requests if request.custom_id not in done]
    skipped = len(requests) - len(waiting)
    failed = sum(done[r.custom_id] for r in requests if r.custom_id in done)
    progress(skipped, len(requests))
    if waiting:
        failed += asyncio.run(
            _run(waiting, target, load, parallel, lambda n: progress(skipped + n, len(requests)))
        )
    return BatchReport(len(waiting), skipped, failed)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise InvalidInput(f"'{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"'{path}' is not UTF-8 text: {error}") from error


def _checked(document: Any, where: str) -> BatchRequest:
    if not isinstance(document, dict):
        raise InvalidInput(f"{where} is a {type(document).__name__}, expected an object")
    custom_id, url, body = (document.get(name) for name in ("custom_id", "url", "body"))
    if not isinstance(custom_id, str) or not custom_id:
        raise InvalidInput(f"{where}: custom_id is {custom_id!r}, expected a string")
    if document.get("method", "POST") != "POST":
        raise InvalidInput(f"{where}: method is {document['method']!r}, expected POST")
    if url not in URLS:
        raise InvalidInput(f"{where}: url is {url!r}, expected one of {', '.join(URLS)}")
    if not isinstance(body, dict):
        raise InvalidInput(f"{where}: body is a {type(body).__name__}, expected an object")
    if body.get("stream"):
        raise InvalidInput(f"{where}: body.stream is set; a batch has whole answers only")
    return BatchRequest(custom_id, str(url), body)


def _done(target: Path) -> dict[str, bool]:
    """custom_id -> whether it failed. A last line that was cut off is removed from the file."""
    if not target.exists():
        return {}
    whole = target.read_bytes()
    end = whole.rfind(b"\n") + 1
    if end < len(whole):
        with target.open("r+b") as file:
            file.truncate(end)
    done = {}
    for number, line in _lines(target):
        try:
            document = json.loads(line)
            done[str(document["custom_id"])] = document["response"]["status_code"] != 200
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"{target.name}, line {number} is no batch answer; name another output file"
            ) from error
    return done


async def _run(
    waiting: list[BatchRequest],
    target: Path,
    load: Callable[[], Engine],
    parallel: int,
    progress: Callable[[int], None],
) -> int:
    """How many failed."""
    answered = failed = 0
    queue = iter(waiting)
    with target.open("a", encoding="utf-8") as file:
        async with _application(load, parallel) as client:

            async def work() -> None:
                nonlocal answered, failed
                for request in queue:  # shared: each takes the next
                    line, is_failure = await _answer(client, request)
                    file.write(line + "\n")
                    file.flush()
                    answered += 1
                    failed += is_failure
                    progress(answered)

            workers = [asyncio.ensure_future(work()) for _ in range(min(parallel, len(waiting)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
    return failed


@asynccontextmanager
async def _application(
    load: Callable[[], Engine], parallel: int
) -> AsyncIterator[httpx2.AsyncClient]:
    from lily.server.app import create_app
    from lily.server.settings import Settings

    failures: list[BaseException] = []
    settings = Settings(parallel=parallel, queue=parallel, max_body_bytes=1 << 30)
    app = create_app(load, settings, clock=time.time, on_failure=failures.append)
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=None
        ) as client:
            while (await client.get("/health")).status_code != 200:
                if failures:
                    raise failures[0]
                await asyncio.sleep(0.05)
            yield client


async def _answer(client: httpx2.AsyncClient, request: BatchRequest) -> tuple[str, bool]:
    response = await client.post(request.url, json=request.body)
    try:
        body = response.json()
    except ValueError as error:
        raise LilyError(f"the server answered '{request.custom_id}' with no JSON") from error
    document = {
        "id": f"batch_req_{uuid.uuid4().hex}",
        "custom_id": request.custom_id,
        "response": {
            "status_code": response.status_code,
            "request_id": response.headers.get("x-request-id", ""),
            "body": body,
        },
        "error": None,
    }
    return json.dumps(document, ensure_ascii=False), response.status_code != 200
