"""From documents to training rows: tokenizer, rendering, packing, shards.

Owns the byte-level BPE tokenizer, the rendering through `template.jinja` and the packing of whole
documents into rows of T + 2 tokens. Knows nothing about the model.

    python data.py tokenizer --natural DIR --out DIR      # once: tokenizer.json
    python data.py held-out --natural DIR --out DIR       # val_*.npy, with that tokenizer
    python data.py shards --natural DIR --out DIR --count N --procs P
    python data.py overlap --count N                      # fails if a held-out prompt is generated
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
from collections.abc import Iterable, Iterator
from multiprocessing import Process
from pathlib import Path

import jinja2
import jinja2.sandbox
import numpy as np
from config import SPECIAL_TOKENS, VISIBLE_TOKENS
from generate import held_out, mix
from generate.base import Doc
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

HERE = Path(__file__).parent
SOURCES = ("web_bible", "austen", "moby_dick")
ROW = 1024  # tokens of context a row trains
NATURAL_SHARE = 0.009  # of documents: some 4.5 passes over the natural text in a run
VAL_EVERY = 40  # each 40th natural document is held out
RUN = 12  # words in a row that two natural texts may not share by chance
SHARD_ROWS = 1024
VOCAB = 6144
# Qwen3.5's pre-tokenizer: digits one by one, letters with their marks.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def template() -> jinja2.Template:
    """The chat template, in the environment that transformers gives it."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    env.globals["raise_exception"] = refuse
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string((HERE / "template.jinja").read_text(encoding="utf-8"))


def render(doc: Doc, chat: jinja2.Template) -> str:
    if doc.text is not None:
        return doc.text
    return chat.render(messages=doc.messages, tools=doc.tools).rstrip("\n")


def runs_of_words(text: str, step: int = 1) -> Iterator[str]:
    words = text.split()
    return (" ".join(words[i : i + RUN]) for i in range(0, len(words) - RUN + 1, step))


def natural_documents(folder: Path) -> tuple[list[str], list[str]]:
    """(training, held-out) documents of the natural sources.

    Held out is each 40th document, and whatever shares a run of words with `held_out/`: those texts
    were cut in other places, and a document may hold a part of one.
    """
    rows = (HERE / "held_out" / "natural.jsonl").read_text(encoding="utf-8").splitlines()
    known = {run for row in rows for run in runs_of_words(json.loads(row)["text"], RUN // 2)}
    train: list[str] = []
    held: list[str] = []
    for name in SOURCES:
        with lzma.open(folder / f"{name}.jsonl.xz", "rt", encoding="utf-8") as documents:
            for i, row in enumerate(documents):
                text = json.loads(row)["t"]
                out = i % VAL_EVERY == 7 or not known.isdisjoint(runs_of_words(text))
                (held if out else train).append(text)
    return train, held


def synthetic(seed: int, count: int) -> list[str]:
    rng, chat = random.Random(seed), template()
    return [render(mix.document(rng), chat) for _ in range(count)]


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre.Sequence(
        [pre.Split(Regex(PATTERN), "isolated"), pre.ByteLevel(add_prefix_space=False,
                                                              use_regex=False)]
    )  # fmt: skip
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL_TOKENS), initial_alphabet=pre.ByteLevel.alphabet(),
        special_tokens=[], show_progress=False,
    )  # fmt: skip
    tok.train_from_iterator(texts, trainer)
    tok.add_tokens([AddedToken(s, special=s not in VISIBLE_TOKENS, normalized=False)
                    for s in SPECIAL_TOKENS])  # fmt: skip
    return tok


def without_special(text: str) -> str:
    for token in SPECIAL_TOKENS:
        text = text.replace(token, "\n")
    return text


def pack(documents: Iterable[list[int]], row: int) -> Iterator[list[int]]:
    """Rows of `row` tokens that begin at a document's start.

    A document that does not fit is cut at the row's end and begins the next row again, whole: no
    text is learned without its beginning.
    """
    current: list[int] = []
    for ids in documents:
        current += ids
        if len(current) >= row:
            yield current[:row]
            cut = len(current) > row and len(ids) < row
            current = list(ids) if cut else []


