"""Tokenizer and Detokenizer: equal to Hugging Face's, safe for UTF-8, deaf to special strings."""

from __future__ import annotations

import json
import shutil
import unicodedata

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from lily.errors import InvalidInput, ModelError
from lily.tokenizer import Detokenizer, Tokenizer, end_ids

TEXTS = [
    "Hello, world!",
    "naïve café — ½ ¾ ﬁ",
    "e\u0301 decomposed",
    "日本語 中文 한국어 العربية עברית हिन्दी",
    "🎉👨‍👩‍👧‍👦🇨🇭 emoji",
    "def f(x):\n\treturn x  **2\r\n\r\n  # tail   ",
    "   leading\n\n\n and 1234567890",
    "\x00\x01\x7f\x80\xff",
    "",
]
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def spellings(tokenizer: Tokenizer):
    """Text with control tokens and their halves in it."""
    controls = sorted(tokenizer.control_ids)
    halves = [c[:n] for c in controls[:8] for n in (1, len(c) - 1)]
    halves += [c[n:] for c in controls[:8] for n in (1, len(c) - 1)]
    return st.lists(st.one_of(st.sampled_from(controls + halves), anything), max_size=6).map(
        "".join
    )


@pytest.fixture(scope="module")
def real_oracle(real_folder):
    # The class by name: without a config.json, AutoTokenizer takes Qwen2's, which splits otherwise.
    return transformers.Qwen3_5Tokenizer.from_pretrained(real_folder)


@pytest.mark.parametrize("text", TEXTS)
def test_real_encode_and_decode_are_those_of_transformers(real_tokenizer, real_oracle, text):
    ids = real_tokenizer.encode(text)
    assert ids == real_oracle.encode(text, add_special_tokens=False)
    assert real_tokenizer.decode(ids) == real_oracle.decode(ids)


@settings(max_examples=150)
@given(st.data())
def test_real_encode_with_special_is_that_of_transformers(real_tokenizer, real_oracle, data):
    text = data.draw(spellings(real_tokenizer))
    ids = real_tokenizer.encode(text, special=True)
    assert ids == real_oracle.encode(text, add_special_tokens=False)
    for skip in (True, False):
        assert real_tokenizer.decode(ids, skip_special=skip) == real_oracle.decode(
            ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
        )


@settings(max_examples=200)
@given(st.data())
def test_text_never_becomes_a_control_token(tokenizer, data):
    text = data.draw(spellings(tokenizer))
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.control_ids.values())
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


def test_special_encoding_does_find_control_tokens(tokenizer):
    ids = tokenizer.encode("a<|im_end|>b", special=True)
    assert tokenizer.control_ids["<|im_end|>"] in ids
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == "a<|im_end|>b"


def test_think_is_kept_in_text_though_it_is_a_control_token(tokenizer):
    ids = tokenizer.encode("<think>x", special=True)
    assert ids[0] == tokenizer.control_ids["<think>"]
    assert tokenizer.decode(ids) == "<think>x"


@pytest.fixture(scope="module")
def byte_ids(tokenizer):
    """For each byte, the token that stands for it alone."""
    ids = {}
    for token_id in range(tokenizer.size):
        spelled = tokenizer.token_bytes(token_id)
        if len(spelled) == 1:
            ids.setdefault(spelled[0], token_id)
    assert len(ids) == 256
    return ids


@settings(max_examples=300)
@given(data=st.one_of(st.binary(max_size=24), anything.map(str.encode)))
def test_streamed_bytes_equal_the_whole_decode(tokenizer, byte_ids, data):
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(byte_ids[byte]) for byte in data]
    assert "".join(pieces) + detokenizer.finish() == data.decode("utf-8", "replace")


@settings(max_examples=200)
@given(text=anything)
def test_streamed_text_is_never_broken(tokenizer, byte_ids, text):
    detokenizer = Detokenizer(tokenizer)
    shown = ""
    for byte in text.encode():
        shown += detokenizer.push(byte_ids[byte])
        assert text.startswith(shown)
    assert shown == text
    assert detokenizer.finish() == ""


def test_incomplete_character_is_replaced_only_at_the_end(tokenizer, byte_ids):
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(byte_ids[b]) for b in b"\xe2\x82"] == ["", ""]
    assert detokenizer.finish() == "\ufffd"


def test_surrogates_are_refused(tokenizer):
    with pytest.raises(InvalidInput, match="UTF-8"):
        tokenizer.encode("\ud800")


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_decode_refuses_ids_outside_the_vocabulary(tokenizer, token_id):
    with pytest.raises(InvalidInput, match=str(token_id)):
        tokenizer.decode([token_id])


def test_rows_above_the_vocabulary_are_silent(tiny_folder, tokenizer):
    padded = Tokenizer(tiny_folder, tokenizer.size + 10)
    assert padded.decode([tokenizer.size + 3]) == ""


def test_tokenizer_of_another_model_is_refused(tiny_folder, tokenizer):
    with pytest.raises(ModelError, match=f"{tokenizer.size:,}.*{tokenizer.size - 1:,}"):
        Tokenizer(tiny_folder, tokenizer.size - 1)


def test_missing_and_damaged_files(tmp_path, tiny_folder):
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer(tmp_path)


def test_swallowing_added_token_is_refused(tmp_path, tiny_folder):
    whole = json.loads((tiny_folder / "tokenizer.json").read_text())
    whole["added_tokens"][0]["lstrip"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ModelError, match="swallows"):
        Tokenizer(tmp_path)


def test_end_ids_are_the_union(tmp_path, tiny_folder, tokenizer):
    end, pad = tokenizer.control_ids["<|im_end|>"], tokenizer.control_ids["<|endoftext|>"]
    assert end_ids(tiny_folder, tokenizer) >= {end}
    for file in tiny_folder.glob("*.json"):
        if file.name != "model.safetensors.index.json":
            shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    (tmp_path / "config.json").write_text('{"text_config": {"eos_token_id": [7]}}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
    assert end_ids(tmp_path, tokenizer) == {5, 7, pad}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 999999}')
    with pytest.raises(ModelError, match="999999"):
        end_ids(tmp_path, tokenizer)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(ModelError, match="list"):
        end_ids(tmp_path, tokenizer)
