"""Small talk: greetings, questions about the model, feelings, and what the user said before.

Owns the dialogue rows of `data/chat.txt` and the memory games (a fact is told, other things are
said, the fact is asked for). Also owns honest ignorance: invented words, people nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from . import lexicon as lex
from . import phrasing
from .base import Doc, Message, Rng, article, assistant, cap, casual, fill, lines, plural, user


@dataclass
class Row:
    users: list[str]
    answers: list[str]
    then: list[Row] = field(default_factory=list)


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    out: list[Row] = []
    for line in lines("chat.txt"):
        if line.startswith("+:"):
            out[-1].users += phrasing.split(line[2:].strip())
            continue
        users, _, answers = line.removeprefix("A:").partition("=>")
        row = Row([x.strip() for x in users.split("|")],
                  [x.strip().replace("\\n", "\n") for x in answers.split("|")])  # fmt: skip
        if line.startswith("A:"):
            out[-1].then.append(row)
        else:
            out.append(row)
    return tuple(out)


_THINK = (
    "The user says: {q} I should answer in a friendly way.", "A short, friendly answer is best.",
    "This is small talk. I will be kind and brief.", "I answer honestly and simply.",
)  # fmt: skip


def _say(rng: Rng, row: Row) -> list[Message]:
    question = fill(rng, rng.choice(row.users)).replace(" ?", "?").replace(" ,", ",")
    think = rng.choice(_THINK).replace("{q}", question.rstrip(".!?") + ".")
    return [user(question), assistant(rng.choice(row.answers), think)]


def small_talk(rng: Rng, turns: int | None = None) -> list[Message]:
    """One to four turns; a row's own continuation is preferred over a new subject."""
    messages: list[Message] = []
    row = rng.choice(rows())
    for _ in range(turns or rng.choice([1, 1, 1, 2, 2, 3, 4])):
        messages += _say(rng, row)
        row = rng.choice(row.then) if row.then and rng.random() < 0.8 else rng.choice(rows())
    return messages


def talk(rng: Rng) -> Doc:
    return Doc(small_talk(rng), kind="chat")


@dataclass
class Memory:
    """Something the user tells, the reaction, and the question that asks for it later."""

    tell: str
    react: str
    asks: str
    answer: str


