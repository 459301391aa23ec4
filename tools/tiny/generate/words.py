"""Tasks on the text of the prompt itself: sort, spell, repeat, rewrite, extract, understand.

Owns operations whose answer follows from the prompt alone, and reading questions about short
texts that it makes up. Knows no facts.
"""

from __future__ import annotations

from . import lexicon as lex
from .base import Doc, Rng, article, assistant, cap, casual, fill, join_words, plural, qa, user

Turn = tuple[str, str, str]


def _some(rng: Rng, n: int) -> list[str]:
    pool = rng.choice([lex.FOODS, lex.THING_LIST, list(lex.ANIMALS), lex.COLORS, lex.NAMES,
                       [w["word"] for w in lex.lexicon()["words"][:1500]]])  # fmt: skip
    return rng.sample(pool, n)


def lists(rng: Rng) -> Turn:
    w = _some(rng, rng.randint(3, 6))
    given = ", ".join(w)
    ordered = sorted(w, key=str.lower)
    i = rng.randrange(len(w))
    nth = ["first", "second", "third", "fourth", "fifth", "sixth"][i]
    rows = [
        (f"Sort these words: {given}|Put these words in alphabetical order: {given}|Sort "
         f"alphabetically: {given}", ", ".join(ordered), f"The first one is {ordered[0]}."),
        (f"Reverse this list: {given}|Write this list backwards: {given}", ", ".join(w[::-1]),
         f"It starts with {w[-1]}."),
        (f"How many words are in this list: {given}?|Count the items: {given}",
         f"There are {len(w)} words in the list.", f"I count: {given}."),
        (f"What is the {nth} word in this list: {given}?", f"The {nth} word is {w[i]}.",
         f"I count: {given}."),
        (f"What is the last word in this list: {given}?", f"The last word is {w[-1]}.",
         f"The list ends with {w[-1]}."),
        (f"Make a bulleted list: {given}|Write these as a list with bullets: {given}",
         "\n".join(f"- {x}" for x in w), "One line for each word."),
        (f"Make a numbered list: {given}|Number these: {given}",
         "\n".join(f"{k + 1}. {x}" for k, x in enumerate(w)), "One line for each word."),
        (f"Is {w[i]} in this list: {given}?", f"Yes, {w[i]} is in the list.", f"I see {w[i]}."),
        (f"Remove {w[i]} from this list: {given}", ", ".join(x for x in w if x != w[i]),
         f"I leave out {w[i]}."),
        (f"Which of these words is the longest: {given}?",
         f"The longest word is {max(w, key=len)}.", f"{max(w, key=len)} has {len(max(w, key=len))} "
         "letters."),
    ]  # fmt: skip
    ask, answer, think = rng.choice(rows)
    return rng.choice(ask.split("|")), answer, think


def spelling(rng: Rng) -> Turn:
    word = rng.choice([rng.choice(lex.NAMES), *_some(rng, 2)]).split()[0]
    letters = list(word.lower())
    spaced = "-".join(x.upper() for x in letters)
    letter = rng.choice(letters)
    rows = [
        (f"Spell the word {word}.|How do you spell {word}?|spell {word}", spaced, f"{spaced}."),
        (f"How many letters are in the word {word}?|How many letters does {word} have?",
         f"The word {word} has {len(word)} letters.", f"{spaced}: {len(word)} letters."),
        (f"What is the first letter of {word}?", f"The first letter of {word} is "
         f"{word[0].upper()}.", f"{spaced}."),
        (f"What is the last letter of {word}?", f"The last letter of {word} is "
         f"{word[-1].upper()}.", f"{spaced}."),
        (f"Write {word} in capital letters.|Write {word} in uppercase.", word.upper(),
         f"{spaced}."),
        (f"Write {word} backwards.|Reverse the word {word}.", word[::-1].lower(), f"{spaced}."),
        (f"Does the word {word} contain the letter {letter}?", f"Yes, {word} contains the letter "
         f"{letter}.", f"{spaced}."),
        (f"What is the plural of {word.lower()}?", f"The plural of {word.lower()} is "
         f"{plural(word.lower())}.", f"More than one {word.lower()}."),
    ]  # fmt: skip
    ask, answer, think = rng.choice(rows[:7] if word in lex.NAMES else rows)
    return rng.choice(ask.split("|")), answer, think


