"""Copying what nobody has seen: made-up names, codes, titles and numbers of any length.

Owns the strings and the small tasks whose answer holds one of them unchanged. A model this small
learns to copy only from very many different strings, so nothing here comes from a short list.
"""

from __future__ import annotations

import json

from . import lexicon as lex
from .base import Doc, Message, Rng, article, assistant, cap, fill, join_words, user
from .phrasing import careless, dressed, pick


def word(rng: Rng) -> str:
    """One word: of the dictionary, or made up."""
    if rng.random() < 0.3:
        return rng.choice(lex.lexicon()["words"])["word"]
    if rng.random() < 0.3:
        return lex.blend(rng)
    return lex.syllables(rng, rng.choice([1, 2, 2, 2, 3, 3]))


def code(rng: Rng) -> str:
    x = rng.random()
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 4)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 7)))
    if x < 0.4:
        return digits
    return rng.choice(
        [
            f"{letters}-{digits}",
            f"{letters}{digits}",
            f"{digits}-{letters}",
            f"{letters}-{digits[:2]}-{digits[2:] or 7}",
            letters.lower() + digits,
        ]
    )


def title(rng: Rng) -> str:
    return " ".join(cap(word(rng)) for _ in range(rng.choice([1, 2, 2, 3])))


def snake(rng: Rng, parts: int = 0) -> str:
    return "_".join(word(rng) for _ in range(parts or rng.choice([1, 2, 2, 3])))


def anything(rng: Rng) -> str:
    """Any string worth copying."""
    makers = [word, code, title, snake, lex.strange_name, lex.strange_town, _address, _path]
    make = rng.choices(makers, [5, 3, 3, 2, 3, 3, 1, 1])[0]  # fmt: skip
    return make(rng)


def _address(rng: Rng) -> str:
    return f"{word(rng)}@{word(rng)}.{rng.choice(['com', 'org', 'net', 'de', 'io'])}"


def _path(rng: Rng) -> str:
    return f"{word(rng)}/{snake(rng)}.{rng.choice(['txt', 'md', 'py', 'csv', 'png'])}"


_OWNED, _NOTED = lex.WORDS["OWNED"], lex.WORDS["NOTED"]


def repeat(rng: Rng) -> tuple[str, str]:
    s = anything(rng)
    q = rng.choice([s, s, f'"{s}"'])
    twice = rng.random()
    if twice < 0.12:
        return fill(rng, f"[Write {q} twice.|Say {q} two times.|Repeat {q} twice.]"), f"{s} {s}"
    if twice < 0.2:
        return fill(rng, f"[Put {s} in quotation marks.|Write {s} in quotes.]"), f'"{s}"'
    if twice < 0.27:
        return f"Put {s} in brackets.", f"({s})"
    text = fill(
        rng,
        "[Repeat|Repeat after me|Say|Copy|Write|Write down|Please "
        "repeat|Echo|Spell back|"
        f"Type|Please say|Copy this|Say this|Now write|Give me back][: | ]{q}[|.]",
    )
    return text, s


def told(rng: Rng) -> tuple[str, str]:
    """A fact with a name in it, and the question for the name, in one message."""
    thing, s = rng.choice(_OWNED), rng.choice([lex.strange_name, lex.any_name, title, word])(rng)
    if rng.random() < 0.5:
        ask = pick(rng, f"What is the name of my {thing}?|What is my {thing} called?|How is my "
                        f"{thing} "
                   f"called?|What is my {thing}'s name?|What name does my {thing} have?|Do you "
                   f"remember "
                   f"the name of my {thing}?")  # fmt: skip
        tell = fill(
            rng,
            f"[My {thing} is called {s}.|I have {article(thing)} called {s}.|The "
            f"name of my "
            f"{thing} is {s}.|I call my {thing} {s}.|I named my {thing} {s}.]",
        )
        return f"{tell} {ask}", f"Your {thing} is called {s}."
    what = rng.choice(_NOTED)
    s = rng.choice([code, word, anything, snake])(rng)
    tell = fill(
        rng,
        f"[The {what} is {s}.|My {what} is {s}.|Remember the {what}: {s}.|Here is "
        f"the {what}: "
        f"{s}.|Note the {what} {s}.]",
    )
    ask = fill(
        rng,
        f"[What is the {what}?|Which {what} did I give you?|Tell me the "
        f"{what}.|What was the "
        f"{what}?|Repeat the {what}.]",
    )
    return f"{tell} {ask}", f"The {what} is {s}."


