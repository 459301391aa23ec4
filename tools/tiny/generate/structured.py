"""`Answer in JSON`: objects and arrays with exactly the requested keys.

Owns the ways to ask for JSON and the little worlds the values come from. The answer is always
made with `json.dumps`, so that it parses.
"""

from __future__ import annotations

import json
from typing import Any

from . import asks, facts, sums, wide, words
from . import lexicon as lex
from .base import Doc, Rng, article, assistant, fill, join_words, plural, qa, system, user

World = tuple[str, dict[str, Any]]  # a sentence and the fields that it states

_ASK = (
    "Answer in JSON", "Reply in JSON", "Answer as JSON", "Give me JSON", "Return JSON",
    "Return a JSON object", "Answer only with JSON", "Output JSON", "Write it as JSON",
    "Respond with a JSON object", "Use JSON", "Put it in JSON", "Format the answer as JSON",
)  # fmt: skip


def _world(rng: Rng) -> World:
    """One sentence and what it says."""
    name, other = lex.any_name(rng), lex.any_name(rng)
    he = lex.pronouns(name)[0].capitalize()
    age, n, price = rng.randint(4, 90), rng.randint(1, 20), rng.randint(1, 99)
    city, job, col = lex.any_town(rng), rng.choice(list(lex.JOBS)), rng.choice(lex.COLORS)
    thing, food, an = rng.choice(lex.THING_LIST), rng.choice(lex.FOODS), rng.choice(
        list(lex.ANIMALS))  # fmt: skip
    day, month, hour = rng.choice(lex.DAYS), rng.choice(lex.MONTHS), rng.randint(1, 12)
    hobby, country = rng.choice(lex.HOBBIES), rng.choice(lex.lexicon()["countries"][:60])
    email = f"{name.lower()}@{rng.choice(['example.com', 'mail.com', 'home.org'])}"
    rows: list[World] = [
        (f"{name} is {age} years old and lives in {city}.",
         {"name": name, "age": age, "city": city}),
        (f"{name} is {article(job)} from {city}.", {"name": name, "job": job, "city": city}),
        (f"My name is {name}, I am {age} and I work as {article(job)}.",
         {"name": name, "age": age, "job": job}),
        (f"{name} bought {n} {plural(food)} for {price} dollars.",
         {"name": name, "item": food, "count": n, "price": price}),
        (f"The {col} {thing} costs {price} dollars.",
         {"item": thing, "color": col, "price": price}),
        (f"{name} meets {other} on {day} at {hour} o'clock in {city}.",
         {"person": name, "friend": other, "day": day, "hour": hour, "city": city}),
        (f"{name} has {article(an)} called {other}. {he} likes {hobby}.",
         {"name": name, "animal": an, "pet": other, "hobby": hobby}),
        (f"You can reach {name} at {email}.", {"name": name, "email": email}),
        (f"The party is on {day} in {month} and {n} people will come.",
         {"event": "party", "day": day, "month": month, "people": n}),
        (f"The capital of {country['name']} is {country['capital']}.",
         {"country": country["name"], "capital": country["capital"]}),
        (f"{name} ordered a {thing} in {col} and paid {price} dollars.",
         {"customer": name, "product": thing, "color": col, "price": price}),
        (f"{name} is not at home today.", {"name": name, "at_home": False}),
        (f"{name} can swim, and {age} people saw it.",
         {"name": name, "can_swim": True, "witnesses": age}),
        (f"The book \"The {col.capitalize()} {thing.capitalize()}\" was written by {name} {other}.",
         {"title": f"The {col.capitalize()} {thing.capitalize()}", "author": f"{name} {other}"}),
    ]  # fmt: skip
    return rng.choice(rows)


def _keys(rng: Rng, keys: list[str]) -> str:
    quoted = [f'"{k}"' for k in keys] if rng.random() < 0.35 else keys
    noun = "key" if len(keys) == 1 else "keys"
    noun = noun if rng.random() < 0.75 else noun.replace("key", "field")
    return f"{noun} {join_words(quoted)}"


def _dump(rng: Rng, value: Any) -> str:
    """One line, except for a few that ask for several."""
    return json.dumps(value, ensure_ascii=False)