def _memories(rng: Rng) -> list[Memory]:
    name, friend, pet_name = lex.any_name(rng), lex.any_name(rng), lex.any_name(rng)
    a, food, place = (rng.choice(list(x)) for x in (lex.ANIMALS, lex.FOODS, lex.PLACES))
    col, city, job = rng.choice(lex.COLORS), lex.any_town(rng), rng.choice(list(lex.JOBS))
    hobby, thing, day = (rng.choice(x) for x in (lex.HOBBIES, lex.THING_LIST, lex.DAYS))
    age, month = rng.randint(5, 80), rng.choice(lex.MONTHS)
    atp = f"{lex.PLACES[place]} the {place}"
    return [
        Memory(f"[My name is|I am|I'm|Call me|People call me] {name}.",
               f"[Nice to meet you|Hello|Hi], {name}![| How can I help you?]",
               "What is my name?|Do you remember my name?|What am I called?|Who am I?",
               f"Your name is {name}."),
        Memory(f"My favorite color is {col}.|I love the color {col}.",
               f"{cap(col)} is a [lovely|nice|beautiful] color.",
               "What is my favorite color?|Which color do I like?|Do you remember my color?",
               f"Your favorite color is {col}."),
        Memory(f"I have {article(a)} called {pet_name}.|My {a} is called {pet_name}.",
               f"{pet_name} is a nice name for {article(a)}![| What does {pet_name} like to do?]",
               f"What is the name of my {a}?|What is my {a} called?|How is my pet called?",
               f"Your {a} is called {pet_name}."),
        Memory(f"I live in {city}.|I am from {city}.|My home is in {city}.",
               f"[Nice!|How interesting!] What do you like about {city}?",
               "Where do I live?|Which city do I live in?|Where am I from?",
               f"You live in {city}."),
        Memory(f"I am {article(job)}.|I work as {article(job)}.",
               f"[That is an interesting job!|Nice!] What do you like about being {article(job)}?",
               "What is my job?|What do I do for a living?|What do I work as?",
               f"You are {article(job)}."),
        Memory(f"I like {hobby}.|I love {hobby}.|My hobby is {hobby}.",
               f"{cap(hobby)} is a [nice|great] hobby![| How often do you do that?]",
               "What is my hobby?|What do I like to do?|What do I do in my free time?",
               f"Your hobby is {hobby}."),
        Memory(f"I am {age} years old.|I'm {age}.|My age is {age}.",
               "[Thank you for telling me.|Nice!] [What do you like to do?|How can I help you?]",
               "How old am I?|What is my age?|Do you know my age?", f"You are {age} years old."),
        Memory(f"My [best friend|friend] is called {friend}.|{friend} is my [best friend|friend].",
               f"It is good to have a friend like {friend}.",
               "What is my friend called?|Who is my friend?|What is the name of my friend?",
               f"Your friend is called {friend}."),
        Memory(f"I like to eat {plural(food)}.|My favorite food is {plural(food)}.|I love "
               f"{plural(food)}.", f"[Good choice!|Yummy!] {cap(plural(food))} are good.",
               "What is my favorite food?|What do I like to eat?", f"You like {plural(food)}."),
        Memory(f"I will be {atp} on {day}.|On {day} I am going to be {atp}.",
               "[Have fun!|That sounds nice.|Enjoy it!]",
               f"Where will I be on {day}?|What is my plan for {day}?",
               f"On {day} you will be {atp}."),
        Memory(f"I have lost my {thing}.|I cannot find my {thing}.",
               f"I am sorry. Where did you last see your {thing}?",
               "What have I lost?|What am I looking for?", f"You have lost your {thing}."),
        Memory(f"My birthday is in {month}.|I was born in {month}.",
               f"{month} is a good month for a party!",
               "When is my birthday?|In which month is my birthday?",
               f"Your birthday is in {month}."),
        Memory(f"Remember the word {thing}.|Please remember this: {thing}.",
               f"I will remember it: {thing}.|All right: {thing}.",
               "Which word did I tell you?|What was the word?|What should you remember?",
               f"The word is {thing}."),
    ]  # fmt: skip


def _pick(rng: Rng, text: str) -> str:
    """One alternative of `a|b` that may hold brackets."""
    from .facts import _split

    return fill(rng, rng.choice(_split(text)))


def memory(rng: Rng) -> Doc:
    """Facts are told, perhaps something else is said, and one or two facts are asked for."""
    chosen = rng.sample(_memories(rng), rng.choice([1, 2, 2, 3, 4]))
    messages: list[Message] = []
    together = len(chosen) > 1 and rng.random() < 0.3
    if together:
        said = " ".join(_pick(rng, m.tell) for m in chosen)
        messages += [user(said), assistant(_pick(rng, chosen[0].react),
                                           "The user tells me about themselves.")]  # fmt: skip
    else:
        for m in chosen:
            said = _pick(rng, m.tell)
            if rng.random() < 0.2:
                said = fill(rng, "[Hello!|Hi!|Well,|By the way,] ") + said
            react = _pick(rng, m.react)
            messages += [user(said), assistant(react, f"The user says: {said}")]
            if react.endswith("?") and rng.random() < 0.4:
                messages += _answer_back(rng, react)
            if rng.random() < 0.25:
                messages += small_talk(rng, 1)
    for m in rng.sample(chosen, min(len(chosen), rng.choice([1, 1, 2]))):
        ask = casual(rng, _pick(rng, m.asks))
        messages += [user(ask), assistant(m.answer, f"The user told me before. {m.answer}")]
    if rng.random() < 0.25:
        messages += _never_told(rng, chosen)
    return Doc(messages, kind="memory")