def pairs(rng: Rng) -> tuple[str, str]:
    """`a = x, b = y`: the value of one of them."""
    n = rng.choice([2, 2, 3, 4])
    keys = [rng.choice([word, snake])(rng) for _ in range(n)]
    values = [anything(rng) for _ in range(n)]
    i = rng.randrange(n)
    sep, joint = rng.choice([(" = ", ", "), (": ", ", "), (" is ", "; "), (": ", "\n"), ("=", " ")])
    given = joint.join(f"{k}{sep}{v}" for k, v in zip(keys, values, strict=True))
    ask = fill(
        rng,
        f"[What is {keys[i]}?|What is the value of {keys[i]}?|Give me "
        f"{keys[i]}.|Value of "
        f"{keys[i]}?|Which value has {keys[i]}?]",
    )
    return f"{given}{rng.choice([' ', chr(10)])}{ask}", f"The value of {keys[i]} is {values[i]}."


def people(rng: Rng) -> tuple[str, str]:
    """Who has, does or likes what, among made-up people."""
    a, b = lex.any_name(rng), lex.strange_name(rng)
    x, y = lex.any_town(rng), lex.strange_town(rng)
    job, job2 = rng.sample(list(lex.JOBS), 2)
    k = rng.randrange(4)
    if k == 0:
        text = f"{a} lives in {x}, and {b} lives in {y}."
        ask, answer = f"Where does {b} live?", f"{b} lives in {y}."
        if rng.random() < 0.5:
            ask, answer = f"Who lives in {x}?", f"{a} lives in {x}."
    elif k == 1:
        text = f"{a} is {article(job)}. {b} is {article(job2)}."
        ask, answer = f"What is {a}'s job?", f"{a} is {article(job)}."
        if rng.random() < 0.5:
            ask, answer = f"Who is {article(job2)}?", f"{b} is {article(job2)}."
    elif k == 2:
        text = f"I am {a}, I come from {y} and I work as {article(job)}."
        ask, answer = rng.choice([("What is my name?", f"Your name is {a}."),
                                  ("Where do I come from?", f"You come from {y}."),
                                  ("What is my job?", f"You are {article(job)}."),
                                  ("What do I work as?", f"You are {article(job)}.")])  # fmt: skip
    else:
        t = title(rng)
        text = f'{a} {b} wrote the book "{t}" in {y}.'
        ask, answer = rng.choice([("Who wrote the book?", f"{a} {b} wrote the book."),
                                  ("What is the title?", f'The title is "{t}".'),
                                  ("Where was it written?", f"It was written in {y}.")],
                                 )  # fmt: skip
    return f"{text} {ask}", answer


def in_list(rng: Rng) -> tuple[str, str]:
    items = [
        rng.choice([word, lex.strange_name, code, title])(rng) for _ in range(rng.randint(3, 6))
    ]
    i = rng.randrange(len(items))
    nth = ("first", "second", "third", "fourth", "fifth", "sixth")[i]
    given = ", ".join(items)
    rows = [(f"What is the {nth} one: {given}?", f"The {nth} one is {items[i]}."),
            (f"{given}: which one is the last?", f"The last one is {items[-1]}."),
            (f"Make a list: {given}", "\n".join(f"- {x}" for x in items)),
            (f"Number them: {given}", "\n".join(f"{k + 1}. {x}" for k, x in enumerate(items))),
            (f"Write these with and: {given}", join_words(items)),
            (f"Write as a JSON array: {given}", json.dumps(items))]  # fmt: skip
    if i + 1 < len(items):
        rows.append(
            (
                f"Which one comes after {items[i]}: {given}?",
                f"{cap(items[i + 1])} comes after {items[i]}.",
            )
        )
        rows[-1] = (rows[-1][0], f"After {items[i]} comes {items[i + 1]}.")
    return rng.choice(rows)