def extract(rng: Rng) -> Doc:
    """Fields out of a sentence, all or some of them, sometimes one that is missing."""
    text, fields = _world(rng)
    keys = list(fields)
    if rng.random() < 0.4:
        keys = rng.sample(keys, rng.randint(1, len(keys)))
    out = {k: fields[k] for k in keys}
    if rng.random() < 0.1:
        extra = rng.choice(["phone", "country", "email", "street", "size"])
        if extra not in fields:
            out[extra] = None
            keys.append(extra)
    ask = rng.choice(_ASK)
    named = _keys(rng, keys)
    question = fill(rng, "[{t} {a} with the {k}.|{a} with the {k}: {t}|Extract the {k} from this "
                    "text as JSON: {t}|Turn this into JSON with the {k}: {t}|Text: {t}\n{a} with "
                    "the {k}.|From this sentence, make a JSON object with {k}. {t}]",
                    {"t": text, "a": ask, "k": named})  # fmt: skip
    if rng.random() < 0.15 and len(out) == len(fields):
        question = f"{rng.choice(['Turn this into JSON', 'Convert to JSON', 'As JSON'])}: {text}"
    think = f"The keys are {', '.join(keys)}. I read the values from the text."
    if rng.random() < 0.2:
        rule = fill(rng, "[Always answer in JSON|You only answer with JSON|Reply with a JSON "
                         "object|"
                    "Every reply is JSON|All your answers are JSON objects|Your output is JSON|You "
                    "speak JSON only,] with the {k}.", {"k": named})  # fmt: skip
        return Doc([system(rule), user(text), assistant(_dump(rng, out), think)], kind="json")
    return qa(question, _dump(rng, out), think, "json")


def fact_json(rng: Rng) -> Doc:
    """A fact, with the answer under the key that was asked for."""
    c = rng.choice(lex.lexicon()["countries"][:100])
    a = rng.choice(list(lex.ANIMALS.values()))
    x, y = rng.randint(0, 50), rng.randint(0, 50)
    op = rng.choice("+-*") if x >= y and max(x, y) <= 12 else "+"
    value = {"+": x + y, "-": x - y, "*": x * y}[op]
    sum_key = rng.choice(["result", "answer", "value", "sum" if op == "+" else "result"])
    country_key = rng.choice(["capital", "answer", "city"])
    rows: list[tuple[str, dict[str, Any]]] = [
        (f"What is the capital of {c['name']}?", {country_key: c["capital"]}),
        (f"What is the capital of {c['name']}?",
         {"country": c["name"], "capital": c["capital"]}),
        (f"Tell me about {c['name']}.", {"country": c["name"], "capital": c["capital"],
                                         "continent": c["continent"]}),
        (f"What is {x} {op} {y}?", {sum_key: value}),
        (f"How many legs does {article(a.name)} have?", {"animal": a.name, "legs": a.legs}),
        (f"Where does {article(a.name)} live?", {"animal": a.name, "home": a.home}),
        (f"What does {article(a.name)} eat?", {"animal": a.name, "food": a.food}),
        (f"Is {article(a.name)} an insect?", {"answer": a.group == "insect"}),
        (f"Is {x} even?", {"number": x, "even": x % 2 == 0}),
        (f"Which is bigger, {x} or {y + 51}?", {"bigger": y + 51}),
        (f"Describe {article(a.name)}.", {"name": a.name, "group": a.group, "legs": a.legs}),
    ]  # fmt: skip
    question, out = rng.choice(rows)
    named = _keys(rng, list(out))
    if "capital" in question and len(out) == 1 and rng.random() < 0.4:
        own = c["name"] + ("'" if c["name"].endswith("s") else "'s")
        text = fill(rng, "[{o} capital[, | ]as JSON with the {k}.|JSON with the {k}: {o} "
                         "capital.|Write "
                    "{o} capital as JSON. Use the {k}.|I need {o} capital in JSON, {k}.]",
                    {"o": own, "k": named})  # fmt: skip
        return qa(text, _dump(rng, out), "I need JSON with one key.", "json")
    text = fill(rng, "[{q} {a} with the {k}.|{a} with the {k}: {q}|{q} {a}. Use the {k}.|{q} {a} "
                "and use only the {k}.|{q} Your answer must be JSON with {k}.]",
                {"q": question, "a": rng.choice(_ASK), "k": named})  # fmt: skip
    return qa(text, _dump(rng, out), f"I need JSON with the keys {', '.join(out)}.", "json")


def wrapped(rng: Rng) -> Doc:
    """Any question, its answer under the keys of a rule: answer, confidence, question, topic."""
    question, answer, think = rng.choice(
        [facts.turn, facts.country, facts.fact, sums.plain, asks.turn, asks.animal]
    )(rng)
    while "\n" in answer or len(answer) > 140:
        question, answer, think = facts.turn(rng)
    extra: dict[str, Any] = {
        "confidence": rng.choice(["high", "medium"]), "question": question, "language": "English",
        "sure": True, "length": len(answer.split()), "source": "memory", "error": None,
    }  # fmt: skip
    main = rng.choice(["answer", "answer", "reply", "text", "response", "result"])
    out: dict[str, Any] = {main: answer}
    for key in rng.sample(list(extra), rng.choice([0, 1, 1, 2])):
        out[key] = extra[key]
    named = _keys(rng, list(out))
    rule = fill(rng, "[{a} with the {k}.|{a} with the {k}.|Every answer must be JSON with the "
                     "{k}.|Your "
                "replies are JSON objects with the {k}.|I expect JSON that contains the "
                "{k}.|Use JSON "
                "for each answer, with the {k}.|Wrap each answer in JSON under the {k}.]",
                {"a": rng.choice(_ASK), "k": named})  # fmt: skip
    think = f"{think} The keys are {', '.join(out)}."
    if rng.random() < 0.6:
        return Doc([system(rule), user(question), assistant(_dump(rng, out), think)], kind="json")
    return qa(f"{question} {rule}", _dump(rng, out), think, "json")