def _plain_sentence(rng: Rng) -> tuple[str, dict[str, str]]:
    name = rng.choice(lex.NAMES)
    place = rng.choice(list(lex.PLACES))
    verb, past = rng.choice([("walk", "walked"), ("go", "went"), ("run", "ran"), ("drive", "drove"),
                             ("play", "played"), ("sit", "sat"), ("work", "worked"),
                             ("sing", "sang"), ("read", "read"), ("sleep", "slept")])  # fmt: skip
    to = f"to the {place}" if verb in ("walk", "go", "run", "drive") else (
        f"{lex.PLACES[place]} the {place}")  # fmt: skip
    third = {"go": "goes"}.get(verb, verb + "s")
    return f"{name} {past} {to}.", {"name": name, "to": to, "place": place, "verb": verb,
                                    "past": past, "third": third}  # fmt: skip


def rewrite(rng: Rng) -> Turn:
    text, s = _plain_sentence(rng)
    now = f"{s['name']} {s['third']} {s['to']}."
    he = cap(lex.pronouns(s["name"])[0])
    clean = text.rstrip(".")
    wrong = clean[0].lower() + clean[1:]
    rows = [
        (f"Put this into the past tense: {now}|Change to the past: {now}", text,
         f"The past of {s['verb']} is {s['past']}."),
        (f"Put this into the present tense: {text}", now, f"{s['past']} becomes {s['third']}."),
        (f"Make this a question: {text}|Turn this into a question: {text}",
         f"Did {s['name']} {s['verb']} {s['to']}?", "A question begins with did."),
        (f"Make this sentence negative: {text}", f"{s['name']} did not {s['verb']} {s['to']}.",
         "I use did not."),
        (f"Repeat after me: {text}|Repeat this sentence: {text}|Say this: {text}|Copy this: {text}",
         text, "I repeat the sentence."),
        (f"Fix this sentence: {wrong}|Correct this: {wrong}", text,
         "A sentence starts with a capital letter and ends with a full stop."),
        (f"Replace the name with a pronoun: {text}", text.replace(s["name"], he, 1),
         f"{s['name']} becomes {he}."),
        (f"Write this in capital letters: {text}", text.upper(), "Every letter becomes large."),
        (f"How many words are in this sentence: {text}", f"There are {len(text.split())} words in "
         "the sentence.", "I count: " + ", ".join(text.rstrip('.').split()) + "."),
        (f"Who is in this sentence? {text}|Find the name in this sentence: {text}", s["name"] + ".",
         f"The name is {s['name']}."),
        (f"Finish the sentence: {s['name']} {s['past']} ...", text, "I add a place."),
    ]  # fmt: skip
    ask, answer, think = rng.choice(rows)
    return rng.choice(ask.split("|")), answer, think


def odd_one(rng: Rng) -> Turn:
    pools = {"animals": list(lex.ANIMALS), "foods": lex.FOODS, "colors": lex.COLORS,
             "jobs": list(lex.JOBS), "places": list(lex.PLACES), "days": lex.DAYS}  # fmt: skip
    a, b = rng.sample(list(pools), 2)
    words = rng.sample(pools[a], 3)
    odd = rng.choice([x for x in pools[b] if x not in pools[a]])
    mixed = [*words, odd]
    rng.shuffle(mixed)
    ask = fill(rng, "[Which one does not belong|Find the odd one out|Which word is different]: ")
    return (f"{ask}{', '.join(mixed)}?", f"{cap(odd)} does not belong, because the others are "
            f"{a}.", f"{join_words(words)} are {a}. {cap(odd)} is not.")  # fmt: skip


_GOOD = (
    "I love this {t}, it is wonderful!", "The {p} was beautiful, and we had a great time.",
    "What a lovely day {a}!", "The {f} was delicious.", "I am so happy with my new {t}.",
    "Everybody was friendly, and the service was excellent.", "The best {t} that I have ever had!",
)  # fmt: skip
_BAD = (
    "I hate this {t}, it broke after one day.", "The {p} was dirty, and we had a terrible time.",
    "What an awful day {a}!", "The {f} was cold and bad.", "I am so angry about my new {t}.",
    "Nobody helped us, and the service was slow.", "The worst {t} that I have ever had.",
)  # fmt: skip


def sentiment(rng: Rng) -> Turn:
    good = rng.random() < 0.5
    p = rng.choice(list(lex.PLACES))
    text = fill(rng, rng.choice(_GOOD if good else _BAD), {
        "t": rng.choice(lex.THING_LIST), "p": p, "a": f"{lex.PLACES[p]} the {p}",
        "f": rng.choice(lex.FOODS)})  # fmt: skip
    label = "positive" if good else "negative"
    ask = fill(
        rng,
        "[Is this text positive or negative?|Classify the sentiment:|What is the mood "
        "of this text, positive or negative?|Is this review positive or negative?] ",
    )
    answer = f"The text is {label}."
    return ask + text, answer, f"The words sound {'good' if good else 'bad'}."


