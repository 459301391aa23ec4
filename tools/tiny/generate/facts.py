"""Questions with one right answer: words, animals, jobs, countries, colours, everyday facts.

Owns the ways to ask for each kind of fact and the short follow-ups (`And of Spain?`).
The facts come from `data/facts.txt`, the animal table and the lexicon; none is computed here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from . import lexicon as lex
from .base import (
    Doc,
    Rng,
    article,
    assistant,
    cap,
    casual,
    fill,
    join_words,
    lines,
    plural,
    qa,
    user,
)

Turn = tuple[str, str, str]  # question, answer, trace


@lru_cache(maxsize=1)
def _facts() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    out = []
    for row in lines("facts.txt"):
        questions, _, answers = row.partition("=>")
        out.append((tuple(q.strip() for q in questions.split("|")),
                    tuple(a.strip() for a in answers.split("|"))))  # fmt: skip
    return tuple(out)


def fact(rng: Rng) -> Turn:
    questions, answers = rng.choice(_facts())
    answer = rng.choice(answers)
    think = fill(rng, "[I know this.|This is a question about a fact.|Let me remember.] ")
    return rng.choice(questions), answer, think + answer.split(". ")[0].rstrip(".") + "."


def _word(rng: Rng) -> dict[str, Any]:
    """A word of the lexicon; frequent and hand-listed words come more often."""
    words = lex.lexicon()["words"]
    n = len(words)
    return words[int(n * rng.random() ** 1.3)]


_DEFINE = (
    "What does [the word|] {q} mean?", "Define {q}.", "What is the meaning of {q}?",
    "[Can you explain|Explain|Please explain] the word {q}.", "What is the definition of {q}?",
    "define {w}", "Give me a [short|] definition of {q}.", "What do you call {q}? Define it.",
    "I do not know the word {q}. What does it mean?", "meaning of {w}", "What does {w} mean?",
    "How would you define {q}?", "Tell me what {q} means.", "Could you tell me what {w} means?",
)  # fmt: skip
_DEFINE_NOUN = ("What is {a}?", "What's {a}?", "Tell me what {a} is.", "What exactly is {a}?",
                "Can you tell me what {a} is?", "what is {w}")  # fmt: skip


_THINGS = frozenset(["artifact", "organism", "person", "animal", "object", "structure", "device",
                     "container", "location", "group", "body part", "part", "thing", "region",
                     "organization", "unit", "area", "creature", "event", "line", "communication",
                     "message", "writing", "document", "building", "vehicle"])  # fmt: skip
_STUFF = frozenset(["substance", "matter", "material", "feeling", "emotion", "quality", "trait",
                    "attribute", "state", "activity", "act", "liquid", "fluid", "cognition",
                    "phenomenon", "process", "physical phenomenon", "property"])  # fmt: skip


def countable(entry: dict[str, Any]) -> bool:
    """Whether the noun takes an article: a ladder, but courage."""
    kinds = set(entry.get("kinds", ()))
    return entry["pos"] == "noun" and bool(kinds & _THINGS) and not kinds & _STUFF


@lru_cache(maxsize=1)
def _told() -> dict[str, str]:
    """Words that a row of `facts.txt` explains: its answer is the definition."""
    out = {}
    for questions, answers in _facts():
        for q in questions:
            found = re.fullmatch(r"What is (?:an? |the )?([a-z]+)\?", q)
            if found:
                out[found.group(1)] = answers[0]
    return out


def definition_of(entry: dict[str, Any]) -> str:
    """The one sentence that defines a word: always the same, so that it can be memorised."""
    word, gloss = entry["word"], entry["gloss"]
    if word in _told():
        return _told()[word]
    if entry["pos"] == "noun":
        first = gloss.split()[0]
        if first in ("a", "an", "the", "any", "one", "something", "someone"):
            return f"{cap(article(word) if countable(entry) else word)} is {gloss}."
        return f"{cap(word)} means {gloss}."
    if entry["pos"] == "verb":
        return f"To {word} means to {gloss}."
    return f"{cap(word)} means {gloss}."


def definition(rng: Rng) -> Turn:
    entry = _word(rng)
    word = entry["word"]
    quoted = rng.choice([f'"{word}"', f"'{word}'", word, word])
    forms = _DEFINE + (_DEFINE_NOUN * 2 if entry["pos"] == "noun" else ())
    one = article(word) if countable(entry) else word
    question = fill(rng, rng.choice(forms), {"q": quoted, "w": word, "a": one})
    question = question.replace("  ", " ")
    answer = definition_of(entry)
    if entry.get("example") and rng.random() < 0.15:
        answer += f' For example: "{cap(entry["example"].rstrip("."))}."'
        question = question.rstrip("?.") + rng.choice([
            "? Give an example.", " and give an example.", "? Use it in a sentence."])  # fmt: skip
    return question, answer, f'The word "{word}" is {article(entry["pos"])}. I will define it.'


def relation(rng: Rng) -> Turn:
    """Synonym, opposite, part of speech, kind or parts of a word."""
    for _ in range(50):
        e = _word(rng)
        w = e["word"]
        x = rng.random()
        if x < 0.25 and e.get("not"):
            q = "What is the opposite of {w}?|Give me the opposite of {w}.|Opposite of {w}?|" \
                "What is an antonym of {w}?|{w} is the opposite of what?"  # fmt: skip
            return (rng.choice(q.split("|")).replace("{w}", w),
                    f"The opposite of {w} is {e['not']}.",
                    f"I need a word that means the opposite of {w}.")  # fmt: skip
        if x < 0.45 and e.get("like"):
            q = "Give me a synonym for {w}.|What is another word for {w}?|synonym of {w}|" \
                "Which word means the same as {w}?|A word like {w}?"  # fmt: skip
            return (
                rng.choice(q.split("|")).replace("{w}", w),
                f"Another word for {w} is {e['like'][0]}.",
                f"I need a word like {w}.",
            )
        if x < 0.55:
            q = rng.choice(["Is {w} a noun or a verb?", "What kind of word is {w}?",
                            "What part of speech is {w}?"]).replace("{w}", f'"{w}"')  # fmt: skip
            return q, f'"{cap(w)}" is {article(e["pos"])}.', f"I think of how {w} is used."
        if x < 0.85 and e.get("kinds") and e["pos"] == "noun":
            kind = e["kinds"][0]
            q = rng.choice(["What kind of thing is {a}?", "What sort of thing is {a}?",
                            "{w}: what kind of thing is it?"])  # fmt: skip
            return (
                q.replace("{a}", article(w)).replace("{w}", w),
                f"{cap(article(w))} is a kind of {kind}.",
                f"I need a wider word than {w}.",
            )
        if e.get("parts") and len(e["parts"]) > 1:
            parts = [article(p) for p in e["parts"][:4]]
            return (
                f"What are the parts of {article(w)}?",
                f"{cap(article(w))} has {join_words(parts)}.",
                f"I list parts of {article(w)}.",
            )
    return fact(rng)


_GROUPS = {
    "animal": lex.ANIMALS, "food": lex.FOODS, "color": lex.COLORS, "day of the week": lex.DAYS,
    "month": lex.MONTHS, "job": lex.JOBS, "place": lex.PLACES,
}  # fmt: skip


def is_a(rng: Rng) -> Turn:
    """Yes/no: `Is a carrot an animal?`"""
    group, word = _pick_group(rng)
    asked = group if rng.random() < 0.5 else rng.choice([g for g in _GROUPS if g != group])
    if word in _GROUPS[asked] and asked != group:
        asked = group
    subject = word if group in ("color", "day of the week", "month") else article(word)
    question = fill(rng, "Is {s} {g}?", {"s": subject, "g": article(asked)})
    if asked == group:
        answer = f"Yes, {subject} is {article(asked)}."
    else:
        answer = f"No, {subject} is not {article(asked)}. It is {article(group)}."
    return question, answer, f"{cap(word)} is {article(group)}. The question asks for {asked}."


def _pick_group(rng: Rng) -> tuple[str, str]:
    group = rng.choice(list(_GROUPS))
    return group, rng.choice(list(_GROUPS[group]))


def list_some(rng: Rng) -> Turn:
    """`Name three animals.`"""
    group, _ = _pick_group(rng)
    n = rng.randint(2, 6)
    word = plural(group) if group != "day of the week" else "days of the week"
    items = rng.sample(list(_GROUPS[group]), n)
    from .base import number_word

    shown = rng.choice([str(n), number_word(n)])
    question = fill(rng, "[Name|List|Give me|Tell me|Write down] {n} {w}[.|, please.]",
                    {"n": shown, "w": word})  # fmt: skip
    answer = sentence_list(rng, items)
    return question, answer, f"I need {n} {word}: {', '.join(items)}."


def sentence_list(rng: Rng, items: list[str]) -> str:
    x = rng.random()
    if x < 0.5:
        return cap(join_words(items)) + "."
    if x < 0.75:
        return "\n".join(f"{i + 1}. {cap(w)}" for i, w in enumerate(items))
    return "\n".join(f"- {cap(w)}" for w in items)


def animal(rng: Rng) -> Turn:
    a = rng.choice(list(lex.ANIMALS.values()))
    n, one, many = a.name, article(a.name), plural(a.name)
    legs = f"{cap(one)} has {'no' if a.legs == 0 else a.legs} legs."
    sound = f"{cap(one)} makes no sound that we hear." if a.sound == "no sound" else (
        f'{cap(one)} says "{a.sound}".')  # fmt: skip
    about = f"{cap(one)} is {article(a.group)} that lives {a.home} and eats {a.food}."
    if a.group == n:
        about = f"{cap(one)} is an animal that lives {a.home} and eats {a.food}."
    rows = [
        (f"Where does {one} live?|Where do {many} live?|Where can I find {one}?",
         f"{cap(one)} lives {a.home}."),
        (f"What does {one} eat?|What do {many} eat?|What is the food of {one}?",
         f"{cap(one)} eats {a.food}."),
        (f"How many legs does {one} have?|How many legs do {many} have?", legs),
        (f"What sound does {one} make?|What noise does {one} make?|What does {one} say?", sound),
        (f"What is a baby {n} called?|What do you call a young {n}?", f"A baby {n} is called "
         f"{article(a.baby)}."),
        (f"What kind of animal is {one}?|Is {one} a mammal?|What group does {one} belong to?",
         f"{cap(one)} is {article(a.group)}."),
        (f"What is {one}?|Tell me about the {n}.|Tell me something about {many}.|What are {many}?|"
         f"Define {n}.|Describe {one}.|What does the word {n} mean?", about),
        (f"What is {one}?|Tell me about {many}.", about),
    ]  # fmt: skip
    questions, answer = rng.choice(rows)
    question = rng.choice(questions.split("|"))
    if question.startswith("Is ") and a.group != "mammal":
        answer = f"No, {one} is {article(a.group)}."
    elif question.startswith("Is "):
        answer = f"Yes, {one} is a mammal."
    return question, answer, f"I think of what I know about {many}."


def job(rng: Rng) -> Turn:
    name, does = rng.choice(list(lex.JOBS.items()))
    one = article(name)
    x = rng.random()
    if x < 0.25:
        return (fill(rng, "[Who|What person|Which person] {d}?", {"d": does}),
                f"{cap(one)} {does}.", f"The job is {name}.")  # fmt: skip
    q = rng.choice(["What does {a} do?", "What is {a}?", "What is the job of {a}?", "Define {n}.",
                    "What does the word {n} mean?"])  # fmt: skip
    answer = (
        f"{cap(one)} {does}."
        if " do" in q or "job" in q
        else (f"{cap(one)} is a person who {does}.")
    )
    return q.replace("{a}", one).replace("{n}", name), answer, f"I think of the work of {one}."


def country(rng: Rng) -> Turn:
    cs = lex.lexicon()["countries"]
    c = cs[int(len(cs) * rng.random() ** 1.5)]
    name, capital = c["name"], c["capital"]
    people = c["people"]
    count = f"{people / 1e6:.0f} million" if people > 2e6 else f"{round(people, -4):,}"
    rows = [
        ("What is the capital of {n}?|what's the capital of {n}|Tell me the capital [city|] of {n}."
         "|Which city is the capital of {n}?|Capital of {n}?|Name the capital of {n}.|Do you know "
         "the capital of {n}?|Which capital does {n} have?",
         f"The capital of {name} is {capital}."),
    ] * 4 + [
        ("{c} is the capital of which country?|Which country has {c} as its capital?|{c} is the "
         "capital of what?", f"{capital} is the capital of {name}."),
        ("On which continent is {n}?|Where is {n}?|Which continent is {n} in?|Where is {n} on the "
         "map?", f"{cap(name)} is in {c['continent']}."),
        ("What is the currency of {n}?|What money do people use in {n}?|How do people pay in {n}?",
         f"The currency of {name} is the {c['currency']}."),
        ("How many people live in {n}?|What is the population of {n}?",
         f"About {count} people live in {name}."),
        ("Tell me about {n}.|Give me some facts about {n}.|What do you know about {n}?|What is "
         "{n}?",
         f"{cap(name)} is a country in {c['continent']}. Its capital is {capital}, and its "
         f"currency is the {c['currency']}."),
        ("Where is {c}?|In which country is {c}?|What is {c}?",
         f"{capital} is the capital of {name}."),
    ]  # fmt: skip
    questions, answer = rng.choice(rows)
    question = fill(rng, rng.choice(_split(questions)), {"n": name, "c": capital})
    return question.replace("  ", " "), answer, f"The question is about {name}."


def _split(text: str) -> list[str]:
    """Split on `|` outside brackets."""
    out, depth, current = [], 0, ""
    for ch in text:
        depth += (ch == "[") - (ch == "]")
        if ch == "|" and not depth:
            out.append(current)
            current = ""
        else:
            current += ch
    return [*out, current]


_COLORS = {
    "the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "coal": "black",
    "a strawberry": "red", "an orange": "orange", "a lemon": "yellow", "blood": "red",
    "the sea": "blue", "a carrot": "orange", "milk": "white", "a crow": "black", "a rose": "red",
    "chocolate": "brown", "a flamingo": "pink", "an elephant": "gray", "the sun": "yellow",
    "a tomato": "red", "a leaf": "green", "a frog": "green", "salt": "white", "a plum": "purple",
    "a pumpkin": "orange", "gold": "yellow", "the night sky": "black", "a cherry": "red",
}  # fmt: skip


def color(rng: Rng) -> Turn:
    thing, answer = rng.choice(list(_COLORS.items()))
    question = fill(rng, "[What|Which] color is {t}?|".rstrip("|"), {"t": thing})
    return question, f"{cap(thing)} is {answer}.", f"I think of {thing}."


def calendar(rng: Rng) -> Turn:
    i, j = rng.randrange(7), rng.randrange(12)
    d, m = lex.DAYS, lex.MONTHS
    rows = [
        (f"What day comes after {d[i]}?", f"{d[(i + 1) % 7]} comes after {d[i]}."),
        (f"What day comes before {d[i]}?", f"{d[(i - 1) % 7]} comes before {d[i]}."),
        (f"Today is {d[i]}. What day is tomorrow?", f"Tomorrow is {d[(i + 1) % 7]}."),
        (f"Today is {d[i]}. What day was yesterday?", f"Yesterday was {d[(i - 1) % 7]}."),
        (f"What month comes after {m[j]}?", f"{m[(j + 1) % 12]} comes after {m[j]}."),
        (f"What month comes before {m[j]}?", f"{m[(j - 1) % 12]} comes before {m[j]}."),
        (f"How many days does {m[j]} have?", f"{m[j]} has {lex.MONTH_DAYS[j]} days."),
        (f"Which month is number {j + 1}?", f"Month number {j + 1} is {m[j]}."),
        ("Name the days of the week.", f"The days of the week are {join_words(d)}."),
        ("Name the months of the year.", f"The months are {join_words(m)}."),
    ]  # fmt: skip
    question, answer = rng.choice(rows)
    return question, answer, "I go through the calendar."


TURNS = ((fact, 30), (definition, 45), (relation, 8), (is_a, 2), (animal, 12),
         (job, 4), (country, 16), (color, 3), (calendar, 5))  # fmt: skip


def turn(rng: Rng) -> Turn:
    make = rng.choices([t for t, _ in TURNS], [w for _, w in TURNS])[0]
    question, answer, think = make(rng)
    return casual(rng, question), answer, think


def fact_doc(rng: Rng) -> Doc:
    question, answer, think = turn(rng)
    return qa(question, answer, think, kind="fact")


def elliptical(rng: Rng) -> Doc:
    """A question and its short follow-ups: `And of Spain?`, `And a cow?`"""
    messages = []
    cs = lex.lexicon()["countries"][:90]
    n = rng.randint(2, 4)
    which = rng.randrange(4)
    for i, c in enumerate(rng.sample(cs, n)):
        a = rng.choice(list(lex.ANIMALS.values()))
        e = rng.choice([w for w in lex.lexicon()["words"][:600] if w["pos"] == "noun"])
        one = article(a.name)
        full, short, answer = (
            (f"What is the capital of {c['name']}?", f"of {c['name']}",
             f"The capital of {c['name']} is {c['capital']}."),
            (f"What does {one} eat?", one, f"{cap(one)} eats {a.food}."),
            (f"Where does {one} live?", one, f"{cap(one)} lives {a.home}."),
            (f"What is {article(e['word'])}?", article(e["word"]), definition_of(e)),
        )[which]  # fmt: skip
        question = (
            full
            if i == 0
            else fill(
                rng,
                "[And {s}?|What about {x}?|and {s}|And what about {x}?]",
                {"s": short, "x": short.removeprefix("of ")},
            )
        )
        messages += [user(question), assistant(answer, f"The question is: {full}")]
    return Doc(messages, kind="fact")