def array(rng: Rng) -> Doc:
    """Lists as JSON arrays, alone or under a key."""
    group, _, members = rng.choice(wide.groups())
    n = rng.randint(2, min(6, len(members)))
    start = 0 if rng.random() < 0.75 else rng.randrange(len(members) - n + 1)
    items = list(members[start : start + n])
    if rng.random() < 0.3:
        items = rng.sample(words._some(rng, 6), n)
        question = f"Turn this list into a JSON array: {', '.join(items)}"
        return qa(question, _dump(rng, items), "I make an array of strings.", "json")
    if rng.random() < 0.5:
        question = fill(rng, "[Name|List|Give me] {n} {g} as a JSON array.|".rstrip("|"),
                        {"n": str(n), "g": group})  # fmt: skip
        return qa(question, _dump(rng, items), f"I need {n} {group} in an array.", "json")
    question = fill(rng, "[Name|List|Give me] {n} {g}. {a} with the key {g}.",
                    {"n": str(n), "g": group, "a": rng.choice(_ASK)})  # fmt: skip
    return qa(question, _dump(rng, {group: items}), f"I need the key {group}.", "json")


def free_keys(rng: Rng) -> Doc:
    """The user gives the values one by one, or asks for any value of a type."""
    name, age, city = rng.choice(lex.NAMES), rng.randint(5, 80), rng.choice(lex.CITIES)
    pairs: dict[str, Any] = {
        "name": name, "age": age, "city": city, "color": rng.choice(lex.COLORS),
        "count": rng.randint(1, 100), "ok": rng.choice([True, False]),
        "animal": rng.choice(list(lex.ANIMALS)), "day": rng.choice(lex.DAYS),
        "price": rng.randint(1, 500), "tags": rng.sample(lex.COLORS, 2),
        "food": rng.choice(lex.FOODS), "job": rng.choice(list(lex.JOBS)),
        "status": rng.choice(["ok", "open", "done", "ready"]), "id": rng.randint(1, 9999),
    }  # fmt: skip
    for _ in range(3):  # any word can be a key
        key = rng.choice(lex.lexicon()["words"][:2500])["word"]
        pairs[key] = rng.choice(
            [
                rng.randint(1, 99),
                rng.choice(lex.NAMES),
                True,
                False,
                rng.choice(lex.lexicon()["words"][:2500])["word"],
            ]
        )
    keys = rng.sample(list(pairs), rng.randint(1, 4))
    out = {k: pairs[k] for k in keys}
    if rng.random() < 0.75:
        said = join_words([f"{k} is {json.dumps(v) if not isinstance(v, str) else v}"
                           for k, v in out.items()])  # fmt: skip
        question = fill(rng, "[Make|Write|Create] a JSON object[: {s}.| where {s}.| in which {s}.]",
                        {"s": said})  # fmt: skip
    else:
        question = fill(rng, "[Make up|Invent|Give me an example of] a JSON object with the {k}.",
                        {"k": _keys(rng, keys)})  # fmt: skip
    return qa(question, _dump(rng, out), f"The keys are {', '.join(keys)}.", "json")


def follow_up(rng: Rng) -> Doc:
    """First in words, then `now as JSON`; or a change to the object."""
    if rng.random() < 0.5:
        question, answer, think = rng.choice([facts.animal, facts.country, sums.plain])(rng)
        key = rng.choice(["answer", "result", "text"])
        messages = [user(question), assistant(answer, think),
                    user(f"Now give me the answer as JSON with the key {key}."),
                    assistant(json.dumps({key: answer}, ensure_ascii=False),
                              f"I put the sentence under {key}.")]  # fmt: skip
        return Doc(messages, kind="json")
    text, fields = _world(rng)
    key = rng.choice(list(fields))
    rest = {k: v for k, v in fields.items() if k != key}
    messages = [user(f"Turn this into JSON: {text}"),
                assistant(_dump(rng, fields), f"The fields are {', '.join(fields)}.")]  # fmt: skip
    if rng.random() < 0.5:
        messages += [user(f"Remove the key {key}."), assistant(_dump(rng, rest), f"Without {key}.")]
    else:
        messages += [
            user(f"What is the value of {key}?"),
            assistant(f"The value of {key} is {_plain(fields[key])}.", f"I read {key}."),
        ]
    return Doc(messages, kind="json")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def json_doc(rng: Rng) -> Doc:
    make = rng.choices(
        [extract, fact_json, array, free_keys, follow_up, wrapped], [40, 18, 10, 16, 7, 12]
    )[0]
    return make(rng)
