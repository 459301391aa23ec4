"""``lily chat``: a conversation in the terminal.

This file owns the dialogue: reading lines, the slash commands, and that Ctrl-C stops an answer and
not the program. The history itself is in ``lily.conversation``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lily.cli import options

if TYPE_CHECKING:
    from lily.conversation import Conversation

HELP = """\
/help           this list
/reset          forget the conversation (the system message stays)
/system TEXT    set the system message and start anew; without TEXT, remove it
/save FILE      write the conversation as JSON
/exit           leave; so does Ctrl-D
A line that ends in \\ goes on in the next. \"\"\" begins and ends text of many lines.
Ctrl-C stops an answer."""


def chat(
    model: options.Model = None,
    system: options.System = None,
    think: options.Think = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Talk with the model."""
    from lily.cli.terminal import remark

    params = options.given(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
    )
    with options.load_engine(
        model,
        device=device,
        max_context=max_context,
        revision=revision,
        offline=offline,
        threads=threads,
    ) as engine:
        remark(f"{engine!r} · {engine.device_description} · /help lists commands")
        conversation = engine.chat(system, enable_thinking=think, **params)
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):  # not every Python is built with it
                import readline  # noqa: F401  (gives input() line editing and history)
            Dialogue(conversation, system).run()
            print()
        else:  # a script talks; prompts would only stand between the answers
            Dialogue(conversation, system, read_line=lambda prompt: input()).run()


class Dialogue:
    """Reads from ``read_line(prompt)`` until it raises EOFError or the user says /exit."""

    def __init__(
        self,
        conversation: Conversation,
        system: str | None = None,
        read_line: Callable[[str], str] = input,
    ) -> None:
        self._conversation = conversation
        self._system = system
        self._read_line = read_line

    def run(self) -> None:
        """Go on until the end of input."""
        going_on = True
        while going_on:
            try:
                text = self._read_message()
            except KeyboardInterrupt:
                print()  # the line being typed is dropped, as in a shell
                continue
            except EOFError:
                return
            going_on = self._handle(text)

    def _handle(self, text: str) -> bool:
        """Act on one message; False ends the dialogue."""
        from lily.errors import LilyError

        if text.strip() == "/exit":
            return False
        try:
            if text.startswith("/"):
                self._command(text.strip())
            elif text.strip():
                self._answer(text)
        except (LilyError, OSError) as error:  # a bad turn must not cost the conversation
            print(f"lily: {error}", file=sys.stderr)
        return True

    def _read_message(self) -> str:
        line = self._read_line("> ")
        if line.startswith('"""'):
            return self._read_block(line[3:])
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._read_line(". "))
        return "\n".join(lines)

    def _read_block(self, line: str) -> str:
        lines = []
        while not line.rstrip().endswith('"""'):
            lines.append(line)
            line = self._read_line(". ")
        return "\n".join([*lines, line.rstrip()[:-3]]).strip("\n")

    def _answer(self, text: str) -> None:
        from lily.cli.terminal import AnswerPrinter

        printer = AnswerPrinter()
        remark = ""
        chunks = self._conversation.stream(text)
        try:
            for chunk in chunks:
                printer.show(chunk)
                remark = chunk.completion.speed if chunk.completion else ""
        except KeyboardInterrupt:
            remark = "stopped"
        finally:
            chunks.close()
            printer.end(remark)

    def _command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        argument = argument.strip()
        if name == "/help":
            print(HELP)
        elif name == "/reset":
            self._conversation.reset(self._system)
        elif name == "/system":
            self._system = argument or None
            self._conversation.reset(self._system)
        elif name == "/save" and argument:
            saved = json.dumps(self._conversation.messages, ensure_ascii=False, indent=2)
            Path(argument).expanduser().write_text(saved + "\n", "utf-8")
            print(f"saved {len(self._conversation.messages)} messages to {argument}")
        else:
            usage = "/save needs a file name" if name == "/save" else f"no command {name}"
            print(f"{usage}; /help lists them", file=sys.stderr)
