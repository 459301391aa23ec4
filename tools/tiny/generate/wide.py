"""Breadth: lists by group, `it` questions, sizes, kinds, polite refusals, things nobody told it.

Owns skills that cut across the other modules. Lists follow the order in which people name things,
so that a greedy answer does not repeat itself.
"""

from __future__ import annotations

from functools import lru_cache

from . import chat, facts
from . import lexicon as lex
from .base import (
    Doc,
    Rng,
    article,
    assistant,
    cap,
    casual,
    fill,
    lines,
    number_word,
    plural,
    qa,
    user,
)

Group = tuple[str, str, tuple[str, ...]]


@lru_cache(maxsize=1)
def groups() -> tuple[Group, ...]:
    out = []
    for row in lines("groups.txt"):
        name, one, members = (x.strip() for x in row.split("|"))
        out.append((name, one, tuple(m.strip() for m in members.split(","))))
    return tuple(out)


def name_some(rng: Rng) -> Doc:
    """`Name three fruits.`, and `Another one?`"""
    name, one, members = rng.choice(groups())
    n = rng.randint(1, min(6, len(members) - 1))
    start = 0 if rng.random() < 0.75 else rng.randrange(len(members) - n)
    items = list(members[start : start + n])
    shown = rng.choice([str(n), number_word(n)])
    if n == 1:
        question = fill(rng, ["[Name|Tell me|Give me] {a}.", " {o}."][0],
                        {"a": article(one), "o": one})  # fmt: skip
    else:
        question = fill(rng, "[Name|List|Give me|Tell me|Write down|Can you name] {s} {g}",
                        {"s": shown, "g": name})  # fmt: skip
        question += "?" if question.startswith("Can") else rng.choice([".", ", please.", "."])
    answer = facts.sentence_list(rng, items) if n > 1 else f"{cap(items[0])}."
    think = f"I need {n} {name}: {', '.join(items)}."
    messages = [user(casual(rng, question)), assistant(answer, think)]
    if rng.random() < 0.25 and start + n < len(members):
        more = members[start + n]
        messages += [
            user(fill(rng, "[Another one?|One more, please.|And one more?]")),
            assistant(f"{cap(more)}.", f"{cap(more)} was not in the list yet."),
        ]
    return Doc(messages, kind="list")  # fmt: skip


def kind_of(rng: Rng) -> Doc:
    """`Is a carrot a vegetable?`"""
    name, one, members = rng.choice(groups())
    word = rng.choice(members)
    proper = word[0].isupper()
    bare = proper or name in ("colors", "drinks", "sports", "metals", "feelings", "foods",
                              "school subjects", "kinds of weather", "seasons")  # fmt: skip
    subject = word if bare else article(word)
    if rng.random() < 0.5:
        asked, answer = one, f"Yes, {subject} is {article(one)}."
    else:
        asked = rng.choice([g for g in groups() if word not in g[2]])[1]
        answer = f"No, {subject} is not {article(asked)}. It is {article(one)}."
    return qa(casual(rng, f"Is {subject} {article(asked)}?"), answer,
              f"{cap(subject)} is {article(one)}.", "fact")  # fmt: skip


_SIZES = (
    "ant", "ladybug", "bee", "coin", "mouse", "egg", "apple", "ball", "book", "cat", "chair", "dog",
    "table", "person", "door", "cow", "horse", "car", "elephant", "bus", "house", "tree", "whale",
    "ship", "church", "mountain", "city", "country", "continent",
)  # fmt: skip


def bigger(rng: Rng) -> Doc:
    i, j = sorted(rng.sample(range(len(_SIZES)), 2))
    small, big = article(_SIZES[i]), article(_SIZES[j])
    a, b = (small, big) if rng.random() < 0.5 else (big, small)
    rows = [
        (f"[Which|What] is bigger, {a} or {b}?|Is {big} bigger than {small}?",
         f"{cap(big)} is bigger than {small}."),
        (f"[Which|What] is smaller, {a} or {b}?", f"{cap(small)} is smaller than {big}."),
        (f"Is {small} bigger than {big}?", f"No, {big} is bigger than {small}."),
        (f"Is {big} bigger than {small}?", f"Yes, {big} is bigger than {small}."),
    ]  # fmt: skip
    ask, answer = rng.choice(rows)
    question = fill(rng, ask.split("|Is")[0]) if ask.startswith("[") else ask
    return qa(casual(rng, question), answer, f"I compare the size of {small} and {big}.", "fact")


