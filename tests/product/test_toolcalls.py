"""Tool calls: what is a call and what is text, under any cuts; types; what is cut off."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lily.template import Template
from lily.toolcalls import CallParser
from lily.toolcalls.values import TYPES, fit

from .calls import TOOLS, args, call, cuts, run

# How the template of Qwen3.6 writes an assistant's turn (Apache-2.0, Alibaba Cloud), without what
# stands before it; the template of the model in the package is read from its file.
QWEN = """
{%- for message in messages if message.role == 'assistant' %}
    {{- message.content|trim }}
    {%- set content = message.content|trim %}
    {%- for tool_call in message.tool_calls %}
        {%- if tool_call.function is defined %}
            {%- set tool_call = tool_call.function %}
        {%- endif %}
        {%- if loop.first %}
            {%- if content|trim %}
                {{- '\\n\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- else %}
                {{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- endif %}
        {%- else %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
        {%- endif %}
        {%- for args_name, args_value in tool_call.arguments|items %}
            {{- '<parameter=' + args_name + '>\\n' }}
            {%- set args_value = args_value | string if args_value is string
                                 else args_value | tojson | safe %}
            {{- args_value }}
            {{- '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
{%- endfor %}
"""

# --- what the templates write comes back --------------------------------------------------------

MARKS = ["<", ">", "\n", "</parameter>", "</parameter", "<parameter=x>", "<tool_call>",
         "</tool_call>",
         "</function>", "<function=now>", "{", '"', "\\", "é", "🎉", "\u2028", " ", "a", "5",
         "null", "</parameter1>", "<tool_call>\n<function=edit>\n<parameter=text>\n"]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(MARKS), st.characters(exclude_categories=["Cs"])),
                 max_size=8).map("".join)  # fmt: skip
# A value that holds a whole closing sequence is the same bytes as two values: no parser can tell.
ENDS_A_VALUE = re.compile(
    r"</parameter[^<>\n]*>?\s*(<parameter=[^<>\n]+>|</function>|</tool_call>)|</function>\s*</tool_call>"
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def is_text(value):
    """A string that is not some other JSON, as one must be where other types are allowed too."""
    return fit(value, TYPES) is None


VALUES = {
    "text": texts,
    "path": texts,
    "count": st.integers(),
    "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "replace_all": st.booleans(),
    "nothing": st.none(),
    "items": st.lists(json_values, max_size=3),
    "options": st.dictionaries(texts, json_values, max_size=3),
    "maybe": st.none() | texts.filter(is_text),
    "limit": st.none() | st.integers(),
    "level": st.sampled_from(["low", "5", "true"]),
    "place": st.dictionaries(texts, json_values, max_size=2) | texts.filter(is_text),
    "free": json_values.filter(lambda value: not isinstance(value, str)) | texts.filter(is_text),
    "undeclared key": texts.filter(is_text) | st.integers(),
}


@st.composite
def calls_made(draw):
    name = draw(st.sampled_from(["edit", "now", "get-weather.v2"]))
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    if name != "edit":
        keys = [key for key in keys if key in ("free", "undeclared key")]
    return name, {key: draw(VALUES[key]) for key in keys}


def rendered(template, content, made):
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": content, "reasoning_content": "",
         "tool_calls": [{"function": {"name": n, "arguments": a}} for n, a in made]},
    ]  # fmt: skip
    text = template.render({"messages": messages, "tools": [], "add_generation_prompt": False})
    return text.rsplit("</think>\n\n", 1)[-1].removesuffix("<|im_end|>\n")


@pytest.fixture(scope="module", params=["tiny", "qwen"])
def template(request, tiny_folder):
    tiny = (tiny_folder / "chat_template.jinja").read_text("utf-8")
    return Template(tiny if request.param == "tiny" else QWEN)


@settings(max_examples=300)
@given(data=st.data())
def test_what_the_template_writes_parses_back(template, data):
    made = data.draw(st.lists(calls_made(), min_size=1, max_size=3))
    content = data.draw(st.sampled_from(["", "Let me see: <b>`x`</b>", "a\n\nb"]))
    for _, arguments in made:
        for value in arguments.values():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            assume(not ENDS_A_VALUE.search(written + "\n</parameter"))
            assume("</think>" not in written)
    text = rendered(template, content, made)
    found, calls, cut = run(cuts(data, text))
    assert (found, cut) == (content, "")
    assert [(name, json.loads(arguments)) for name, arguments, _ in calls] == made
    assert all(complete for _, _, complete in calls)


FRAGMENTS = [*MARKS, "\n\n", "<function=", "edit>", "<parameter=", "text>", "count>", "nope>",
             "</function>\n</tool_call>", call(text="v"), call("nope", text="v"), "</",
             '{"name": "now", "arguments": {}}', '{"name": "edit", "arguments": {"text": "',
             "<tool_call>\n{", "}", "\n</parameter>\n", "```", "12"]  # fmt: skip


@settings(max_examples=600)
@given(data=st.data(), ended=st.booleans())
def test_cuts_change_nothing_and_nothing_is_lost(data, ended):
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=14)))
    # Marks that occur once, to be found again once.
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=3, unique=True).map(sorted))
    for number, place in reversed(list(enumerate(places))):
        text = text[:place] + chr(0x2460 + number) + text[place:]
    whole = run([text], ended=ended)
    assert run(cuts(data, text), ended=ended) == whole
    assert run(list(text), ended=ended) == whole
    found, calls, cut = whole
    everything = found + cut + "".join(name + arguments for name, arguments, _ in calls)
    for number in range(len(places)):
        spelled = chr(0x2460 + number)
        debris = re.search(rf"</parameter[^<>\n]*{spelled}|</[^>]*{spelled}[^<>]*\Z", text)
        assert everything.count(spelled) == 1 or debris
    if not calls and not cut:
        assert found == text


@settings(max_examples=300)
@given(text=texts, data=st.data())
def test_text_without_declared_functions_stays_as_it_is(text, data):
    assume("<function=now>" not in text and "<function=edit>" not in text)
    assume("<tool_call>" not in text)
    assert run(cuts(data, text)) == (text, [], "")


def test_a_string_streams_while_it_is_written():
    parser = CallParser(TOOLS)
    parser.push("<tool_call>\n<function=edit>\n<parameter=text>\n")
    told = [parser.push(piece) for piece in ("one", ' "two"', "\n", "three", "\n</para")]
    assert [[event.arguments for event in events] for events in told] == [
        ["one"], [' \\"two\\"'], [], ["\\nthree"], []
    ]  # fmt: skip
    assert [e.arguments for e in parser.push("meter>\n</function>")] == ['"', "}"]


# --- reports of others ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "closer", ["</parameter1>", "</parameter/>", "</parameter_function>", "</parameter", ""]
)
def test_malformed_closers_leave_no_debris(closer):
    """gh:sgl-project/sglang#27337"""
    head = "<tool_call>\n<function=edit>\n<parameter=text>\nab c\n"
    assert args(f"{head}{closer}\n</function>\n</tool_call>".replace("\n\n", "\n")) == {
        "text": "ab c"
    }
    if closer:
        more = f"{head}{closer}\n<parameter=count>\n5\n{closer}\n</function>\n</tool_call>"
        assert args(more) == {"text": "ab c", "count": 5}
        assert args(head + closer) == {"text": "ab c"}
        assert args(head + closer[:-1]) == {"text": "ab c"}
        assert args(f"{head}{closer}</tool_call>") == {"text": "ab c"}


def test_data_is_no_call():
    """docs of ddalcu/mlx-serve: data in JSON was taken for a call."""
    for text in (
        '{"name": "George Washington", "arguments": {"born": 1732}}',
        '<tool_call>\n{"name": "George Washington", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "now", "age": 5}\n</tool_call>',
        '<tool_call>{"a": [}</tool_call>',
        call("undeclared", text="v"),
        "Write `<tool_call>` and then `<function=now>`, see <tool_call> or </tool_call>.",
        "```\n<tool_call>\n<function=now>\n```",
        "if a <b and c> d: <functions=3>",
    ):
        assert run([text]) == run(list(text)) == (text, [], "")


# --- JSON calls, parallel calls, text around -----------------------------------------------------


def test_json_calls():
    def one(text, name="edit"):
        found, calls, cut = run([text])
        assert run(list(text)) == (found, calls, cut)
        assert (found, cut, [(n, c) for n, _, c in calls]) == ("", "", [(name, True)])
        return json.loads(calls[0][1])

    wanted = {"text": 'a "}" <tool_call> </tool_call>\n', "count": 5}
    body = json.dumps({"name": "edit", "arguments": wanted})
    assert one(f"<tool_call>\n{body}\n</tool_call>") == wanted
    assert one(f"<tool_call>{body}</tool_call>") == wanted
    assert one(f"<tool_call>\n{body}") == wanted
    assert one(f"<tool_call>\n{body[:-1]}\n</tool_call>") == wanted  # a brace too few
    assert one(f"<tool_call>\n{body[:-1]}") == wanted
    text = json.dumps({"name": "edit", "arguments": json.dumps(wanted)})
    assert one(f"<tool_call>\n{text}\n</tool_call>") == wanted
    swapped = json.dumps({"arguments": wanted, "name": "edit", "id": "x"})
    assert one(f"<tool_call>\n{swapped}\n</tool_call>") == wanted
    assert one('<tool_call>\n{"name": "now"}\n</tool_call>', "now") == {}
    newline = '<tool_call>\n{"name": "edit", "arguments": {"text": "a\nb"}}\n</tool_call>'
    assert one(newline) == {"text": "a\nb"}


def test_text_before_between_and_after_calls_is_kept():
    text = f"Before.\n\n{call('now')}\n{call(text='x')} between {call('now')}\nafter\n"
    found, calls, cut = run(list(text))
    assert (found, cut) == ("Before. between \nafter\n", "")
    assert [name for name, _, _ in calls] == ["now", "edit", "now"]
    assert run([f"a\n\n\n{call('now')}"])[0] == "a\n"
    assert run([call("now") + "\n"])[::2] == ("", "\n")


def test_outer_tags_may_be_missing():
    bare = "<function=edit>\n<parameter=text>\nx\n</parameter>\n</function>"
    assert args(bare) == args(f"{bare}\n</tool_call>") == {"text": "x"}
    two = f"<tool_call>\n{bare}\n<function=now>\n</function>\n</tool_call>"
    found, calls, _ = run(list(two))
    assert (found, [name for name, _, _ in calls]) == ("", ["edit", "now"])
    assert args(
        "<tool_call><function=edit><parameter=text>x</parameter></function></tool_call>"
    ) == {"text": "x"}


def test_tags_within_values():
    quoted = "see </parameter> and <parameter=x> or\n</function>\nand <tool_call>"
    assert args(call(text=quoted, count="5")) == {"text": quoted, "count": 5}


# --- cut off --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
def test_a_call_without_an_end_is_not_complete(ended):
    head = "So:\n\n<tool_call>\n<function=edit>\n<parameter=count>\n5\n</parameter>\n"
    found, calls, cut = run([head + "<parameter=text>\nhalf a sen"], ended=ended)
    assert (found, cut) == ("So:", "")
    assert calls == [("edit", '{"count": 5, "text": "half a sen', False)]
    _, calls, _ = run([head + '<parameter=items>\n["a", '], ended=ended)
    assert calls == [("edit", '{"count": 5, "items": ["a", ', False)]


def test_every_cut_of_a_call_leaks_no_tag_and_loses_nothing():
    text = "Hi." + "\n\n" + call(text="va lue", count="5") + "\n" + call("now")
    for end in range(len(text)):
        for ended in (False, True):
            found, calls, cut = run([text[:end]], ended=ended)
            tags = ("<tool_call>", "<function", "<parameter", "</")
            if "<tool_call>" in text[:end]:
                assert not any(tag in found.removeprefix("Hi.") for tag in tags)
            assert not any(tag in arguments for _, arguments, _ in calls for tag in tags)
            if "<tool_call>" in text[:end] and not calls:
                assert cut
            if not ended and "</function>" not in text[:end]:
                assert not any(complete for _, _, complete in calls)


def test_the_models_own_end_in_a_closing_tag_completes_the_call():
    text = call(text="v")
    for end in (text.index("</parameter>") + 3, text.index("</function>") + 3, len(text) - 3):
        assert [c[2] for c in run([text[:end]], ended=True)[1]] == [True]
    for end in (text.index("</parameter>") + 3, text.index("</function>") + 3):
        assert [c[2] for c in run([text[:end]], ended=False)[1]] == [False]


def test_a_cut_json_call():
    start = '<tool_call>\n{"name": "edit", "arguments": {"text": "ab'
    assert run([start], ended=False) == ("", [("edit", '{"text": "ab', False)], "")
    assert run([start[:20]], ended=True) == ("", [], start[:20])
    broken = '<tool_call>\n{"name": "edit", "arguments": {text: 5}}\n</tool_call>\nmore'
    assert run(list(broken)) == ("\nmore", [("edit", "{text: 5}}", False)], "")
