"""A server in a thread whose engine does what the test says, token by token.

This file owns the scripted engine: it has the public face of ``lily.Engine`` as far as the server
sees it, and no model.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from lily.cancel import CancelToken
from lily.completion import Chunk, Completion, Timings, Usage
from lily.errors import InvalidInput
from lily.server.run import make_server
from lily.server.settings import Settings

from .http import Peer
from .processes import wait_until


class Flag:
    """What a CancelToken sets."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()


class Call:
    """One call of ``stream``, as the test sees and steers it."""

    def __init__(self, prompt: Any, options: dict[str, Any]) -> None:
        self.prompt = prompt
        self.options = options
        self.items: queue.Queue[Chunk | Exception | tuple[int, int] | None] = queue.Queue()
        self.ended = threading.Event()
        self.produced = 0

    def say(self, *texts: str) -> None:
        """Let it give these pieces."""
        for text in texts:
            self.items.put(Chunk(text, token_ids=(1,)))

    def progress(self, done: int, total: int) -> None:
        """Let it tell how far the prompt is."""
        self.items.put((done, total))

    def fail(self, error: Exception) -> None:
        """Let it raise."""
        self.items.put(error)

    def end(self) -> None:
        """Let it finish."""
        self.items.put(None)


class ScriptedEngine:
    """Its answers come from ``script``, called in the answer's thread with each Call."""

    name = "scripted"
    max_context = 100
    text_vocab_size = 50
    device_description = "no device"

    def __init__(self, script: Callable[[Call], None] = lambda call: None) -> None:
        self.calls: list[Call] = []
        self.closed = False
        self._script = script

    def stream(self, prompt: Any, **options: Any) -> Generator[Chunk, None, None]:
        if prompt == "refuse me":
            raise InvalidInput("the prompt is not liked")
        call = Call(prompt, options)
        self.calls.append(call)
        return self._run(call, options["cancel"], options["progress"])

    def generate(self, prompt: Any, *, cancel: CancelToken, **options: Any) -> Completion:
        """The whole of a stream, for a hybrid run's worker."""
        *_, last = self.stream(prompt, cancel=cancel, progress=lambda *_: None, **options)
        assert last.completion is not None, "the last chunk carries it"
        return last.completion

    def _run(
        self, call: Call, cancel: CancelToken, progress: Callable[[int, int], None]
    ) -> Generator[Chunk, None, None]:
        flag = Flag()
        cancel.attach(flag)
        reason = "stop"
        text = ""
        try:
            self._script(call)
            while True:
                if flag.event.is_set():
                    reason = "cancelled"
                    break
                try:
                    item = call.items.get(timeout=0.005)
                except queue.Empty:
                    continue
                if item is None:
                    break
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, tuple):
                    progress(*item)
                    continue
                call.produced += 1
                text += item.text
                yield item
            yield Chunk(completion=_completion(text, reason, call.produced))
        finally:
            cancel.detach(flag)
            call.ended.set()

    def call(self, index: int = 0) -> Call:
        """The call of that number, as soon as it was made."""
        wait_until(lambda: len(self.calls) > index, f"call {index} of the engine")
        return self.calls[index]

    def cancel_all(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _completion(text: str, reason: str, tokens: int) -> Completion:
    return Completion(
        text=text,
        reasoning="",
        token_ids=(1,) * tokens,
        finish_reason=reason,  # type: ignore[arg-type]
        stop=None,
        usage=Usage(3, tokens, 0),
        timings=Timings(0.0, 0.0, 0.0, 3, tokens),
        logprobs=None,
        seed=None,
    )


class ScriptedServer(Peer):
    """A server with a scripted engine; ``settings`` are fields of Settings."""

    def __init__(
        self,
        script: Callable[[Call], None] = lambda call: None,
        *,
        load: Callable[[], Any] | None = None,
        wait: bool = True,
        **settings: Any,
    ) -> None:
        self.engines: list[ScriptedEngine] = []
        self.failures: list[BaseException] = []

        def make() -> Any:
            self.engines.append(ScriptedEngine(script))
            return self.engines[-1]

        made = Settings(**{"port": 0, "grace_s": 0, **settings})
        self.server = make_server(load or make, made, self.failures.append)
        sock = self.server.config.bind_socket()
        self.port = sock.getsockname()[1]
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]})
        self._thread.start()
        wait_until(lambda: self.server.started, "listening")
        if wait:
            wait_until(lambda: self.get("/health").status == 200, "healthy")

    @property
    def engine(self) -> ScriptedEngine:
        """The engine in use, or the last one."""
        return self.engines[-1]

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the server did not stop"