def as_json(rng: Rng) -> tuple[str, str]:
    keys = [rng.choice([word, snake])(rng) for _ in range(rng.choice([1, 2, 2, 3]))]
    out: dict[str, object] = {}
    for k in keys:
        value = rng.choice([anything(rng), anything(rng), rng.randint(0, 9999), True, False])
        out[k] = value + "x" if isinstance(value, str) and value.isdigit() else value
    said = join_words(
        [f"{k} is {v if isinstance(v, str) else json.dumps(v)}" for k, v in out.items()]
    )
    listed = ", ".join(f"{k}: {v if isinstance(v, str) else json.dumps(v)}" for k, v in out.items())
    names = f"key {keys[0]}" if len(out) == 1 else f"keys {join_words(list(out))}"
    text = fill(rng, "[Write JSON with the {n}. {S}.|JSON, please: {l}|As JSON: {l}|Put this "
                     "into JSON: "
                "{l}|{S}. Give me that as JSON with the {n}.|I want JSON with the {n}: "
                "{s}.|Turn it into "
                "JSON: {s}.|Build a JSON object with the {n}, where {s}.|{S}. Write it as a "
                "JSON object.]",
                {"n": names, "S": said, "s": said, "l": listed})  # fmt: skip
    return text, json.dumps(out, ensure_ascii=False)


_TASKS = ((repeat, 24), (told, 22), (pairs, 14), (people, 16), (in_list, 12), (as_json, 14))


def copy_doc(rng: Rng) -> Doc:
    """One to three such tasks."""
    messages: list[Message] = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        text, answer = rng.choices([t for t, _ in _TASKS], [w for _, w in _TASKS])[0](rng)
        if rng.random() < 0.15 and "\n" not in text:
            text = dressed(rng, text, 1.0) if text[0].isupper() and text[1:2].islower() else text
        messages += [user(text), assistant(answer, "I copy it exactly.")]
    return Doc(messages, kind="copy")


def spread(rng: Rng) -> Doc:
    """A name is told first and asked for in a later message."""
    thing, s = rng.choice(_OWNED), rng.choice([lex.strange_name, lex.any_name])(rng)
    me = lex.any_name(rng)
    tell = fill(
        rng,
        f"[My name is {me}. I have {article(thing)} called {s}.|I am {me}, and my "
        f"{thing} is "
        f"called {s}.|This is {me}. My {thing} has the name {s}.|Hello, I'm {me}. {s} "
        f"is the name "
        f"of my {thing}.]",
    )
    react = fill(
        rng, f"[Hello, {me}! {s} is a nice name for {article(thing)}.|Nice to meet you, {me}!]"
    )
    rows = [(f"What is my {thing}'s name?", f"Your {thing} is called {s}."),
            (f"How is my {thing} called?", f"Your {thing} is called {s}."),
            (f"Tell me the name of my {thing}.", f"Your {thing} is called {s}."),
            ("And what is my name?", f"Your name is {me}."),
            ("Who am I?", f"Your name is {me}."),
            (f"Who is {s}?", f"{s} is your {thing}.")]  # fmt: skip
    messages = [user(tell), assistant(react, "The user tells me names.")]
    for ask, answer in rng.sample(rows, rng.choice([1, 1, 2])):
        messages += [user(careless(rng, ask)), assistant(answer, f"I was told. {answer}")]
    return Doc(messages, kind="copy")
