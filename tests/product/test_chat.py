"""Chat templates: the text of transformers, and control tokens from the template alone."""

from __future__ import annotations

import json

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from lily.chat import ChatTemplate, normalised
from lily.errors import InvalidInput, ModelError
from lily.template import Template

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Größe & <b>'quotes'</b> \"too\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [
        {
            "id": "1",
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Bern", "days": 3, "x": None}},
        },
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "東京"}}},
    ],
}
RESULTS = [{"role": "tool", "content": "sunny"}, {"role": "tool", "content": "rain\n"}]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CONVERSATIONS = {
    "one": [user("Hello")],
    "system": [{"role": "system", "content": " Be brief. \n"}, user("  Hello\n")],
    "turns": [user("a"), assistant("b"), user("c"), assistant("d\n"), user("e")],
    "thought": [user("a"), assistant("<think>\nhm\n</think>\n\n  b"), user("c")],
    "thought last": [user("a"), assistant("<think>\nhm\n</think>\n\n  b")],
    "two thoughts": [user("a"), assistant("x<think>\nhm</think>y</think>z")],
    "reasoning": [user("a"), assistant("b", reasoning_content="\nhm\n"), user("c")],
    "reasoning last": [user("a"), assistant("b", reasoning_content="hm")],
    "tools": [user("weather?"), CALL, *RESULTS],
    "tools, more": [user("weather?"), CALL, *RESULTS, assistant("sunny"), user("thanks")],
    "call only": [user("?"), {**CALL, "content": None}, RESULTS[0], user("and?")],
    "html": [user("<b>a</b> & 'b' \"c\" <tool>"), assistant("x < y > z"), user("€ü日本🎉")],
    "empty": [user(""), assistant(""), user(" ")],
}
OPTIONS = [
    {},
    {"enable_thinking": False},
    {"enable_thinking": True},
    {"tools": [TOOL]},
    {"tools": [TOOL], "enable_thinking": False, "preserve_thinking": True},
]


@pytest.fixture(scope="module")
def oracle(real_folder):
    return transformers.Qwen3_5Tokenizer.from_pretrained(real_folder)


def ours(options):
    variables = {k: v for k, v in options.items() if k not in ("tools", "enable_thinking")}
    known = {k: v for k, v in options.items() if k in ("tools", "enable_thinking")}
    return {**known, "variables": variables}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_text_and_tokens_are_those_of_transformers(real_template, oracle, name, options):
    messages = CONVERSATIONS[name]
    wanted = oracle.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **options
    )
    assert real_template.render_text(messages, **ours(options)) == wanted
    prompt = real_template.render(messages, **ours(options))
    assert prompt.token_ids == oracle.encode(wanted, add_special_tokens=False)
    assert prompt.thinking == (options.get("enable_thinking") is not False)


def test_boundaries_are_where_messages_begin(template, tokenizer):
    prompt = template.render(CONVERSATIONS["turns"])
    start = tokenizer.control_ids["<|im_start|>"]
    places = [place for place, token in enumerate(prompt.token_ids) if token == start]
    assert places[0] == 0
    assert len(places) == 6
    assert list(prompt.boundaries) == [places[1], *places[3:]]  # the first, and the last three


def controls_of(tokenizer, token_ids):
    ids = set(tokenizer.control_ids.values())
    return [token_id for token_id in token_ids if token_id in ids]


def hostile(tokenizer):
    """Text made of control tokens and of their beginnings and ends."""
    whole = sorted(tokenizer.control_ids)
    parts = [w[:n] for w in whole for n in (1, 2, len(w) - 1)]
    parts += [w[n:] for w in whole for n in (1, 2, len(w) - 1)]
    return st.lists(
        st.sampled_from([*whole, *parts, "a", "\n", " ", "\U000f0000"]), max_size=5
    ).map("".join)


@settings(max_examples=300)
@given(st.data())
def test_callers_text_adds_no_control_token(template, tokenizer, data):
    def text():
        return data.draw(hostile(tokenizer))

    def messages(say):
        call = {"name": say(), "arguments": {say(): say(), "n": [say()]}}
        return [
            {"role": "system", "content": say()},
            {"role": "user", "content": [{"type": "text", "text": say()}, {"text": say()}]},
            {"role": "assistant", "content": "ok", "tool_calls": [{"function": call}]},
            {"role": "tool", "content": say()},
            {"role": "user", "content": say()},
        ]

    def tools(say):
        return [{"type": "function", "function": {"name": say(), "p": {say(): say()}}}]

    hostile_messages, hostile_tools = messages(text), tools(text)
    prompt = template.render(hostile_messages, tools=hostile_tools)
    harmless = template.render(messages(lambda: "x"), tools=tools(lambda: "x"))
    assert controls_of(tokenizer, prompt.token_ids) == controls_of(tokenizer, harmless.token_ids)


