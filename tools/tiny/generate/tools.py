"""Tools to call: hand-written ones under changing names, and ones that nobody has seen before.

Owns signatures and requests that name every argument, so that the model must read the signature
instead of remembering it. Knows nothing about the course of a conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from . import chat, copying
from . import lexicon as lex
from .base import Rng, article, fill, lines, plural


@dataclass
class Use:
    """One use of one tool: the request, the arguments, the result and the final answer."""

    name: str
    about: str
    params: dict[str, tuple[str, str]]  # name -> (type, description)
    request: str
    args: dict[str, Any]
    result: str
    answer: str
    required: tuple[str, ...] = ()
    row: str = ""  # the line it was made from
    keys: dict[str, str] = field(default_factory=dict)  # that line's keys -> this tool's


def schema(use: Use) -> dict[str, Any]:
    properties = {k: {"type": t, "description": d} for k, (t, d) in use.params.items()}
    required = list(use.required or use.params)
    return {
        "type": "function",
        "function": {
            "name": use.name,
            "description": use.about,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def _slots(rng: Rng) -> dict[str, str]:
    """Fresh values for everything that `tools.txt` and `intents.txt` mention."""
    city, city2 = lex.any_town(rng), lex.any_town(rng)
    a, b = rng.randrange(1, 1000), rng.randrange(1, 1000)
    thing, food = rng.choice(lex.THING_LIST), rng.choice(lex.FOODS)
    word = rng.choice(lex.lexicon()["words"][:1500])
    country = rng.choice(lex.lexicon()["countries"][:80])
    cur, cur2 = rng.sample(lex.WORDS["MONEY"], 2)
    return {
        "city": city, "city2": city2, "a": str(a), "b": str(b), "sum": str(a + b),
        "product": str(a * b), "name": lex.any_name(rng), "thing": thing,
        "things": plural(thing), "Thing": thing.title(), "food": food, "foods": plural(food),
        "word": word["word"], "gloss": word["gloss"], "country": country["name"],
        "count": str(country["people"]), "sky": rng.choice(lex.WEATHER[:6]),
        "deg": str(rng.randrange(-9, 36)), "day": rng.choice(lex.DAYS),
        "when": f"{rng.randrange(1, 13)}:{rng.choice(['00', '15', '30', '45', '10', '20'])}",
        "language": rng.choice(lex.WORDS["LANGUAGES"]), "made_up": chat.nonsense(rng),
        "n": str(rng.randint(2, 99)), "cur": cur, "cur2": cur2, "code": copying.code(rng),
        "Title": copying.title(rng), "Made": lex.strange_name(rng), "path": copying.snake(rng, 1),
        "room": rng.choice(["kitchen", "bedroom", "bathroom", "garden", "living room", "garage",
                            "office", "cellar", "attic", "hall"]),
    }  # fmt: skip


_AFFIXES = ("get", "do", "my", "home", "api", "call", "run", "smart", "fetch", "tool", "new", "v2",
            "service", "now", "helper", "fn")  # fmt: skip


def styled(rng: Rng, name: str) -> str:
    """A tool's name as other programmers would spell it, or any name at all."""
    x = rng.random()
    if x < 0.12:
        return copying.snake(rng, rng.choice([1, 2, 2]))
    if x < 0.3:
        extra = rng.choice(_AFFIXES) if rng.random() < 0.6 else copying.word(rng)
        name = rng.choice([f"{extra}_{name}", f"{name}_{extra}"])
    parts = name.split("_")
    y = rng.random()
    if y < 0.14:
        return parts[0] + "".join(p.title() for p in parts[1:])
    if y < 0.18:
        return "".join(p.title() for p in parts)
    return name.replace("_", "-") if y < 0.22 else name


