"""One-fact questions in every dress: direct, indirect, as an order, for somebody else, in context.

Owns the cores of the questions about words, countries, animals and sums, and chains of follow-ups
that change one slot (`And of Spain?`, `The same for a cow.`). Answers have the single wording of
`facts.py`; the dress comes from `phrasing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import facts, wide
from . import lexicon as lex
from .base import Doc, Rng, article, assistant, cap, fill, number_word, plural, qa, user
from .phrasing import ask, dressed

Turn = tuple[str, str, str]  # question, answer, trace


def define(rng: Rng, e: dict[str, Any] | None = None) -> Turn:
    e = e or facts._word(rng)
    w = e["word"]
    a = article(w) if facts.countable(e) else f"to {w}" if e["pos"] == "verb" else w
    q = rng.choice([w, w, f'"{w}"', f"the word {w}", f'the word "{w}"', f"the term {w}"])
    noun = e["pos"] == "noun"
    direct = (f"What does {q} mean?|What is the meaning of {q}?|What is meant by {q}?|What does "
              f"{q} stand for?|In [plain|other|easy|short] words, what does {w} mean?|What do "
              f"people "
              f"mean by {q}?|{cap(w)}: what does that mean?|What is the definition of {q}?|How do "
              f"you define {q}?|I read {q} somewhere. What does it mean?|How would you explain "
              f"{q}?|"
              f"What exactly does {w} mean?|{cap(w)}?|Meaning of {w}?|{w} - what's "
              "that?")  # fmt: skip
    clause = f"what {w} means|what {q} means|what {q} means|what the meaning of {q} is"
    core = (f"define {q}|explain {q}|explain {q}|give me [a|the|a short] definition of {q}|tell me "
            f"the meaning of {q}|explain what {w} means|explain {q} to [a child|me|my son|a "
            f"beginner|"
            f"somebody who is new here]|say in [a few|plain|your own] words what {w} "
            f"means|describe "
            f"the meaning of {q}|put {q} into simple words")  # fmt: skip
    if noun:
        direct += (
            f"|What is {a}?|What's {a}?|What is {a}?|What exactly is {a}?|So what is {a}?|"
            f"What kind of thing is that, {a}?|How would you describe {a} to a child?|What "
            f"can you say about {a}?|In [plain|a few|your own] words, what is {a}?"
        )
        clause += f"|what {a} is|what {a} is|what {a} is|what {a} really is"
        core += (f"|describe {a}|tell me about {a}|explain what {a} is|describe what {a} "
                 f"is|explain to me what "
                 f"{a} is|"
                 f"tell me in one sentence what {a} is")  # fmt: skip
    answer = facts.definition_of(e)
    return ask(rng, direct, clause, core), answer, f'I will define "{w}".'


def synonym(rng: Rng) -> Turn:
    while True:
        e = facts._word(rng)
        w, x = e["word"], rng.random()
        if x < 0.55 and e.get("like"):
            text = ask(rng, f"What is another word for {w}?|Which word means the same as {w}?|A "
                       f"synonym for {w}?|What is a synonym of {w}?|What other word could I use "
                       f"for "
                       f"{w}?|How else can I say {w}?|What else can you say instead of {w}?",
                       f"what another word for {w} is|which word means the same as {w}|how else "
                       "one can say " + w, f"find another word for {w}|give me a synonym of {w}|"
                       f"replace {w} with another word|say {w} in another way|name a word that "
                       f"means {w}|find a word like {w}")  # fmt: skip
            return text, f"Another word for {w} is {e['like'][0]}.", f"I need a word like {w}."
        if x >= 0.55 and e.get("not"):
            text = ask(rng, f"What is the opposite of {w}?|Which word is the opposite of {w}?|The "
                       f"opposite of {w}?|What is the contrary of {w}?|{w} is the opposite of "
                       f"what?",
                       f"what the opposite of {w} is|which word is the opposite of {w}",
                       f"give me the opposite of {w}|name the opposite of {w}|find the opposite of "
                       f"{w}|tell me the opposite of {w}")  # fmt: skip
            return text, f"The opposite of {w} is {e['not']}.", f"I need the opposite of {w}."


def _country(rng: Rng) -> dict[str, Any]:
    cs = lex.lexicon()["countries"]
    return cs[int(len(cs) * rng.random() ** 1.4)]


_CONTEXT = (
    "[I am|We are|My sister is|My brother is|My parents are] [flying to|visiting|traveling to|"
    "moving to|in|on holiday in] {n}.", "I am [reading|writing|learning] about {n}.",
    "I have a [friend|cousin|pen friend] in {n}.", "[My friend|Our teacher|Somebody] comes from "
    "{n}.", "I saw a film about {n}.", "Next [week|summer|year] [I|we] will visit {n}.",
    "My quiz has a question about {n}.", "I would love to see {n}.", "I used to live in {n}.",
    "Let us talk about {n}.", "We have a map of {n}.",
)  # fmt: skip


def country(rng: Rng, c: dict[str, Any] | None = None, what: int = -1) -> Turn:
    c = c or _country(rng)
    n, own = c["name"], c["name"] + ("'" if c["name"].endswith("s") else "'s")
    what = rng.choices([0, 1, 2], [6, 2, 2])[0] if what < 0 else what
    noun = ("capital", "currency", "continent")[what]
    answer = (f"The capital of {n} is {c['capital']}.",
              f"The currency of {n} is the {c['currency']}.",
              f"{cap(n)} is in {c['continent']}.")[what]  # fmt: skip
    if rng.random() < 0.2:
        about = fill(rng, rng.choice(_CONTEXT), {"n": n})
        question = fill(rng, (
            "[What is its capital?|What is the capital?|What is the capital city called?|What is "
            "the name of its capital?|Do you know the capital?|Name the capital, please.|And the "
            "capital is?|Can you tell me the capital?|Which city is the capital?]",
            "[What is its currency?|What is the currency?|What money do they use there?|How do "
            "people pay there?|Which money do I need there?]",
            "[On which continent is it?|Which continent is that?|Where is it?|What continent is it "
            "on?]")[what])  # fmt: skip
        return f"{about} {question}", answer, f"The question is about {n}."
    d, i, o = (
        (f"What is the capital of {n}?|What is {own} capital?|Which city is the capital of {n}?|"
         f"What is the name of the capital of {n}?|{cap(own)} capital?|Capital of {n}?|What "
         f"city is "
         f"{own} capital?|What is the capital city of {n}?|What is the capital of {n} called?|{n}: "
         "what is the capital?|From which city is " + n + " governed?",
         f"what the capital of {n} is|which city is the capital of {n}|{own} capital|what {own} "
         f"capital is called|the capital of {n}|what {own} capital is",
         f"name the capital of {n}|give me the capital of {n}|tell me {own} capital|name {own} "
         f"capital city|write down the capital of {n}|look into your memory for {own} capital"),
        (f"What is the currency of {n}?|What is {own} currency?|Which money is used in {n}?|With "
         f"which money do people pay in {n}?|What is the money of {n} called?|What currency "
         f"does {n} "
         "have?", f"what the currency of {n} is|which money people use in {n}|{own} currency",
         f"name the currency of {n}|tell me {own} currency"),
        (f"On which continent is {n}?|Which continent is {n} on?|Where in the world is {n}?|Which "
         f"continent does {n} belong to?|Where is {n}?|Where can I find {n}?",
         f"where {n} is|on which continent {n} is|which continent {n} belongs to",
         f"name {own} continent|tell me the continent of {n}"),
    )[what]  # fmt: skip
    return ask(rng, d, i, o), answer, f"The question is about the {noun} of {n}."


def animal(rng: Rng, a: lex.Animal | None = None, what: int = -1) -> Turn:
    a = a or rng.choice(list(lex.ANIMALS.values()))
    one, many = article(a.name), plural(a.name)
    what = rng.choices(range(6), [3, 3, 2, 2, 2, 3])[0] if what < 0 else what
    legs = f"{cap(one)} has {'no' if a.legs == 0 else a.legs} legs."
    sound = f"{cap(one)} makes no sound that we hear." if a.sound == "no sound" else (
        f'{cap(one)} says "{a.sound}".')  # fmt: skip
    d, i, o, answer = (
        (f"Where does {one} live?|Where do {many} live?|What is the home of {one}?|In what place "
         f"does {one} live?|Where would I find {many}?|Where is {one} at home?",
         f"where {many} live|where {one} lives|where one can find {many}", "",
         f"{cap(one)} lives {a.home}."),
        (f"What does {one} eat?|What do {many} eat?|What do {many} like to eat?|What is on the "
         f"menu "
         f"of {one}?|What can I feed to {one}?|What do {many} feed on?",
         f"what {many} eat|what {one} eats|what {many} like to eat", "", f"{cap(one)} eats "
                                                                         f"{a.food}."),
        (f"How many legs does {one} have?|How many legs do {many} have?|How many legs has {one}?|"
         f"What number of legs does {one} have?", f"how many legs {one} has|how many legs {many} "
         "have", f"tell me the number of legs of {one}", legs),
        (f"What sound does {one} make?|How does {one} sound?|What do {many} say?|What noise do "
         f"{many} make?", f"what sound {one} makes|what {one} says", f"make the sound of {one}",
         sound),
        (f"What is a baby {a.name} called?|What do you call a young {a.name}?|What is the name for "
         f"a baby {a.name}?", f"what a baby {a.name} is called|the name of a baby {a.name}",
         f"tell me what a baby {a.name} is called", f"A baby {a.name} is called "
                                                    f"{article(a.baby)}."),
        (f"What is {one}?|What are {many}?|What do you know about {many}?|What can you tell me "
         f"about "
         f"{many}?|What sort of animal is {one}?|{cap(many)}?", f"what {one} is|what {many} are|"
         f"something about {many}", f"tell me about {many}|describe {one}|tell me about the "
                                    f"{a.name}|"
         f"explain what {one} is|give me a fact about {many}|tell me something about {many}|say "
         f"something about {one}", f"{cap(one)} is {article(a.group)} that lives {a.home} and eats "
         f"{a.food}." if a.group != a.name else
         f"{cap(one)} is an animal that lives {a.home} and eats {a.food}."),
    )[what]  # fmt: skip
    return ask(rng, d, i, o), answer, f"I think of what I know about {many}."


def two_at_once(rng: Rng) -> Turn:
    """Two facts in one question, answered in the order in which they are asked."""
    if rng.random() < 0.6:
        a = rng.choice(list(lex.ANIMALS.values()))
        many, one = plural(a.name), article(a.name)
        legs = "no" if a.legs == 0 else a.legs
        parts = [("where do {m} live", "where do they live", f"lives {a.home}"),
                 ("what do {m} eat", "what do they eat", f"eats {a.food}"),
                 ("how many legs do {m} have", "how many legs do they have",
                  f"has {legs} legs")]  # fmt: skip
        x, y = rng.sample(parts, 2)
        if rng.random() < 0.2:
            x, y = (tuple(t.replace("do {m}", "does {m}").replace("do they", "does it")
                          for t in p) for p in (x, y))  # fmt: skip
            many = one
        question = cap(f"{x[0]}[,| ]and {y[1]}?").replace("{m}", many).replace("[,| ]", rng.choice(
            [", ", " "]))  # fmt: skip
        return dressed(rng, question), f"{cap(one)} {x[2]} and {y[2]}.", f"Two things about {many}."
    c, n = _country(rng), rng.randrange(4)
    name = c["name"]
    question = (
        f"What are the capital and the currency of {name}?",
        f"What is the capital of {name}, and on which continent is it?",
        f"Where is {name}, and what is its capital?",
        f"Tell me the capital and the currency of {name}.",
    )[n]
    capital, continent = f"The capital of {name} is {c['capital']}", f"{cap(name)} is in " + (
        c["continent"])  # fmt: skip
    answer = (f"{capital}, and its currency is the {c['currency']}.",
              f"{capital}. {continent}.", f"{continent}. Its capital is {c['capital']}.",
              f"{capital}, and its currency is the {c['currency']}.")[n]  # fmt: skip
    return dressed(rng, question), answer, f"Two things about {name}."


_OPS = {"+": ("plus", "add {a} and {b}|add {b} to {a}|sum up {a} and {b}|find the sum of {a} "
                      "and {b}",
              "[The sum of {a} and {b}?|{a} and {b} together?|{a} increased by {b}?|{a} and {b} "
              "make what?|What do I get when I add {a} to {b}?|How much do {a} and {b} make?]"),
        "-": ("minus", "subtract {b} from {a}|take {b} from {a}|take away {b} from {a}|find the "
              "difference of {a} and {b}", "[{a} less {b}?|What is {b} less than {a}?|{b} taken "
                                           "from "
              "{a} gives what?|What remains of {a} without {b}?|How much is {a} without {b}?|What "
              "is left when you take {b} from {a}?]"),
        "*": ("times", "multiply {a} by {b}|multiply {a} and {b}|find the product of {a} and {b}",
              "[{a} multiplied by {b}?|What is the product of {a} and {b}?|How much is {a} "
              "multiplied by {b}?|{a} times {b} makes what?]"),
        "/": ("divided by", "divide {a} by {b}|split {a} into {b} equal parts",
              "[How often does {b} go into {a}?|How many times does {b} fit into {a}?|What do I "
              "get "
              "when I divide {a} by {b}?]")}  # fmt: skip


def numbers(rng: Rng, op: str) -> tuple[int, int, int]:
    x = rng.random()
    if op == "/":
        b, q = rng.randint(1, 12), rng.randint(0, 12)
        return b * q, b, q
    if op == "*":
        a, b = (rng.randint(0, 12), rng.randint(0, 12)) if x < 0.93 else (
            rng.randint(2, 9), rng.randint(11, 30))  # fmt: skip
        return a, b, a * b
    top = 10 if x < 0.25 else 20 if x < 0.5 else 100
    a, b = rng.randint(0, top), rng.randint(0, top)
    if op == "-":
        a, b = max(a, b), min(a, b)
    return a, b, a + b if op == "+" else a - b


def add_up(rng: Rng, op: str = "", spelled: bool = False) -> Turn:
    """A small sum in words or signs."""
    from .sums import _steps

    op = op or rng.choices("+-*/", [38, 28, 25, 9])[0]
    a, b, result = numbers(rng, op)
    word, core, other = _OPS[op]
    x, y = (number_word(a), number_word(b)) if spelled or rng.random() < 0.12 else (str(a), str(b))
    s = f"{x} {word} {y}"
    direct = (f"What is {s}?|What's {s}?|How much is {s}?|{s}|{s}?|{cap(s)} is what?|{cap(s)} "
              f"is how "
              f"much?|{s}, please|What does {s} make?|And what is {s}?|What is the result of {s}?|"
              f"How much does {s} make?|{cap(s)} equals what?|{other}|{other}")  # fmt: skip
    clause = f"what {s} is|how much {s} is|what {s} makes|the result of {s}|the answer to {s}"
    core += (f"|compute {s}|calculate {s}|figure out {s}|tell me what {s} is|tell me the "
             f"result of {s}")  # fmt: skip
    if x.isdigit() and op != "/":
        z = f"{x} {op} {y}"
        core += f"|calculate {z}|solve {z}|tell me {z}|figure out {z}|compute {z}"
        direct += f"|{z}|{z} = ?|What is {z}?|{z}?"
    question = ask(rng, direct, clause, core).replace("{a}", x).replace("{b}", y)
    signs = any(c in question for c in "+*/=") or f" {op} " in question
    answer = f"{a} {op} {b} = {result}" if signs else f"{cap(f'{a} {word} {b}')} is {result}."
    think = f"{b} * {result} = {a}." if op == "/" else _steps(a, b, op, result)
    return question, answer, think


def fact(rng: Rng) -> Turn:
    """A row of `facts.txt` in another dress, where its question allows it."""
    questions, answers = rng.choice(facts._facts())
    return redressed(rng, rng.choice(questions)), answers[0], f"I know this. {answers[0]}"


def redressed(rng: Rng, question: str) -> str:
    """A direct question, indirect where its word order allows that."""
    words = question.rstrip("?").split()
    clause = ""
    if not question.endswith("?") or len(words) < 3 or len(words) > 8:
        return dressed(rng, question)
    first, second = words[:2]
    bare = words[-1] not in ("from", "of", "in", "for", "like", "on", "called", "made")
    if first in ("What", "Who", "Where") and second in ("is", "was", "are", "were") and bare:
        clause = f"{first.lower()} {' '.join(words[2:])} {second}"
    elif (
        first in ("Who", "Which") and second not in ("do", "does", "did") and " do" not in question
    ):
        clause = f"{first.lower()} {' '.join(words[1:])}"
    return ask(rng, question, clause) if clause else dressed(rng, question)


def other(rng: Rng) -> Turn:
    """Jobs, colours, the calendar, yes and no: the direct questions of `facts.py`, redressed."""
    question, answer, think = rng.choice([facts.job, facts.color, facts.calendar, facts.is_a])(rng)
    return redressed(rng, question), answer, think


TURNS: tuple[tuple[Callable[[Rng], Turn], float], ...] = (
    (define, 34), (synonym, 9), (country, 20), (animal, 14), (two_at_once, 5), (add_up, 22),
    (fact, 14), (other, 6),
)  # fmt: skip


def turn(rng: Rng) -> Turn:
    return rng.choices([t for t, _ in TURNS], [w for _, w in TURNS])[0](rng)


def ask_doc(rng: Rng) -> Doc:
    question, answer, think = turn(rng)
    return qa(question, answer, think, "ask")


_NEXT = (
    "And {s}?", "And {x}?", "What about {x}?", "And what about {x}?", "How about {x}?", "{X}?",
    "And for {x}?", "The same for {x}, please.", "Same question for {x}.", "Now {x}.", "and {x}",
    "What about {x}, then?", "Okay, and {x}?", "Thanks! And {x}?", "And how about {x}?", "Next: "
                                                                                         "{x}.",
    "Good. Now {x}, please.", "Then {x}?", "I also want to know about {x}.", "{X}, too?",
)  # fmt: skip


def _chain_step(rng: Rng, kind: str, key: int) -> tuple[Turn, str, str]:
    """(turn, short form with its preposition, bare short form)."""
    if kind == "country":
        c = lex.lexicon()["countries"][int(120 * rng.random())]
        return country(rng, c, key % 3), ("of " if key % 3 < 2 else "") + c["name"], c["name"]
    if kind == "animal":
        a = rng.choice(list(lex.ANIMALS.values()))
        name = plural(a.name) if key % 2 else article(a.name)
        return animal(rng, a, key % 6), name, name
    if kind == "word":
        e = facts._word(rng)
        q = article(e["word"]) if facts.countable(e) else e["word"]
        return define(rng, e), q, q
    op = "+-*/"[key % 4]
    question, answer, think = add_up(rng, op)
    from .sums import _SIGNS

    left = answer.split(" = ")[0] if "=" in answer else answer.split(" is ")[0].lower()
    word = _SIGNS[op][0] if op in _SIGNS else "divided by"
    said = left.replace(f" {op} ", f" {word} ") if rng.random() < 0.7 else left
    return (question, answer, think), said, said


def chain(rng: Rng) -> Doc:
    """One full question, then one to four that change a single slot."""
    kind = rng.choices(["country", "animal", "word", "sum"], [4, 3, 3, 3])[0]
    key, messages = rng.randrange(12), []
    for i in range(rng.choice([2, 2, 2, 3, 3, 4])):
        (question, answer, think), s, x = _chain_step(rng, kind, key)
        if i:
            question = rng.choice(_NEXT).replace("{s}", s).replace("{x}", x).replace("{X}", cap(x))
            if kind == "sum" and " = " in answer and not any(f" {o} " in x for o in "+-*/"):
                answer = f"{cap(x)} is {answer.partition(' = ')[2]}."  # words asked, words answered
        messages += [user(question), assistant(answer, think)]
    return Doc(messages, kind="chain")


def list_more(rng: Rng) -> Doc:
    """`Name a fruit`, `another one`, and lists with numbers, all without repeating."""
    name, one, members = rng.choice(wide.groups())
    n = min(rng.choice([1, 1, 2, 3, 3, 4, 5, 6]), len(members))
    shown = rng.choice([str(n), number_word(n)])
    many = f"{shown} {name}" if n > 1 else rng.choice([article(one), f"one {one}"])
    question = ask(rng, f"Which {name} can you name?|What are some {name}?|{cap(many)}, "
                        f"please.|{many}"
                   if n > 2 else f"{cap(many)}, please.", "", f"name {many}|list {many}|give me "
                                                              f"{many}|"
                   f"tell me {many}|write down {many}|think of {many}|say {many}|give me the "
                   f"names of "
                   f"{many}")  # fmt: skip
    items = list(members[:n])
    answer = facts.sentence_list(rng, items) if n > 1 else f"{cap(items[0])}."
    messages = [user(question), assistant(answer, f"I need {n}: {', '.join(items)}.")]
    at = n
    while at < len(members) and rng.random() < 0.4:
        more = fill(rng, "[Another one?|One more, please.|And one more?|Another|Give me one "
                         "more.|Do "
                    "you know another one?|More!|And another one?|What else?]")  # fmt: skip
        messages += [user(more), assistant(f"{cap(members[at])}.", "One that was not named yet.")]
        at += 1
    return Doc(messages, kind="list")
