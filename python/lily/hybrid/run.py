"""A hybrid run: who does what, in which order, and what happens when a part of it fails.

This file owns the roles: the planner (elsewhere), the worker and the tools (here). It decides only
between them; what may leave is decided by ``release``. Failures never widen what is sent: the
worker finishes alone, or the run ends with an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lily.cancel import CancelToken
from lily.errors import Cancelled, InvalidInput
from lily.gate import Gate
from lily.hybrid.errors import HybridError, Kept, PlannerError
from lily.hybrid.leaks import LeakGuard
from lily.hybrid.links import LinkFilter
from lily.hybrid.material import Materials
from lily.hybrid.outbound import Message, Outbound, Reply
from lily.hybrid.receipt import HERE, Receipt
from lily.hybrid.release import Consent, Release, Released, constant, echo
from lily.hybrid.settings import HybridSettings
from lily.hybrid.tools import DECLARED, MOST_CALLS, SYSTEM, TOO_MANY, Tools
from lily.hybrid.worker import Model, Worker

BROKEN_OFF = "\n\n[The planner's part ends here. What follows is this machine's own answer.]\n\n"


@dataclass(frozen=True)
class HybridAnswer:
    """What the user gets.

    Attributes:
        text: with private values put back in; it was never sent anywhere. A stream may have shown
            more: what the planner said between its calls, and what it did not finish.
        receipt: what was done where, and what left.
        where: "planner", or "this machine" where the worker answered alone.
    """

    text: str
    receipt: Receipt
    where: str


class Hybrid:
    """A worker on this machine and, where the settings name one, a planner elsewhere.

    Make one with ``Hybrid.open``; or give a loaded ``Engine`` and a ``Gate`` (tests give others).

    Args:
        consent: asked where the gate says "ask"; None counts as no.
    """

    def __init__(
        self,
        settings: HybridSettings,
        model: Model,
        make_gate: Callable[[], Gate],
        *,
        consent: Consent | None = None,
        make_outbound: Callable[..., Outbound] = Outbound,
    ) -> None:
        self._settings, self._model, self._make_gate = settings, model, make_gate
        self._consent, self._make_outbound = consent, make_outbound
        self._closing = contextlib.ExitStack()

    @classmethod
    def open(
        cls, settings: HybridSettings | None = None, *, consent: Consent | None = None
    ) -> Hybrid:
        """Load the worker's model and the gate. Raises as ``Engine.load`` and ``Gate`` do."""
        from lily.engine import Engine
        from lily.gate import Settings
        from lily.gate.detectors import BuiltIn

        settings = settings or HybridSettings.load()
        gate_settings = Settings.load(settings.gate) if settings.gate else Settings()
        detectors = BuiltIn(gate_settings.country)  # loaded once for all runs
        engine = Engine.load(settings.worker.model or None)
        hybrid = cls(
            settings, engine, lambda: Gate(gate_settings, detectors=detectors), consent=consent
        )
        hybrid._closing.callback(engine.close)
        return hybrid

    def __enter__(self) -> Hybrid:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the model go, if it was loaded here."""
        self._closing.close()

    def ask(self, task: str, **options: Any) -> HybridAnswer:
        """Do a task. Takes what ``stream`` takes, and raises what it raises."""
        found: list[HybridAnswer] = []

        def run() -> Iterator[str]:
            found.append((yield from self.stream(task, **options)))

        for _ in run():
            pass
        return found[0]

    def stream(
        self,
        task: str,
        *,
        files: Iterable[str | Path] = (),
        texts: Iterable[str] = (),
        sensitive: bool = False,
        cancel: CancelToken | None = None,
        receipt: Receipt | None = None,
    ) -> Generator[str, None, HybridAnswer]:
        """Yields the answer's text as it forms; returns the HybridAnswer (``yield from``).

        Args:
            files: files and folders whose text is private material.
            texts: private texts themselves.
            sensitive: nothing leaves, whatever the settings say; what the worker cannot do fails.

            cancel: stops the run from any thread: the worker within a step, a planner that says
                nothing within its time-out.
            receipt: filled as the run goes on, so that it is there when the run fails; a new one
                without.

        Raises InvalidInput, HybridError, PlannerError, Refused or Cancelled.
        """
        if not task.strip():
            raise InvalidInput("the task is empty")
        run = _Run(
            self._settings,
            self._model,
            self._make_gate(),
            self._consent,
            cancel or CancelToken(),
            Receipt() if receipt is None else receipt,
        )
        for path in files:
            run.materials.add_path(Path(path), self._settings.worker.max_material_bytes)
        for text in texts:
            run.materials.add_text(text, "a text of yours")
        return run.stream(task, sensitive, self._make_outbound)


class _Run:
    def __init__(
        self,
        settings: HybridSettings,
        model: Model,
        gate: Gate,
        consent: Consent | None,
        cancel: CancelToken,
        receipt: Receipt,
    ) -> None:
        self._settings, self._gate, self._cancel = settings, gate, cancel
        self._has_shown = False
        self._destination = settings.planner.destination
        self.materials = Materials()
        self._receipt = receipt
        self._worker = Worker(model, settings.worker.max_tokens, cancel)
        self._release = Release(
            gate,
            LeakGuard(),
            self._receipt,
            destination=self._destination,
            limits=settings.release,
            consent=consent,
        )
        self._tools = Tools(
            self._worker, self.materials, self._release, self._receipt, self._unmask
        )

    def stream(
        self, task: str, sensitive: bool, make_outbound: Callable[..., Outbound]
    ) -> Generator[str, None, HybridAnswer]:
        if sensitive or not self._settings.planner.is_set:
            why = "pinned to this machine" if sensitive else "no planner is configured"
            return (yield from self._here(task, why))
        self._receipt.planner = self._settings.planner.base_url
        outbound = make_outbound(
            self._settings.planner, self._receipt, self._release.body, self._cancel
        )
        try:
            return (yield from self._planned(task, outbound))
        except Kept as kept:
            return (yield from self._here(task, kept.reasons[0]))
        except PlannerError as error:
            if not self._settings.local_fallback:
                raise
            return (yield from self._here(task, str(error)))
        finally:
            outbound.close()

    def _planned(self, task: str, outbound: Outbound) -> Generator[str, None, HybridAnswer]:
        for piece in self.materials:
            self._release.learn(piece.text)
        messages = self._opening(self._release.task(task))
        while True:
            reply = yield from self._reply(outbound, messages)
            if not reply.calls:
                break
            if reply.text:
                yield "\n\n"
            messages = [*messages, *self._carry_out(reply)]
        self._receipt.step("plans and answers", "planner", "answered")
        text = self.materials.expand(self._unmask(LinkFilter().feed(reply.text)))
        return HybridAnswer(text, self._receipt, "planner")

    def _unmask(self, text: str) -> str:
        return self._gate.unmask(text, self._destination)

    def _opening(self, task: Released) -> list[Message]:
        listed = "\n".join(piece.public for piece in self.materials) or "none"
        # Kinds, handles and rounded sizes: words of our own about the material.
        system = constant(f"{SYSTEM}\n\nMaterial:\n{listed}")
        for own in (system, constant(str(DECLARED))):
            self._release.permit(own)
        return [Message("system", system), Message("user", task)]

    def _reply(self, outbound: Outbound, messages: list[Message]) -> Generator[str, None, Reply]:
        """Yields what can be shown already; returns the Reply."""
        restore = self._gate.unmasker(self._destination)
        handles, links = _Handles(self.materials), LinkFilter()
        for piece in outbound.ask(messages, DECLARED):
            if isinstance(piece, Reply):
                break
            if shown := handles.feed(restore.feed(links.feed(piece))):
                self._has_shown = True
                yield shown
        yield handles.feed(restore.end()) + handles.finish()
        assert isinstance(piece, Reply), "the last piece is the whole"
        return piece

    def _carry_out(self, reply: Reply) -> list[Message]:
        self._receipt.step("plans", "planner", f"calls {len(reply.calls)} of the tools")
        calls = tuple(
            replace(call, id=call.id or f"call_{index}") for index, call in enumerate(reply.calls)
        )
        said = Message("assistant", echo(reply.text), calls)
        results = [
            Message(
                "tool",
                self._tools.run(call) if index < MOST_CALLS else TOO_MANY,
                call_id=call.id,
            )
            for index, call in enumerate(calls)
        ]
        return [said, *results]

    def _here(self, task: str, why: str) -> Generator[str, None, HybridAnswer]:
        try:
            text = self._worker.answer(task, list(self.materials))
        except Cancelled:
            raise
        except Exception as error:
            raise HybridError(f"the worker on this machine could not do this: {error}") from error
        self._receipt.step("does the whole task", HERE, why)
        if self._has_shown:
            yield BROKEN_OFF
        yield text
        return HybridAnswer(text, self._receipt, HERE)


class _Handles:
    """Replaces ``{{r1}}`` in a stream, holding back what may still become one."""

    _LONGEST = 12  # of a handle with its brackets

    def __init__(self, materials: Materials) -> None:
        self._materials, self._held = materials, ""

    def feed(self, text: str) -> str:
        held = self._held + text
        cut = held.rfind("{", max(0, len(held) - self._LONGEST))
        while cut > 0 and held[cut - 1] == "{":
            cut -= 1
        if cut < 0 or "}}" in held[cut:]:
            cut = len(held)
        self._held = held[cut:]
        return self._materials.expand(held[:cut])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return self._materials.expand(held)