def from_row(rng: Rng, row: str, like: Use | None = None) -> Use:
    """A use of the tool of that row, under `like`'s names if given."""
    name, about, signature, request, args, result, answer = (p.strip() for p in row.split(" :: "))
    slots = _slots(rng)
    wide = "/" in name
    params: dict[str, tuple[str, str]] = {}
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for entry in signature.split("; "):
        given, kind, description = entry.split(" ", 2)
        choices = given.split("/")
        key = rng.choice(choices)
        if wide and rng.random() < 0.12:
            key = copying.word(rng)
        if key in keys.values():
            key = next((c for c in choices if c not in keys.values()), choices[0] + "2")
        key = like.keys[choices[0]] if like else key
        keys[choices[0]] = key
        params[key] = kind, rng.choice(description.split("/"))
    for entry in args.split("; "):
        key, _, value = entry.partition("=")
        text = fill(rng, value, slots)
        values[keys[key]] = text if params[keys[key]][0] == "string" else int(text)
    said = [fill(rng, text, slots) for text in (request, result, answer)]
    if like:
        name = like.name
    elif wide:
        name = styled(rng, rng.choice(name.split("/")))
    about = rng.choice(about.split("/"))
    return Use(name, about, params, said[0], values, said[1], said[2], row=row, keys=keys)


def known_use(rng: Rng) -> Use:
    """One of the hand-written tools, with fresh arguments."""
    return from_row(rng, rng.choice(lines("intents.txt" if rng.random() < 0.75 else "tools.txt")))


_VERBS = (
    "get",
    "find",
    "update",
    "delete",
    "create",
    "check",
    "open",
    "close",
    "count",
    "book",
    "buy",
    "order",
    "start",
    "stop",
    "show",
    "move",
    "rent",
    "clean",
    "print",
    "share",
)
_NOUNS = ("user", "order", "ticket", "room", "car", "task", "note", "photo", "song", "price",
          "report", "door", "window", "robot", "lamp", "event", "account", "package", "recipe",
          "flight", "hotel", "bus", "machine", "table", "letter", "garden", "pump")  # fmt: skip
_PARAMS = (
    "name",
    "id",
    "city",
    "color",
    "count",
    "day",
    "date",
    "size",
    "place",
    "owner",
    "kind",
    "title",
    "level",
    "speed",
    "number",
    "label",
    "price",
    "mode",
    "room",
    "month",
)


def _value(rng: Rng, key: str) -> tuple[str, Any]:
    """(JSON type, value) that suits a parameter's name."""
    if key in ("id", "count", "level", "speed", "number", "price"):
        return "integer", rng.randint(1, 500)
    pools = {
        "name": lex.NAMES,
        "owner": lex.NAMES,
        "city": lex.CITIES,
        "color": lex.COLORS,
        "day": lex.DAYS,
        "month": lex.MONTHS,
        "size": ["small", "medium", "large"],
        "place": list(lex.PLACES),
        "kind": list(lex.ANIMALS),
        "title": lex.THING_LIST,
        "label": lex.FOODS,
        "mode": ["fast", "slow", "quiet", "auto"],
        "room": ["kitchen", "hall", "office", "bedroom", "attic"],
        "date": [f"2025-{m:02d}-{d:02d}" for m in range(1, 13) for d in (1, 9, 17, 28)],
    }
    return "string", rng.choice(pools[key])  # fmt: skip


def _any_noun(rng: Rng) -> str:
    return rng.choice(_lexicon_nouns())


@lru_cache(maxsize=1)
def _lexicon_nouns() -> tuple[str, ...]:
    words = lex.lexicon()["words"][:2500]
    return tuple(w["word"] for w in words if w["pos"] == "noun" and w["word"].isalpha())


_RENAMES = {
    "city": ("location", "place", "town", "where", "city_name"), "a": ("x", "first", "left"),
    "query": ("q", "text", "search_term", "keywords"), "b": ("y", "second", "right"),
    "x": ("a", "m", "first"), "y": ("b", "n", "second"), "time": ("at", "when", "clock_time"),
    "expression": ("formula", "input", "expr"), "word": ("term", "entry", "text"),
    "path": ("file", "filename", "file_path"), "folder": ("directory", "dir", "path"),
    "room": ("where", "location", "room_name"), "title": ("song", "name", "track"),
    "item": ("product", "name", "thing"), "text": ("message", "content", "note"),
    "day": ("date", "when", "weekday"), "name": ("person", "contact", "full_name"),
    "people": ("guests", "count", "persons"), "country": ("nation", "name", "where"),
    "language": ("target", "to", "lang"), "to": ("recipient", "address", "receiver"),
    "start": ("from", "origin"), "goal": ("to", "destination"),
}  # fmt: skip
_PREFIXES = ("get", "fetch", "do", "run", "call", "my", "find", "smart", "home", "quick", "api")