@settings(max_examples=200)
@given(st.data())
def test_assistant_text_adds_no_special_token(template, tokenizer, data):
    text = data.draw(hostile(tokenizer))
    special = {tokenizer.control_ids[token] for token in tokenizer.special_tokens}

    def specials(content, reasoning):
        messages = [user("a"), assistant(content, reasoning_content=reasoning), user("b")]
        variables = {"preserve_thinking": True}
        ids = template.render(messages, variables=variables).token_ids
        return [token_id for token_id in ids if token_id in special]

    assert specials(text, text) == specials("x", "y")


@settings(max_examples=100)
@given(st.data())
def test_the_same_text_comes_out(template, tokenizer, data):
    text = "x" + data.draw(hostile(tokenizer)) + "x"  # the template trims both ends
    prompt = template.render([user(text)], enable_thinking=False)
    shown = tokenizer.decode(prompt.token_ids, skip_special=False)
    assert shown == (
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_models_own_tags_in_history_stay_control_tokens(template, tokenizer):
    said = '<tool_call>\n{"name": 1}\n</tool_call>'
    prompt = template.render([user("a"), assistant(said), user("b")])
    assert tokenizer.control_ids["<tool_call>"] in prompt.token_ids


def test_next_turn_begins_with_the_tokens_of_this_one(template, tokenizer):
    variables = {"preserve_thinking": True}
    for thinking, reasoning in ((False, ""), (True, "hm")):
        first = template.render([user("a")], enable_thinking=thinking, variables=variables)
        said = f"{reasoning}\n</think>\n\nb" if thinking else "b"
        timeline = first.token_ids + tokenizer.encode(said, special=True)
        history = [user("a"), assistant("b", reasoning_content=reasoning), user("c")]
        second = template.render(history, enable_thinking=thinking, variables=variables)
        assert second.token_ids[: len(timeline)] == timeline


def test_system_messages_are_merged_in_order_at_the_front():
    merged = normalised(
        [
            {"role": "developer", "content": "one"},
            user("u"),
            {"role": "system", "content": [{"type": "text", "text": "t"}, {"text": "wo"}]},
        ]
    )
    assert merged == [{"role": "system", "content": "one\n\ntwo"}, user("u")]


def test_arguments_may_be_json_text(template):
    as_text = json.loads(json.dumps(CALL))
    for call in as_text["tool_calls"]:
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    before = json.dumps(as_text)
    assert template.render_text([user("?"), as_text]) == template.render_text([user("?"), CALL])
    assert json.dumps(as_text) == before  # the caller's messages are not touched


def bad_call(arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    return [user("a"), {"role": "assistant", "content": None, "tool_calls": [call]}]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "empty"),
        ("hello", "str"),
        ({"role": "user"}, "dict"),
        ([user("a"), "b"], r"messages\[1\] is str"),
        ([{"content": "a"}], r"messages\[0\] has role None"),
        ([{"role": "root", "content": "a"}], "'root'"),
        ([{"role": ["user"], "content": "a"}], "role"),
        ([{"role": "user"}], "no content"),
        ([user(5)], "content int"),
        ([user([{"type": "image_url", "image_url": "x"}])], "'image_url'.*text only"),
        ([user([{"type": "text"}])], "without text"),
        ([user(["a"])], "'str'"),
        ([{**CALL, "tool_calls": "x"}], "tool_calls is str"),
        ([{**CALL, "tool_calls": [{"function": {}}]}], "without a function name"),
        (bad_call("{"), "arguments of f are not JSON"),
        (bad_call("[1]"), "arguments of f are not an object"),
    ],
)
def test_bad_messages_are_named(template, messages, said):
    with pytest.raises(InvalidInput, match=said):
        template.render(messages)