def about_it(rng: Rng) -> Doc:
    """A country or an animal is named once; later questions say `it`."""
    if rng.random() < 0.55:
        c = rng.choice(lex.lexicon()["countries"][:110])
        name = c["name"]
        rows = [
            (f"What is the capital of {name}?", "What is its capital?|And the capital?",
             f"The capital of {name} is {c['capital']}."),
            (f"What is the currency of {name}?", "What is its currency?|And what is its currency?|"
             "What money do they use there?", f"The currency of {name} is the {c['currency']}."),
            (f"Where is {name}?", "Where is it?|On which continent is it?|And where is that?",
             f"{cap(name)} is in {c['continent']}."),
            (f"Tell me about {name}.", "Tell me more about it.|What else do you know about it?",
             f"{cap(name)} is a country in {c['continent']}. Its capital is {c['capital']}, and "
             f"its currency is the {c['currency']}."),
        ]  # fmt: skip
    else:
        a = rng.choice(list(lex.ANIMALS.values()))
        one, name = article(a.name), a.name
        legs = "no" if a.legs == 0 else str(a.legs)
        rows = [
            (f"What kind of animal is {one}?", "What kind of animal is it?",
             f"{cap(one)} is {article(a.group)}."),
            (f"What does {one} eat?", "What does it eat?|And what does it eat?",
             f"{cap(one)} eats {a.food}."),
            (f"Where does {one} live?", "Where does it live?|And where does it live?",
             f"{cap(one)} lives {a.home}."),
            (f"How many legs does {one} have?", "How many legs does it have?|And how many legs?",
             f"{cap(one)} has {legs} legs."),
        ]  # fmt: skip
    chosen = rng.sample(rows, rng.randint(2, 4))
    messages = []
    for i, (full, short, answer) in enumerate(chosen):
        question = full if i == 0 else rng.choice(short.split("|"))
        messages += [user(casual(rng, question)), assistant(answer, f"This is about {name}.")]
    return Doc(messages, kind="fact")


def at_once(rng: Rng) -> Doc:
    """Facts and the question about them in one message."""
    told = rng.sample(chat._memories(rng), rng.randint(1, 3))
    asked = rng.choice(told)
    said = " ".join(chat._pick(rng, m.tell) for m in told)
    if rng.random() < 0.3:
        said = fill(rng, "[Hello!|Hi!|Good morning!] ") + said
    question = f"{said} {chat._pick(rng, asked.asks)}"
    return qa(question, asked.answer, f"The message says it. {asked.answer}", "memory")


_CANNOT = (
    ("Translate \"{w}\" [into|to] {l}.|How do you say {w} in {l}?|What is {w} in {l}?|Translate "
     "this into {l}: the {w} is here.|Say {w} in {l}.",
     "I am sorry, I only know simple English, so I cannot translate that.",
     "I do not know other languages."),
    ("Write a [Python|Java|C++|JavaScript] program[| that counts {ws}].|Write a function for {ws}.|"
     "Can you write code?|Write me some code.|Program a game with {ws}.",
     "I am sorry, I am too small to write programs.", "I cannot write code."),
    ("Write an essay about {ws}.|Write a long article about {ws}.|Write a book about {ws}.|Write a "
     "business plan.|Write my homework.", "That is too long for me. I can write a short story or a "
     "few sentences.", "I can only write short texts."),
    ("What is {big} [times|divided by|*|/] {big2}?|What is the square root of {big}?|Calculate "
     "{big} * {big2}.|What is {big} to the power of 7?", "That is too hard for me. Please use a "
     "calculator.", "These numbers are too large for me."),
    ("Draw a {w}.|Show me a picture of a {w}.|Make a picture of a {w}.|Paint a {w} for me.",
     "I cannot make pictures. I can only write text.", "I only write text."),
    ("I have a pain in my chest.|What medicine should I take?|Am I ill?|Which pills help against "
     "fever?|I feel very ill.", "I am not a doctor. Please ask a doctor.", "This needs a doctor."),
    ("Should I sign this contract?|Can I sue my neighbor?|Which shares should I buy?|How do I pay "
     "less tax?", "I cannot advise you on that. Please ask an expert.", "This needs an expert."),
)  # fmt: skip


def cannot(rng: Rng) -> Doc:
    """Requests beyond a model of this size, turned down plainly."""
    asks, answer, think = rng.choice(_CANNOT)
    word = rng.choice(lex.lexicon()["words"][:1200])["word"]
    slots = {
        "w": word,
        "ws": plural(word),
        "l": rng.choice(lex.WORDS["LANGUAGES"]),
        "big": str(rng.randint(1200, 99999)),
        "big2": str(rng.randint(130, 9999)),
    }
    question = fill(rng, rng.choice(facts._split(asks)), slots)
    return qa(casual(rng, question), answer, think, "unknown")


def trivia(rng: Rng) -> Doc:
    """Questions of fact that it was never told."""
    row = rng.choice(lines("unknown.txt"))
    thing = rng.choice(lex.THING_LIST)
    slots = {"x": thing, "xs": plural(thing), "n": rng.choice(lex.NAMES),
             "t": rng.choice(lex.CITIES), "c": rng.choice(lex.lexicon()["countries"][:80])["name"],
             "y": str(rng.randint(1200, 2024))}  # fmt: skip
    question = fill(rng, rng.choice(row.split("|")), slots)
    answer = fill(rng, "[I do not know. I am only a small model.|I do not know. I cannot look it "
                  "up.]")  # fmt: skip
    return qa(casual(rng, question), answer, "I have never learned this, so I say so.", "unknown")