def disguised(rng: Rng, use: Use) -> Use:
    """A known tool under other names, so that the signature must be read."""
    names = {}
    for key in use.params:
        new = rng.choice(_RENAMES.get(key, (key,)))
        names[key] = key if new in names.values() or rng.random() < 0.3 else new
    stem = use.name.split("_", 1)[-1]
    name = rng.choice(
        [
            f"{rng.choice(_PREFIXES)}_{stem}",
            stem,
            f"{use.name}_{rng.randint(2, 9)}",
            f"{use.name.replace('_', '-')}",
            f"{stem}_{rng.choice(_PREFIXES)}",
        ]
    )
    params = {names[k]: v for k, v in use.params.items()}
    args = {names[k]: v for k, v in use.args.items()}
    keys = {k: names[v] for k, v in use.keys.items()}
    return Use(name, use.about, params, use.request, args, use.result, use.answer,
               row=use.row, keys=keys)  # fmt: skip


_DEVICE_VERBS = ("lock", "heat", "lower", "raise", "test", "play", "turn", "paint", "water", "feed",
                 "call", "dim", "record", "measure", "scan")  # fmt: skip


def device_use(rng: Rng) -> Use:
    """`Open the garage for 30 seconds.`: any noun, any parameter, a plain request."""
    verb = rng.choice(_VERBS + _DEVICE_VERBS)
    noun, key = (
        _any_noun(rng),
        rng.choice(
            [
                "seconds",
                "minutes",
                "hours",
                "percent",
                "degrees",
                "times",
                "meters",
                "people",
                _any_noun(rng),
            ]
        ),
    )
    n = rng.randint(1, 90)
    snake = f"{verb}_{noun}"
    name = rng.choice([snake, snake, f"{noun}_{verb}", f"{verb}{noun.title()}"])
    if key in ("seconds", "minutes", "hours", "percent", "degrees", "times", "meters", "people"):
        word = {
            "percent": "to {n} percent",
            "degrees": "to {n} degrees",
            "times": "{n} times",
            "meters": "by {n} meters",
        }.get(key, "for {n} " + key).replace("{n}", str(n))
        kind, value = "integer", n
    else:
        kind, value = "string", rng.choice([rng.choice(lex.NAMES), _any_noun(rng)])
        word = f"with the {key} {value}"
    request = fill(
        rng,
        "[Please {v} the {n} {w}.|{v} the {n} {w}.|Can you {v} the {n} {w}?|{v} "
        "the {n} {w}, please.]",
        {"v": verb, "n": noun, "w": word},
    )
    return Use(name, f"{verb.title()} the {noun}.", {key: (kind, f"How many {key}"
               if kind == "integer" else f"The {key}")}, request[0].upper() + request[1:],
               {key: value}, rng.choice(["ok", "done", '{"ok": true}']),
               rng.choice([f"Done. I used {name}.", "Done.", "It is done."]))  # fmt: skip


def random_use(rng: Rng) -> Use:
    """A tool that nobody has seen before: the request names its arguments."""
    verb = rng.choice(_VERBS)
    noun = rng.choice(_NOUNS) if rng.random() < 0.3 else _any_noun(rng)
    if rng.random() < 0.4:
        return device_use(rng)
    keys = rng.sample(_PARAMS, rng.choice([1, 1, 2, 2, 3]))
    params, args = {}, {}
    for key in keys:
        kind, args[key] = _value(rng, key)
        params[key] = (kind, f"The {key} of the {noun}")
    said = " and ".join(f"{k} {v}" for k, v in args.items())
    request = fill(
        rng,
        "[{v} the {n} with {s}.|Please {v} the {n} with {s}.|Can you {v} the {n} "
        "with {s}?|{v} {n}: {s}|I want you to {v} {a} with {s}.|Use {f} with {s}.]",
        {"v": verb, "n": noun, "s": said, "a": article(noun), "f": f"{verb}_{noun}"},
    )
    result = rng.choice(["ok", "done", '{"ok": true}', f"{verb} {noun}: success", '{"status": '
                         '"done"}'])  # fmt: skip
    name = rng.choice([f"{verb}_{noun}", f"{noun}_{verb}", f"{verb}{noun.title()}"])
    request = request.replace(f"{verb}_{noun}", name)
    answer = f"Done: I used {name} with {said}."
    return Use(name, f"{verb.title()} {article(noun)}.", params,
               request[0].upper() + request[1:], args, result, answer)  # fmt: skip
