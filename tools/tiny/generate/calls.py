"""Conversations with tools: calls, results, refusals, missing arguments, several calls at once.

Owns the course of such a conversation. The tools and their arguments come from `tools.py`; the XML
form of a call belongs to the template.
"""

from __future__ import annotations

from typing import Any

from . import asks, chat, facts, talk
from . import lexicon as lex
from .base import Doc, Message, Rng, assistant, fill, system, tool_result, user
from .tools import Use, disguised, from_row, known_use, random_use, schema


def _call(use: Use) -> dict[str, Any]:
    return {"type": "function", "function": {"name": use.name, "arguments": use.args}}


def _think(rng: Rng, use: Use) -> str:
    given = ", ".join(f"{k} = {v}" for k, v in use.args.items())
    return fill(rng, "[I should call|I will use|I need] {n} with {g}.", {"n": use.name, "g": given})


def _one(rng: Rng) -> Use:
    if rng.random() < 0.35:
        return random_use(rng)
    use = known_use(rng)
    return disguised(rng, use) if "/" not in use.row and rng.random() < 0.7 else use


def _tools(rng: Rng, use: Use) -> list[dict[str, Any]]:
    """The schema of `use` among up to three others, in random order."""
    others = [_one(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    chosen = [use, *(o for o in others if o.name != use.name)]
    seen: dict[str, Use] = {u.name: u for u in reversed(chosen)}
    schemas = [schema(u) for u in seen.values()]
    rng.shuffle(schemas)
    return schemas


def tool_doc(rng: Rng) -> Doc:
    """The usual course: request, call, result, answer; cut off at any point."""
    use = _one(rng)
    tools = _tools(rng, use)
    messages: list[Message] = []
    if rng.random() < 0.15:
        messages.append(system(rng.choice(["You are a helpful assistant.", "Use tools if needed.",
                                           "You are Lily."])))  # fmt: skip
    if rng.random() < 0.1:
        messages += chat.small_talk(rng, 1)
    messages += [user(fill(rng, use.request)), assistant("", _think(rng, use), [_call(use)])]
    if rng.random() < 0.65:
        if rng.random() < 0.12:
            error = rng.choice(["error: not found", "error: no connection", "timeout", "failed"])
            answer = fill(rng, "[I am sorry, that did not work|Sorry, it failed]: {e}.",
                          {"e": error.removeprefix("error: ")})  # fmt: skip
            messages += [tool_result(error), assistant(answer, "The tool reports an error.")]
        else:
            messages += [tool_result(use.result), assistant(use.answer, "The tool has answered.")]
            if use.row and len(use.args) == 1 and rng.random() < 0.35:
                messages += _again(rng, use)
            elif rng.random() < 0.3:
                messages += _second(rng)
    return Doc(messages, tools=tools, kind="tool")


def _again(rng: Rng, use: Use) -> list[Message]:
    """The same tool for another value, asked for in two words."""
    new = from_row(rng, use.row, use)
    value = str(next(iter(new.args.values())))
    ask = fill(rng, "[And {v}?|How about {v}?|What about {v}?|And for {v}?|Now {v}.|The same "
                    "for {v}, "
               "please.|And now {v}, please.|{r}|{r}]", {"v": value, "r": new.request})  # fmt: skip
    out = [user(ask), assistant("", _think(rng, new), [_call(new)])]
    if rng.random() < 0.6:
        out += [tool_result(new.result), assistant(new.answer, "The tool has answered.")]
    return out


def _second(rng: Rng) -> list[Message]:
    """Another turn in the same conversation: thanks, or something that needs no tool."""
    if rng.random() < 0.5:
        return [
            user(rng.choice(["Thank you!", "Thanks.", "Great, thanks!"])),
            assistant("You are welcome!", "The user thanks me. No tool is needed."),
        ]
    question, answer, think = facts.turn(rng)
    return [user(question), assistant(answer, "No tool is needed. " + think)]


def no_tool(rng: Rng) -> Doc:
    """Tools are there, but the question does not need them."""
    tools = _tools(rng, _one(rng))
    if rng.random() < 0.35:
        messages = chat.small_talk(rng, 1) if rng.random() < 0.5 else talk.some(rng)
    else:
        question, answer, think = rng.choice([facts.turn, facts.fact, asks.turn, asks.fact])(rng)
        messages = [user(question), assistant(answer, "No tool is needed. " + think)]
    return Doc(messages, tools=tools, kind="tool")


def missing(rng: Rng) -> Doc:
    """A required argument is missing: ask, then call."""
    asks = [
        ("get_weather", "Get the current weather in a city.", "city", lex.CITIES,
         "What is the weather?|How is the weather?", "In which city?|For which city?"),
        ("set_alarm", "Set an alarm.", "time", [f"{h}:{m}" for h in range(5, 12) for m in (15, 30)],
         "Set an alarm.|Wake me up.", "For what time?|At what time?"),
        ("turn_on_light", "Turn on the light in a room.", "room", ["kitchen", "bedroom", "garage"],
         "Turn on the light.|I need light.", "In which room?"),
        ("search", "Search the web.", "query", lex.THING_LIST, "Search the web.|Find something.",
         "What should I search for?"),
        ("play_music", "Play a song.", "title", lex.THING_LIST, "Play some music.|Play a song.",
         "Which song would you like to hear?"),
    ]  # fmt: skip
    name, about, key, values, requests, questions = rng.choice(asks)
    value = rng.choice(list(values))
    use = Use(name, about, {key: ("string", key.title())}, "", {key: value}, "", "")
    messages = [user(rng.choice(requests.split("|"))),
                assistant(rng.choice(questions.split("|")), f"{key.title()} is missing."),
                user(rng.choice([f"{value}", f"{value}, please.", f"In {value}."]
                                if key == "city" else [f"{value}"])),
                assistant("", _think(rng, use), [_call(use)])]  # fmt: skip
    if rng.random() < 0.3:
        messages = messages[:2]
    return Doc(messages, tools=_tools(rng, use), kind="tool")


def parallel(rng: Rng) -> Doc:
    """One request, two calls of the same tool."""
    one, two = rng.sample(lex.CITIES, 2)
    name, about, ask = rng.choice([
        ("get_weather", "Get the weather in a city.", "What is the weather in {a} and {b}?"),
        ("get_time", "Get the local time of a city.", "What time is it in {a} and in {b}?"),
        ("get_population", "Get the population of a city.", "How many people live in {a} and {b}?"),
    ])  # fmt: skip
    use = Use(name, about, {"city": ("string", "City name")}, "", {"city": one}, "", "")
    calls = [
        _call(use),
        {"type": "function", "function": {"name": name, "arguments": {"city": two}}},
    ]
    r1, r2 = (str(rng.randint(1, 40)) for _ in range(2))
    messages = [
        user(ask.replace("{a}", one).replace("{b}", two)),
        assistant("", f"I need {name} twice: for {one} and for {two}.", calls),
    ]
    if rng.random() < 0.6:
        messages += [
            tool_result(r1),
            tool_result(r2),
            assistant(f"{one}: {r1}. {two}: {r2}.", "Both results are there."),
        ]
    return Doc(messages, tools=_tools(rng, use), kind="tool")  # fmt: skip


def call_doc(rng: Rng) -> Doc:
    make = rng.choices([tool_doc, no_tool, missing, parallel], [66, 20, 8, 6])[0]
    return make(rng)
