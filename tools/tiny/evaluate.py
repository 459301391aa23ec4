"""Measures a checkpoint folder with Lily itself: held-out perplexity and 40 fixed prompts.

Owns the report's form. The prompts are `prompts.json` or `fresh.json`, which the generators do not
make; the held-out texts are `held_out/*.jsonl`, of which nothing was trained on.

    python evaluate.py MODEL_DIR --table answers.md     # no MODEL_DIR: the model in the package
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lily import Engine

HERE = Path(__file__).parent


def texts(path: Path) -> Iterator[str]:
    for row in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(row)["text"]


def perplexity(engine: Engine, path: Path) -> tuple[int, float, float]:
    """(positions, mean loss in nats, share of positions whose argmax is the next token)."""
    count, total, right = 0, 0.0, 0
    for text in texts(path):
        ids = engine.tokenize(text, special=True)[: engine.max_context]
        score = engine.score(ids)
        count += len(score.logprobs)
        total -= sum(score.logprobs)
        right += sum(a == b for a, b in zip(score.argmax, score.token_ids[1:], strict=True))
    return count, total / count, right / count


def answer(engine: Engine, prompt: dict[str, Any]) -> str:
    """The greedy answer, with the reason it stopped when that was not the end of the turn."""
    done = engine.generate(
        prompt["messages"], tools=prompt.get("tools"), temperature=0.0, max_tokens=300,
        enable_thinking=prompt["enable_thinking"],
    )  # fmt: skip
    text = done.text
    if done.tool_calls or done.cut:  # the table shows what was written, not what was read from it
        text = engine.detokenize(done.token_ids).rpartition("</think>")[2]
    if done.reasoning:
        text = f"<think>{done.reasoning.strip()}</think> {text}"
    ended = done.finish_reason in ("stop", "tool_calls")
    return text.strip() + ("" if ended else f" [{done.finish_reason}]")


def question(prompt: dict[str, Any]) -> str:
    """The conversation in one cell of a table."""
    parts = []
    for message in prompt["messages"]:
        said = message["content"] or message["tool_calls"][0]["function"]["name"] + "(…)"
        parts.append(said if message["role"] == "user" else f"*{message['role']}:* {said}")
    return " / ".join(parts)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--prompts", type=Path, default=HERE / "prompts.json")
    parser.add_argument("--table", type=Path, help="write the table of answers here")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    engine = Engine.load(args.model, device=args.device)
    prompts = json.loads(args.prompts.read_text(encoding="utf-8"))
    table = f" --table tools/tiny/{args.table.name}" if args.table else ""
    lines = [f"# Greedy answers of lily-tiny to {len(prompts)} fixed prompts", "",
             f"Made by `python tools/tiny/evaluate.py --prompts tools/tiny/{args.prompts.name}"
             f"{table}`. The prompts are not among those that the generators make. "
             "Unedited, right and wrong.", ""]  # fmt: skip
    for path in sorted((HERE / "held_out").glob("*.jsonl")):
        count, loss, right = perplexity(engine, path)
        row = (f"Held-out {path.stem}: {count:,} positions, {loss:.4f} nats a token, perplexity "
               f"{math.exp(loss):.3f}, next token right {right:.1%}.")  # fmt: skip
        print(row, flush=True)
        lines += [row, ""]
    lines += ["| # | topic | prompt | answer |", "|---|---|---|---|"]
    for prompt in prompts:
        said = answer(engine, prompt)
        print(f"{prompt['id']:2} {question(prompt)}\n   {said}", flush=True)
        lines.append(f"| {prompt['id']} | {prompt['topic']} | {cell(question(prompt))} | "
                     f"{cell(said)} |")  # fmt: skip
    if args.table:
        args.table.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