def _little_text(rng: Rng) -> tuple[str, list[tuple[str, str]]]:
    """A short text and questions with answers."""
    a, b = rng.sample(lex.NAMES, 2)
    p, p2 = rng.sample(list(lex.PLACES), 2)
    t, f, an = rng.choice(lex.THING_LIST), rng.choice(lex.FOODS), rng.choice(list(lex.ANIMALS))
    col, day, n = rng.choice(lex.COLORS), rng.choice(lex.DAYS), rng.randint(2, 9)
    he, _, his = lex.pronouns(a)
    job = rng.choice(list(lex.JOBS))
    atp = f"{lex.PLACES[p]} the {p}"
    kinds = [
        (f"On {day}, {a} and {b} met {atp}. {a} brought {article(col + ' ' + t)}, and {b} brought "
         f"{n} {plural(f)}. They saw {article(an)} and laughed. Then they went to the {p2}.",
         [(f"Who brought the {t}?", f"{a} brought the {t}."), ("When did they meet?",
          f"They met on {day}."), ("Where did they meet?", f"They met {atp}."),
          (f"What color was the {t}?", f"The {t} was {col}."), (f"How many {plural(f)} did {b} "
          f"bring?", f"{b} brought {n} {plural(f)}."), ("Which animal did they see?",
          f"They saw {article(an)}."), ("Where did they go then?", f"They went to the {p2}."),
          (f"What did {b} bring?", f"{b} brought {n} {plural(f)}.")]),
        (f"{a} is {article(job)} and lives {lex.PLACES[p2]} the {p2}. {cap(he)} has {n} "
         f"{plural(an)} and {article(col + ' ' + t)}. Every {day}, {a} cooks with {his} friend "
         f"{b}. They like to eat {plural(f)}.",
         [(f"What is the job of {a}?", f"{a} is {article(job)}."), (f"Where does {a} live?",
          f"{a} lives {lex.PLACES[p2]} the {p2}."), (f"How many {plural(an)} does {a} have?",
          f"{a} has {n} {plural(an)}."), (f"Who is the friend of {a}?", f"The friend is {b}."),
          ("What do they like to eat?", f"They like to eat {plural(f)}."), (f"When does {a} cook?",
          f"{a} cooks every {day}.")]),
        (f"Dear {b}, I am {atp} this week. The weather is {rng.choice(lex.WEATHER)}. Yesterday I "
         f"found {article(col + ' ' + t)}, and on {day} I will visit the {p2}. I miss you! {a}",
         [("Who wrote the letter?", f"{a} wrote the letter."), ("Who gets the letter?",
          f"The letter is for {b}."), (f"What did {a} find?", f"{a} found "
          f"{article(col + ' ' + t)}."), (f"Where is {a}?", f"{a} is {atp}."),
          (f"When will {a} visit the {p2}?", f"{a} will visit the {p2} on {day}.")]),
    ]  # fmt: skip
    return rng.choice(kinds)


def reading(rng: Rng) -> Doc:
    """A short text, one or more questions, sometimes one that the text does not answer."""
    text, questions = _little_text(rng)
    messages = []
    chosen = rng.sample(questions, rng.randint(1, 3))
    for i, (ask, answer) in enumerate(chosen):
        if rng.random() < 0.08:
            ask = rng.choice(["What did they drink?", "How old are they?", "Why did it happen?",
                              "What is the phone number?"])  # fmt: skip
            answer = fill(rng, "[The text does not say that.|The text does not say.]")
        content = ask
        if i == 0:
            content = fill(rng, "[{t}\n\n{q}|Read this text: {t}\n\n{q}|Text: {t}\nQuestion: {q}|"
                           "{q}\n\n{t}]", {"t": text, "q": ask})  # fmt: skip
        messages += [user(content), assistant(answer, f"I look in the text. {answer}")]
    return Doc(messages, kind="reading")


TURNS = ((lists, 25), (spelling, 20), (rewrite, 25), (odd_one, 10), (sentiment, 10))


def turn(rng: Rng) -> Turn:
    make = rng.choices([t for t, _ in TURNS], [w for _, w in TURNS])[0]
    return make(rng)


def word_doc(rng: Rng) -> Doc:
    question, answer, think = turn(rng)
    return qa(casual(rng, question) if rng.random() < 0.3 else question, answer, think, "words")
