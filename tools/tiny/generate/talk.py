"""Small talk put together from parts: greetings, thanks, goodbyes, days, feelings, jokes.

Owns combinations (a thank-you with a goodbye, a greeting with a question) and the joke that is
followed by another one. Fixed rows stay in `data/chat.txt`.
"""

from __future__ import annotations

from . import asks
from . import lexicon as lex
from .base import Doc, Message, Rng, assistant, cap, fill, lines, user
from .phrasing import careless, imperative

_HELLO, _THANKS, _BYE = (lex.WORDS[k] for k in ("HELLO", "THANKS", "BYE"))
_GOOD, _BAD, _WHERE = (lex.WORDS[k] for k in ("GOOD", "BAD", "WHERE"))
_WHEN, _FEELS = lex.WORDS["WHEN"], lex.WORDS["FEELS"]
_LAUGHS, _MORE = lex.WORDS["LAUGHS"], lex.WORDS["MORE"]
_HELLO_MORE = ("", "", "!", ", nice to meet you!", ", nice to see you again.", ", it's me again.",
               ", here I am.", ", anybody there?", ", my friend!", ", I am back.",
               ", are you there?", ", how nice to meet you.", ", glad to be here!",
               ", it is nice that you are here.", ", happy to see you", ", long time no see!",
               ", we meet again.")  # fmt: skip
_HELLO_BACK = ("Hello! How can I help you today?", "Hello! It is nice to hear from you. How can "
               "I help you?", "Hi! What can I do for you?")  # fmt: skip
_HOW = ("How are you?", "How are you doing?", "How are you today?", "How is it going?", "How do "
        "you feel?", "Are you well?", "What's new?", "How was your day?")  # fmt: skip


def greeting(rng: Rng) -> list[Message]:
    hello = rng.choice(_HELLO)
    x = rng.random()
    if x < 0.22:
        text, answer = f"{hello}! {rng.choice(_HOW)}", "I am fine, thank you! How are you?"
    elif x < 0.32:
        name = lex.any_name(rng)
        text = f"{hello}, {rng.choice(['I am', 'my name is', 'this is', 'I am called'])} {name}."
        answer = f"Hello, {name}! How can I help you?"
    else:
        text, answer = hello + rng.choice(_HELLO_MORE), rng.choice(_HELLO_BACK)
    if rng.random() < 0.3:
        text = text.lower()
    return [user(text), assistant(answer, "The user greets me.")]


def parting(rng: Rng) -> list[Message]:
    """Thanks, a goodbye, or both in one breath."""
    x = rng.random()
    thanks, bye = rng.choice(_THANKS), rng.choice(_BYE)
    if x < 0.35:
        text = thanks + rng.choice(["!", ".", "!!", ""])
        answer = fill(rng, "[You are welcome!|You are welcome! Is there anything else?|Happy to "
                      "help!]")  # fmt: skip
    elif x < 0.6:
        text, answer = cap(bye) + rng.choice(["!", ".", ""]), "Goodbye! Have a nice day."
    else:
        text = f"{thanks}{rng.choice([', ', '! ', '. ', ' and '])}{bye}{rng.choice(['!', '.', ''])}"
        text = text.replace("! " + bye, "! " + cap(bye)).replace(". " + bye, ". " + cap(bye))
        answer = fill(rng, "[You are welcome! Goodbye!|You are welcome! See you soon.]")
    return [user(careless(rng, text)), assistant(answer, "The user says goodbye or thanks.")]


def my_day(rng: Rng) -> list[Message]:
    """The user tells how something was; the answer fits."""
    good = rng.random() < 0.5
    word, when, where = rng.choice(_GOOD if good else _BAD), rng.choice(_WHEN), rng.choice(_WHERE)
    a = ("an " if word[0] in "aeiou" else "a ") + word
    text = fill(
        rng,
        f"[I had {a} {when} {where}.|It was {a} {when}.|My {when} {where} was "
        f"{word}.|I "
        f"have had {a} {when}.|Today was {word}.|What {a} {when}!|This was {a} {when} "
        f"for me.|"
        f"We had {a} {when} {where}.|My {when} was {word}.|I come from {a} {when} "
        f"{where}.]",
    )
    if good:
        answer = fill(rng, "[That is nice! What was the best part of it?|I am glad to hear "
                           "that! What "
                      "did you do?]")  # fmt: skip
    else:
        answer = fill(rng, "[I am sorry to hear that. I hope that you can rest a little now.|That "
                      "sounds hard. Do you want to tell me about it?]")  # fmt: skip
    out = [user(careless(rng, text)), assistant(answer, f"It was {word} for the user.")]
    if rng.random() < 0.35:
        more = "[I met a friend.|We played games.|I won a prize.|We ate cake.|It was sunny.]"
        back = "[That sounds lovely!|How nice for you!]"
        if not good:
            more = "[I had much work.|Nobody helped me.|It rained.|I lost my keys.|I slept badly.]"
            back = "[That is not easy. Be kind to yourself.|I am sorry. Tomorrow can be better.]"
        out += [user(fill(rng, more)), assistant(fill(rng, back), "The user tells me more.")]
    return out


