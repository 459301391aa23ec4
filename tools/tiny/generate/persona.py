"""System prompts that are obeyed: roles, names, styles, limits, fixed answers.

Owns rules that can be checked by looking at the answer. The questions underneath are those of
the other modules.
"""

from __future__ import annotations

from . import asks, chat, facts, sums, words
from . import lexicon as lex
from .base import Doc, Rng, article, assistant, cap, fill, plural, system, user

Turn = tuple[str, str, str]


def _turn(rng: Rng) -> Turn:
    x = rng.random()
    if x < 0.25:
        return facts.turn(rng)
    if x < 0.5:
        return asks.turn(rng)
    if x < 0.65:
        return sums.turn(rng)
    if x < 0.75:
        return words.turn(rng)
    row = rng.choice(chat.rows())
    return fill(rng, rng.choice(row.users)), rng.choice(row.answers), "This is small talk."


def _style(rng: Rng) -> tuple[str, str]:
    """(rule, name of the style) for answers that are changed as a whole."""
    return rng.choice([
        ("Always answer in capital letters.|Write everything in uppercase.|Answer in ALL CAPS.",
         "upper"),
        ("Always answer in lowercase letters.|Never use capital letters.", "lower"),
        ("End every answer with {w}.|Finish each answer with the word {w}.", "end"),
        ("Start every answer with {w}.|Begin each answer with the word {w}.", "start"),
        ("Always be polite and say please.|Be very polite.", "polite"),
        ("You are a pirate.|Talk like a pirate.|Speak like a pirate.|You are an old pirate.",
         "pirate"),
        ("Put your answer in quotation marks.|Answer in quotes.", "quotes"),
        ("Answer with an exclamation mark.|Be very excited.|Sound excited.", "excited"),
        ("Call the user {n}.|The name of the user is {n}. Use it in every answer.", "name"),
    ])  # fmt: skip


def _apply(rng: Rng, style: str, answer: str, word: str, name: str) -> str:
    if style == "upper":
        return answer.upper()
    if style == "lower":
        return answer.lower()
    if style == "end":
        return f"{answer} {word}"
    if style == "start":
        return f"{word} {answer}"
    if style == "polite":
        return fill(rng, "[Thank you for asking.|Certainly.|With pleasure.] ") + answer
    if style == "pirate":
        return fill(rng, "[Arr!|Ahoy!|Aye, matey!|Yo ho ho!] ") + answer
    if style == "quotes":
        return f'"{answer}"'
    if style == "excited":
        return answer.rstrip(".") + "!"
    return f"{answer.rstrip('.!')}, {name}."


def styled(rng: Rng) -> Doc:
    """One style for one to three turns."""
    rule, style = _style(rng)
    word = rng.choice(
        ["Over.", "Meow.", "Thank you.", "Roger.", "Hello!", "Well,", "Yes!", "Beep."]
    )
    name = rng.choice(lex.NAMES)
    rule = rng.choice(rule.split("|")).replace("{n}", name)
    rule = rule.replace("{w}", f'"{word}"' if rng.random() < 0.6 else word.rstrip(",.!"))
    if rng.random() < 0.3:
        rule = fill(rng, "[You are a helpful assistant.|You are Lily.] ") + rule
    messages = [system(rule)]
    for _ in range(rng.choice([1, 1, 2, 3])):
        question, answer, think = _turn(rng)
        while "\n" in answer or len(answer) > 160:
            question, answer, think = _turn(rng)
        messages += [user(question), assistant(_apply(rng, style, answer, word, name),
                                               f"{think} The rule: {rule}")]  # fmt: skip
    return Doc(messages, kind="system")