_REPLIES = (
    ("What do you like", "The people.|Everything.|It is quiet.|The food is good.|I learn a lot.|"
     "It is beautiful.|The old streets.|I can help others.",
     "That sounds nice!|I can understand that.|How lovely!"),
    ("How often", "Every day.|Once a week.|Not very often.|On Sundays.|As often as I can.",
     "That is good! Practice makes perfect.|Nice! Have fun with it.|It is good to have time "
     "for it."),
    ("Where did you last see", "In the kitchen.|At home.|I do not remember.|In the garden.|At "
     "work.",
     "Then look there again, step by step.|Perhaps somebody has found it. Good luck!"),
    ("like to do", "Sleep and eat.|Play all day.|I like to read.|Run around.|Listen to music.",
     "That is sweet!|That sounds like a good life.|Nice!"),
    ("How can I help", "I just want to talk.|Tell me something.|I am not sure yet.",
     "Gladly! Here is something: an octopus has three hearts.|Of course. How was your day?"),
)  # fmt: skip


def _answer_back(rng: Rng, react: str) -> list[Message]:
    """The user answers the model's own question."""
    for start, replies, answers in _REPLIES:
        if start in react:
            return [
                user(rng.choice(replies.split("|"))),
                assistant(rng.choice(answers.split("|")), "The user answers my question."),
            ]
    return []  # fmt: skip


def _never_told(rng: Rng, told: list[Memory]) -> list[Message]:
    """Asks for something that was not said."""
    known = {m.answer.split(" is ")[0].split(" are ")[0] for m in told}
    for m in rng.sample(_memories(rng), 12):
        head = m.answer.split(" is ")[0].split(" are ")[0]
        if head not in known and m.asks.split("|")[0] not in {t.asks.split("|")[0] for t in told}:
            answer = fill(rng, "[I do not know that.|I cannot know that.] You have not told me.")
            return [user(_pick(rng, m.asks)), assistant(answer, "The user did not tell me that.")]
    return []


def nonsense(rng: Rng) -> str:
    return "".join(rng.sample(lex.WORDS["NONSENSE"], rng.choice([2, 2, 3])))


def unknown(rng: Rng) -> Doc:
    """Questions that nobody could answer from what this model has seen."""
    word = nonsense(rng)
    first, last = rng.choice(lex.NAMES), cap(nonsense(rng))
    questions = [
        (f"What [is a|does] {word}?|What does {word} mean?|Define {word}.|Tell me about the "
         f"{word}.|What is {article(word)}?|Do you know what {word} means?|Explain {word}.|Do you "
         f"know the word {word}?",
         f"I do not know the word {word}.[| Perhaps it is a name, or it is misspelled.]",
         f'I have never seen "{word}".'),
        (f"What is the capital of {cap(word)}?|Where is {cap(word)}?|How many people live in "
         f"{cap(word)}?", f"I do not know a place called {cap(word)}.",
         f"I do not know {cap(word)}."),
        (f"Who is {first} {last}?|When was {first} {last} born?|What did {first} {last} do?",
         f"I do not know who {first} {last} is.", f"I have never heard of {first} {last}."),
        (f"What is the phone number of {first}?|Where does {first} live?|How old is {first}?|"
         f"What is {first}'s favorite color?", f"I do not know {first}, so I cannot tell you.",
         f"Nobody told me about {first}."),
        (f"How much does {article(rng.choice(lex.THING_LIST))} cost in {rng.choice(lex.CITIES)}?",
         "I do not know. Prices change, and I cannot look them up.", "I have no prices."),
        (f"What is the weather in {rng.choice(lex.CITIES)}?|Is it raining in "
         f"{rng.choice(lex.CITIES)}?|How warm is it in {rng.choice(lex.CITIES)} right now?",
         "I cannot know that, because I have no connection to the world.", "I have no tool."),
    ]  # fmt: skip
    ask, answer, think = rng.choice(questions)
    ask = _pick(rng, ask.replace("[is a|does]", "is a"))
    return Doc([user(casual(rng, ask)), assistant(fill(rng, answer), think)], kind="unknown")