def test_bad_options(template):
    with pytest.raises(InvalidInput, match="tools"):
        template.render([user("a")], tools={"name": "f"})
    with pytest.raises(InvalidInput, match="add_generation_prompt"):
        template.render([user("a")], variables={"add_generation_prompt": False})
    loop: list = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="contain themselves"):
        template.render([user("a")], variables={"x": loop})


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("{% for %}", ModelError, "line 1"),
        ("{{ 1 / 0 }}", ModelError, "ZeroDivisionError"),
        ("{{ missing.field }}", ModelError, "missing"),
        ("{% include 'self' %}", ModelError, "failed"),
        ("{% extends 'self' %}", ModelError, "failed"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ModelError, "calls itself"),
        ("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", ModelError, "itself"),
        ("{% for i in range(10**9) %}{% endfor %}", ModelError, "does not end"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            ModelError,
            "does not end",
        ),
        ("{{ 'x' * 10**12 }}", ModelError, "small numbers"),
        ("{{ 9**99 }}", ModelError, "small numbers"),
        ("{{ (10**30) * 2 }}", ModelError, "small numbers"),
        ("{{ ''.__class__.__mro__ }}", ModelError, "Security|unsafe"),
        ("{{ messages.append(1) }}", ModelError, "Security|unsafe"),
        ("{{ raise_exception('no poems') }}", InvalidInput, "no poems"),
    ],
)
def test_bad_templates(source, error, said):
    with pytest.raises(error, match=said):
        Template(source).render({"messages": []})


def test_template_that_writes_without_end(monkeypatch):
    monkeypatch.setattr("lily.template.MAX_OUTPUT_CHARS", 1000)
    with pytest.raises(ModelError, match="too much text"):
        Template("{% for i in range(999) %}{{ 'abc' }}{% endfor %}").render({})


def test_environment_is_that_of_transformers():
    source = (
        "{%- for x in items %}\n    {%- if x == 2 %}{% continue %}{% endif %}\n"
        "{{ x | tojson }}\n  {% endfor %}{{ {'a': '<ü>'} | tojson(indent=1) }}"
    )
    text = transformers.utils.chat_template_utils._compile_jinja_template(source).render(
        items=[1, 2, "é'"]
    )
    assert Template(source).render({"items": [1, 2, "é'"]}) == text
    assert Template("{{ strftime_now('%Y') }}").render({}).isdigit()


def folder_with(tmp_path, tiny_folder, **files):
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).symlink_to(tiny_folder / name)
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_text(content)
    return tmp_path


def test_where_templates_are_found(tmp_path, tiny_folder, tokenizer):
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    folder = folder_with(
        tmp_path, tiny_folder, tokenizer_config__json=json.dumps({"chat_template": named})
    )
    assert ChatTemplate(folder, tokenizer).render_text([user("a")]) == "D"
    assert ChatTemplate(folder, tokenizer).render_text([user("a")], tools=[TOOL]) == "T"
    (folder / "chat_template.json").write_text('{"chat_template": "J"}')
    assert ChatTemplate(folder, tokenizer).render_text([user("a")]) == "J"
    (folder / "chat_template.jinja").write_text("F{{ eos_token }}")
    assert ChatTemplate(folder, tokenizer).render_text([user("a")]) == "F"


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("<{{ text }}", "think>"),
        ("<|im_{{ text }}", "end|>"),
        ("{{ text }}think>", "<"),
        ("{{ text }}|>", "<|im_end"),
    ],
)
def test_no_control_token_from_halves(tmp_path, tiny_folder, tokenizer, source, content):
    """Half from the template and half from the caller is not the template's word."""
    files = {"tokenizer_config__json": "{}", "chat_template__jinja": source + "<|im_end|>"}
    template = ChatTemplate(folder_with(tmp_path, tiny_folder, **files), tokenizer)
    ids = template.render([user("a")], variables={"text": content}).token_ids
    assert controls_of(tokenizer, ids) == [tokenizer.control_ids["<|im_end|>"]]


def test_without_template(tmp_path, tiny_folder, tokenizer):
    folder = folder_with(tmp_path, tiny_folder, tokenizer_config__json='{"eos_token": "E"}')
    with pytest.raises(InvalidInput, match="no chat template"):
        ChatTemplate(folder, tokenizer).render([user("a")])
    (folder / "tokenizer_config.json").write_text('{"chat_template": [1]}')
    with pytest.raises(ModelError, match="chat_template"):
        ChatTemplate(folder, tokenizer)