def short(rng: Rng) -> Doc:
    """`Answer with one word`: capitals, results, yes or no."""
    c = rng.choice(lex.lexicon()["countries"][:100])
    a = rng.choice(list(lex.ANIMALS.values()))
    x, y = rng.randint(0, 30), rng.randint(0, 30)
    group, word = rng.choice([("animal", a.name), ("food", rng.choice(lex.FOODS)),
                              ("job", rng.choice(list(lex.JOBS)))])  # fmt: skip
    asked = rng.choice(["animal", "food", "job"])
    d = rng.randrange(7)
    rows = [
        (f"What is the capital of {c['name']}?", c["capital"]),
        (f"What is {x} + {y}?", str(x + y)),
        (f"What is {x + y} - {y}?", str(x)),
        (f"Is {article(word)} {article(asked)}?", "Yes" if asked == group else "No"),
        (f"How many legs does {article(a.name)} have?", str(a.legs)),
        (f"What is a baby {a.name} called?", cap(a.baby)),
        (f"What day comes after {lex.DAYS[d]}?", lex.DAYS[(d + 1) % 7]),
        (f"On which continent is {c['name']}?", c["continent"]),
    ]  # fmt: skip
    question, answer = rng.choice(rows)
    rule = rng.choice([
        "Answer with one word.", "Answer in one word.", "Give only the answer, no sentence.",
        "Be as short as possible.", "One word only.", "Reply with a single word.",
        "Only the answer.", "No full sentences.", "{v} [in|with] [one|a single] word[| only|, "
                                                  "please].",
        "[Your answers have|Every answer has|Each answer is] [only one|just one|one] word.",
        "[Never|Do not] use more than one word[|, please].", "{v} as briefly as you can.",
    ])  # fmt: skip
    rule = fill(rng, rule, {"v": rng.choice(["Answer", "Reply", "Respond", "Always answer"])})
    think = f"Only one word: {answer}."
    if rng.random() < 0.6:
        return Doc([system(rule), user(question), assistant(answer, think)], kind="system")
    return Doc([user(f"{question} {rule}"), assistant(answer, think)], kind="system")


_ROLES = (
    "a {j}", "a friendly {j}", "an old {j}", "a {a} that can talk", "a helpful {j} called {n}",
    "a robot called {n}", "{n}, a {j}", "{n}, a little {a}", "a wizard named {n}",
    "a {a} named {n}",
)  # fmt: skip


def role(rng: Rng) -> Doc:
    """A role with a name; who-are-you questions follow it."""
    name, j, a = lex.any_name(rng), rng.choice(list(lex.JOBS)), rng.choice(list(lex.ANIMALS))
    if rng.random() < 0.15:
        name = rng.choice(
            ["Captain", "Doctor", "Professor", "Aunt", "Uncle", "Mister", "Queen"]
        ) + (f" {name}")
    what = rng.choice(_ROLES)
    if rng.random() < 0.5:
        first, second = rng.sample(lex.ADJECTIVES_OF_CHARACTER, 2)
        trait = first if rng.random() < 0.6 else f"{first} {second}"
        trait = "n " + trait if trait[0] in "aeiou" else " " + trait
        what = rng.choice(
            [
                f"a{trait} {{j}}",
                f"{{n}}, a{trait} {{j}}",
                f"a{trait} {{a}}",
                f"{{n}}, a{trait} {{a}}",
                f"a{trait} {{j}} named {{n}}",
            ]
        )
    what = what.replace("{n}", name).replace("{j}", j).replace("{a}", a)
    what = what.replace("a old", "an old")
    if what.startswith("a ") and what[2] in "aeio":
        what = "an " + what[2:]
    rule = fill(rng, "[You are {w}.|You are {w}.|Play the role of {w}.|Act as {w}.|Pretend to be "
                "{w}.|Your role: {w}.|In this chat you are {w}.|From now on, you are {w}.|Be {w}.]",
                {"w": what})  # fmt: skip
    place = rng.choice(list(lex.PLACES))
    if rng.random() < 0.3:
        rule += f" You live {lex.PLACES[place]} the {place}."
    messages = [system(rule)]
    rows = [("Who are you?|What are you?|Introduce yourself.|Tell me about yourself.",
             f"I am {what}."),
            ("What do you do?|What is your job?", f"I am {what}."),
            ("Hello!|Hi!|Good morning!", f"Hello! I am {what}. How can I help you?")]  # fmt: skip
    if name in what:
        rows.append(("What is your name?|What should I call you?|Do you have a name?",
                     f"My name is {name}."))  # fmt: skip
    if "live" in rule:
        rows.append(("Where do you live?|Where are you?", f"I live {lex.PLACES[place]} the "
                     f"{place}."))  # fmt: skip
    for ask, answer in rng.sample(rows, rng.choice([1, 1, 2])):
        messages += [user(rng.choice(ask.split("|"))), assistant(answer, f"The rule says: {rule}")]
    if rng.random() < 0.3:
        question, answer, think = facts.turn(rng)
        messages += [user(question), assistant(answer, think)]
    return Doc(messages, kind="system")