def encode(tok: Tokenizer, texts: list[str]) -> list[list[int]]:
    end = tok.token_to_id("<|endoftext|>")
    return [[*e.ids, end] for e in tok.encode_batch(texts, add_special_tokens=False)]


def write_rows(path: Path, rows: list[list[int]]) -> None:
    """Atomic: the trainer may be looking at the folder."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as f:
        np.save(f, np.array(rows, dtype=np.uint16))
    temporary.rename(path)


def shard_texts(rng: random.Random, natural: list[str], cursor: int, count: int) -> list[str]:
    """Synthetic documents with natural ones strewn in; `cursor` walks through the latter."""
    chat, out = template(), []
    for _ in range(count):
        if rng.random() < NATURAL_SHARE:
            out.append(natural[cursor % len(natural)])
            cursor += 1
        else:
            out.append(render(mix.document(rng), chat))
    return out


def worker(index: int, procs: int, args: argparse.Namespace) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tok = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    natural, _ = natural_documents(args.natural)
    random.Random(1).shuffle(natural)
    natural = natural[index::procs]
    rng, cursor = random.Random(1000 + index), 0
    rows: list[list[int]] = []
    for number in range(index, args.count, procs):
        while len(rows) < SHARD_ROWS:
            texts = shard_texts(rng, natural, cursor, 2000)
            cursor += int(2000 * NATURAL_SHARE)
            rows += pack(encode(tok, texts), ROW + 2)
        write_rows(args.out / f"rows_{number:05d}.npy", rows[:SHARD_ROWS])
        rows = rows[SHARD_ROWS:]


def make_tokenizer(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    natural, _ = natural_documents(args.natural)
    fresh = synthetic(5, 40_000)
    tok = train_tokenizer(without_special(t) for t in [*fresh, *natural])
    tok.save(str(args.out / "tokenizer.json"))


def make_held_out(args: argparse.Namespace) -> None:
    """Rows of natural documents that are never trained on, and synthetic ones of another seed."""
    tok = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    _, held = natural_documents(args.natural)
    for name, texts in (("natural", held), ("synthetic", synthetic(777, 3000))):
        ids = encode(tok, texts)
        rows = list(pack(ids, ROW + 2))
        write_rows(args.out / f"val_{name}.npy", rows)
        chars = sum(map(len, texts)) / sum(map(len, ids))
        print(f"{name}: {len(rows)} rows, {chars:.2f} characters a token")


def make_shards(args: argparse.Namespace) -> None:
    jobs = [Process(target=worker, args=(i, args.procs, args)) for i in range(args.procs)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    (args.out / "done").touch()


def check_overlap(args: argparse.Namespace) -> None:
    """Fails if a user text of `count` documents is one of the fixed prompts, the fresh ones too."""
    rng = random.Random(31)
    both = held_out.prompts(), held_out.prompts(HERE / "fresh.json")
    alone, paired = both[0][0] | both[1][0], both[0][1] | both[1][1]
    for _ in range(args.count):
        said = mix.document(rng).messages
        rules = {"", *(held_out.plain(m["content"]) for m in said if m["role"] == "system")}
        for text in (held_out.plain(m["content"]) for m in said if m["role"] == "user"):
            if text in alone or any((rule, text) in paired for rule in rules):
                raise SystemExit(f"a held-out prompt was generated: {text!r}")
    print(f"{args.count} documents, no held-out prompt among them")


ACTIONS = {"tokenizer": make_tokenizer, "held-out": make_held_out, "shards": make_shards,
           "overlap": check_overlap}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*ACTIONS])
    parser.add_argument("--natural", type=Path, default=Path("carry"))
    parser.add_argument("--out", type=Path, default=Path("carry"))
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--procs", type=int, default=14)
    args = parser.parse_args()
    ACTIONS[args.what](args)


if __name__ == "__main__":
    main()