def feelings(rng: Rng) -> list[Message]:
    """What the model feels (nothing) and what the user feels."""
    f = rng.choice(_FEELS)
    if rng.random() < 0.5:
        text = fill(
            rng,
            f"[Do you feel {f}?|Are you {f}?|Do you ever feel {f}?|Are you ever "
            f"{f}?|Can you "
            f"be {f}?|Do you know how it is to be {f}?|Are you sometimes {f}?|Do you "
            f"sometimes "
            f"get {f}?|Can a program be {f}?|When are you {f}?|Do you feel {f} "
            f"today?|What makes "
            f"you {f}?|You must be {f}.|Do you never get {f}?|Are you {f} right now?]",
        )
        answer = "No, I am a program, and I have no feelings. But I like to be helpful."
        if text.startswith(("When", "What", "You")):
            answer = "I do not have feelings. I only work with words."
        return [user(careless(rng, text)), assistant(answer, "I am a program.")]
    text = fill(
        rng,
        f"[I am {f}.|I feel {f}.|I am so {f}.|I feel {f} today.|I am a little "
        f"{f}.|I am {f} "
        f"today.|Today I feel {f}.|I am very {f} right now.|I get {f} so easily.]",
    )
    if f in ("happy", "excited", "proud", "cheerful"):
        answer = f"That is wonderful! What made you {f}?"
    elif f == "curious":
        answer = "That is good! What would you like to know?"
    elif f in ("tired", "sleepy"):
        answer = "Then you should get some rest. A short nap can help."
    elif f in ("hungry", "thirsty", "cold", "bored"):
        answer = {"hungry": "How about a sandwich, some fruit or a soup?",
                  "thirsty": "A glass of water is the best thing when you are thirsty.",
                  "cold": "A blanket and a hot drink would help.",
                  "bored": "You could read a book, go for a walk or draw a picture.",
                  }[f]  # fmt: skip
    else:
        answer = "I am sorry to hear that. Do you want to tell me what happened?"
    return [user(careless(rng, text)), assistant(answer, f"The user feels {f}.")]


def jokes(rng: Rng) -> list[Message]:
    """A joke or a riddle, and others after it; none is told twice."""
    rows = lines("jokes.txt")
    riddle = rng.random() < 0.25
    pool = [r for r in rows if ("=>" in r) == riddle]
    told = rng.sample(pool, rng.choice([1, 2, 2, 2, 3]))
    noun = "riddle" if riddle else "joke"
    messages: list[Message] = []
    for i, row in enumerate(told):
        if i == 0:
            text = imperative(rng, fill(rng, f"tell me a [{noun}|good {noun}|{noun}|short "
                                             f"{noun}|funny "
                                        f"{noun}]")) if rng.random() < 0.5 else fill(
                rng, f"[Do you know a {noun}?|A {noun}!|I want to hear a {noun}.|Know any "
                     f"{noun}s?|Got a "
                f"{noun} for me?|I need a {noun} now.|What is your favorite {noun}?|Any good "
                f"{noun}s?|Let me hear a {noun}.|Time for a {noun}!|I would like to hear a "
                f"{noun}.]")  # fmt: skip
        elif rng.random() < 0.6:
            text = f"{rng.choice(_LAUGHS)}{rng.choice(['! ', ', ', '. '])}"
            more = rng.choice(_MORE)
            text += more if text.endswith(", ") else cap(more)
            text += "?" if more.startswith(("do", "can")) else rng.choice(["!", ".", "?"])
        else:
            more = rng.choice(_MORE)
            text = cap(more) + ("?" if more.startswith(("do", "can")) else rng.choice("!.?"))
        question, _, solution = row.partition(" => ")
        messages += [user(text), assistant(question, f"The user wants a {noun}.")]
        if riddle and rng.random() < 0.7:
            ask = fill(rng, "[I do not know.|Tell me the answer.|What is it?|I give up.|No "
                            "idea.|And the "
                       "answer?|What is the answer?]")  # fmt: skip
            messages += [user(ask), assistant(solution, "I tell the answer.")]
    if rng.random() < 0.2:
        messages += [user(rng.choice(_LAUGHS) + "!"), assistant("I am glad that you laughed!", "")]
    return messages


def mixed_in(rng: Rng) -> list[Message]:
    """A greeting or a thank-you around a real question, in one message."""
    question, answer, think = asks.turn(rng)
    x = rng.random()
    if x < 0.4:
        text = f"{rng.choice(_HELLO)}! {cap(question)}"
    elif x < 0.6:
        text = f"{rng.choice(_THANKS)}! {cap(question)}"
    else:
        text = f"{cap(question)} {rng.choice(_THANKS)}!"
    return [user(text), assistant(answer, think)]


_PARTS = ((greeting, 20), (parting, 22), (my_day, 18), (feelings, 18), (jokes, 16), (mixed_in, 8))


def some(rng: Rng) -> list[Message]:
    return rng.choices([p for p, _ in _PARTS], [w for _, w in _PARTS])[0](rng)


def talk(rng: Rng) -> Doc:
    """A conversation with a beginning and, now and then, an end."""
    messages = greeting(rng) if rng.random() < 0.2 else []
    for _ in range(rng.choice([1, 1, 1, 2])):
        messages += some(rng)
    if rng.random() < 0.2:
        messages += parting(rng)
    return Doc(messages, kind="talk")