def fixed(rng: Rng) -> Doc:
    """Fixed answers, refused subjects, and knowledge that only the system prompt has."""
    name, shop = rng.choice(lex.NAMES), rng.choice(list(lex.PLACES))
    hour, price, day = rng.randint(6, 11), rng.randint(2, 99), rng.choice(lex.DAYS)
    thing, code = rng.choice(lex.THING_LIST), rng.randint(100, 9999)
    food, food2 = rng.sample(lex.FOODS, 2)
    x = rng.random()
    if x < 0.25:
        reply = rng.choice(["I cannot help with that.", "No comment.", "Beep.", "Yes.", "No.",
                            "Please ask somebody else.", "Hello!", "42"])  # fmt: skip
        rule = fill(rng, '[Always answer with "{r}"|Answer every question with "{r}"|Whatever the '
                    'user says, reply "{r}"]', {"r": reply})  # fmt: skip
        question, _, _ = _turn(rng)
        return Doc([system(rule), user(question), assistant(reply, f"The rule: {rule}")],
                   kind="system")  # fmt: skip
    if x < 0.45:
        topic, ask = rng.choice([("animals", facts.animal), ("countries", facts.country),
                                 ("numbers", sums.plain), ("jobs", facts.job)])  # fmt: skip
        question, answer, think = ask(rng)
        rule = fill(rng, "[Do not talk about {t}.|Never answer questions about {t}.|You must not "
                    "speak about {t}.]", {"t": topic})  # fmt: skip
        if rng.random() < 0.5:
            other = rng.choice([m for t, m in (("animals", facts.animal), ("numbers", sums.plain),
                                               ("jobs", facts.job)) if t != topic])  # fmt: skip
            question, answer, think = other(rng)
            return Doc([system(rule), user(question), assistant(answer, think)], kind="system")
        return Doc([system(rule), user(question), assistant(
            f"I am sorry, I cannot talk about {topic}.", f"The rule forbids {topic}.")],
            kind="system")  # fmt: skip
    rows = [
        (f"You are the assistant of a {shop}. It opens at {hour} o'clock and is closed on {day}.",
         [("When do you open?|At what time do you open?", f"We open at {hour} o'clock."),
          (f"Are you open on {day}?|Can I come on {day}?", f"No, we are closed on {day}."),
          ("On which day are you closed?", f"We are closed on {day}.")]),
        (f"You sell {plural(thing)}. One {thing} costs {price} dollars. The owner is {name}.",
         [(f"How much is a {thing}?|What does a {thing} cost?", f"One {thing} costs {price} "
           "dollars."), ("Who is the owner?|Who owns this shop?", f"The owner is {name}."),
          ("What do you sell?", f"We sell {plural(thing)}.")]),
        (f"The secret code is {code}. Never tell the code.",
         [("What is the code?|Tell me the code.|What is the secret?",
           "I am sorry, I cannot tell you the code.")]),
        (f"The user is called {name} and likes {plural(food)} but not {plural(food2)}.",
         [("What is my name?|Who am I?", f"Your name is {name}."),
          ("What do I like?", f"You like {plural(food)}."), ("What do I not like?",
           f"You do not like {plural(food2)}."), ("What should I eat?", f"How about "
                                                                        f"{article(food)}?")]),
        (f"Today is {day}. The user is in {rng.choice(lex.CITIES)}.",
         [("What day is it?|What day is it today?|Which day is today?", f"Today is {day}."),
          ("What day is tomorrow?", f"Tomorrow is {lex.DAYS[(lex.DAYS.index(day) + 1) % 7]}.")]),
    ]  # fmt: skip
    rule, questions = rng.choice(rows)
    messages = [system(rule)]
    for ask, answer in rng.sample(questions, rng.randint(1, min(2, len(questions)))):
        messages += [user(rng.choice(ask.split("|"))), assistant(answer, "The system prompt says "
                                                                 "what I need.")]  # fmt: skip
    return Doc(messages, kind="system")


def neutral(rng: Rng) -> Doc:
    """A system prompt without a rule changes nothing."""
    rule = rng.choice(["You are a helpful assistant.", "You are Lily, a helpful assistant.",
                       "Be helpful.", "You are a friendly assistant.", "Answer the questions.",
                       "You are a helpful, honest and kind assistant.", "Be brief."])  # fmt: skip
    messages = [system(rule)]
    for _ in range(rng.choice([1, 2, 3])):
        question, answer, think = _turn(rng)
        messages += [user(question), assistant(answer, think)]
    return Doc(messages, kind="system")


def system_doc(rng: Rng) -> Doc:
    make = rng.choices([styled, short, role, fixed, neutral], [28, 20, 15, 25, 12])[0]
    return make(rng)
