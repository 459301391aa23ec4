"""Stories that follow the request word by word: hero, trait, event, object, place, name.

Owns the cast of `data/tales.txt` (an event is asked for by its clause and told by its beats) and
the requests with none to three wishes. The wording around a request belongs to `phrasing.py`;
stories by theme stay in `stories.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from . import lexicon as lex
from . import phrasing, stories
from .base import Doc, Rng, article, assistant, cap, fill, lines, plural, user

_WAS = re.compile(r"(\{(?:H|K|he|He)\}) was\b")
_OPENED = re.compile(r'([!?]" )\{([KH])\}')  # the hero begins a sentence after somebody spoke
_MASS = ("soup", "bread", "stew", "jam", "porridge", "pudding", "salad", "cookies", "pancakes",
         "dumplings", "waffles", "noodles", "muffins", "pumpkin soup")  # fmt: skip
_THE = ("moon", "sun", "wind", "sea", "evening star", "thunder", "fog", "rain", "full moon",
        "new moon", "spring", "autumn")  # fmt: skip


@dataclass(frozen=True)
class Event:
    group: str
    clauses: tuple[str, ...]
    moral: str
    beats: tuple[str, ...]


@dataclass
class Tale:
    """A filled story with what its follow-up questions need."""

    kind: str
    name: str
    trait: str
    event: Event
    slots: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def events() -> dict[str, list[Event]]:
    out: dict[str, list[Event]] = {}
    head, beats = "", []
    for row in [*lines("tales.txt"), "=="]:
        if not row.startswith("=="):
            beats.append(_WAS.sub(r"\1 {was}", row))
            continue
        if beats:
            left, moral = head.split(" :: ")
            group, *clauses = (x.strip() for x in left.split(" | "))
            event = Event(group, tuple(clauses), moral, tuple(beats))
            out.setdefault(group, []).append(event)
        head, beats = row[2:].strip(), []
    return out


@lru_cache(maxsize=1)
def traits() -> dict[str, tuple[str, str]]:
    rows = ([c.strip() for c in row.split("|")] for row in lines("traits.txt"))
    return {name: (_WAS.sub(r"\1 {was}", a), _WAS.sub(r"\1 {was}", b)) for name, a, b in rows}


def a_thing(rng: Rng) -> str:
    """Anything that can be lost, shared or be the hero itself."""
    while True:
        thing = rng.choice(lex.THING_LIST if rng.random() < 0.45 else lex.WORDS["MORE_THINGS"])
        if thing != "scissors":
            return thing


def _kind(rng: Rng, group: str) -> str:
    if group == "thing":
        return a_thing(rng)
    if group in ("sky", "nature", "pair"):
        return rng.choice(lex.WORDS[{"pair": "PAIRS"}.get(group, group.upper())])
    x = rng.random()
    if x < 0.45:
        return rng.choice(list(lex.ANIMALS))
    if x < 0.62:
        return rng.choice(lex.WORDS["MORE_ANIMALS"])
    if x < 0.74:
        return rng.choice(["girl", "boy"])
    if x < 0.84:
        return rng.choice(lex.FANTASY)
    return rng.choice(list(lex.JOBS) if x < 0.91 else lex.WORDS["PERSONS"])


_FEMALE = ("girl", "queen", "princess", "woman", "grandmother", "witch", "fairy", "mermaid", "hen",
           "nun", "sister", "actress", "waitress")  # fmt: skip
_MALE = ("boy", "king", "prince", "man", "grandfather", "wizard", "fisherman", "postman", "brother",
         "rooster", "fireman", "cowboy", "knight", "snowman")  # fmt: skip


def _name(rng: Rng, kind: str) -> tuple[str, bool]:
    """A fitting name, made up one time in five, and whether it is a woman's."""
    last = kind.split()[-1]
    she = True if last in _FEMALE else False if last in _MALE else rng.random() < 0.5
    if rng.random() < 0.08:
        return lex.strange_name(rng), she
    if rng.random() < 0.4:
        same = [n for n in lex.BY_INITIAL.get(kind[0], ()) if (n in lex.GIRL_SET) == she]
        if same:
            return rng.choice(same), she
    girls, boys = lex.GIRLS + lex.MORE_GIRLS, lex.BOYS + lex.MORE_BOYS
    return rng.choice(girls if she else boys), she


def _friend(rng: Rng, kind: str) -> dict[str, str]:
    other = _kind(rng, "being")
    while other == kind:
        other = _kind(rng, "being")
    name, she = _name(rng, other)
    size = rng.choice(["", "", "little ", "old ", "young ", "kind ", "friendly ", "wise "])
    size = "" if " " in other or (other in ("girl", "boy") and size == "old ") else size
    plain = article(size + other)
    intro = f"{plain} {rng.choice(['called', 'named'])} {name}"
    he, him, his = ("she", "her", "her") if she else ("he", "him", "his")
    return {"Fn": intro, "F": name, "friend": plain, "fhe": he, "fhim": him,
            "fhis": his, "fHe": cap(he), "fHis": cap(his), "friend_kind": other}  # fmt: skip


def _objects(rng: Rng, kind: str) -> dict[str, str]:
    thing = a_thing(rng)
    while thing == kind:
        thing = a_thing(rng)
    x = f"{rng.choice(lex.ADJECTIVES)} {thing}" if rng.random() < 0.45 else thing
    animal = rng.choice([a for a in lex.ANIMALS if a != kind])
    built, dish = rng.choice(lex.WORDS["BUILT"]), rng.choice(lex.WORDS["DISHES"])
    place, place2 = rng.sample(list(lex.PLACES), 2)
    fear = rng.choice(lex.WORDS["FEARS"])
    return {
        "x": x, "t": thing, "a_x": article(x), "animal": animal, "a_animal": article(animal),
        "a_Animal": cap(article(animal)), "built": article(built), "the_built": f"the {built}",
        "dish": dish if dish in _MASS else article(dish), "the_dish": f"the {dish}",
        "skill": rng.choice(lex.WORDS["SKILLS"]), "fear": fear, "Fear": cap(fear),
        "foods": plural(rng.choice(stories._FOODS)), "weather": rng.choice(lex.WEATHER),
        "place": f"the {place}", "atp": f"{lex.PLACES[place]} the {place}",
        "place2": f"the {place2}", "atp2": f"{lex.PLACES[place2]} the {place2}",
    }  # fmt: skip


def new_tale(rng: Rng) -> Tale:
    group = rng.choices(["being", "thing", "sky", "nature", "pair"], [60, 15, 6, 6, 13])[0]
    event = rng.choice(events()[group])
    kind = _kind(rng, group)
    name, she = _name(rng, kind)
    person = group == "being" and (kind in ("girl", "boy") or rng.random() < 0.55)
    name = name if person else ""
    trait = rng.choice(list(traits())) if group in ("being", "thing") and rng.random() < 0.45 else (
        "")  # fmt: skip
    if trait in ("old", "young", "tiny") and (" " in kind or kind in ("girl", "boy", "baby")):
        trait = ""
    he, him, his = ("she", "her", "her") if she else ("he", "him", "his")
    if group in ("thing", "sky", "nature"):
        he, him, his = "it", "it", "its"
    slots = _objects(rng, kind) | _friend(rng, kind)
    slots |= {"he": he, "him": him, "his": his, "He": cap(he), "His": cap(his), "kind": kind,
              "himself": {"he": "himself", "she": "herself"}.get(he, "itself"),
              "s": "s", "es": "es", "is": "is", "has": "has", "was": "was",
              "K": f"the {kind}", "H": name or f"the {kind}"}  # fmt: skip
    if group == "pair":
        first, second = _pair_names(rng, kind)
        many = plural(kind)
        slots |= {"N1": first, "N2": second, "H": f"the {many}", "K": f"the {many}", "he": "they",
                  "him": "them", "his": "their", "He": "They", "His": "Their", "was": "were",
                  "s": "", "es": "", "is": "are", "has": "have"}  # fmt: skip
    return Tale(kind, name, trait, event, slots)


def _pair_names(rng: Rng, kind: str) -> tuple[str, str]:
    pool = lex.GIRLS + lex.MORE_GIRLS if kind == "sister" else lex.BOYS + lex.MORE_BOYS if (
        kind == "brother") else lex.STORY_NAMES  # fmt: skip
    first, second = rng.sample(pool, 2)
    return first, second


def _hero(rng: Rng, t: Tale, named: bool, trait: bool) -> str:
    """The hero as the request names it, or as the story introduces it."""
    if t.event.group == "pair":
        many = f"two {plural(t.kind)}"
        return f"{many} called {t.slots['N1']} and {t.slots['N2']}" if named else many
    if t.kind in _THE:
        return f"the {t.kind}"
    words = f"{t.trait} {t.kind}" if trait and t.trait else t.kind
    return article(words) + (f" {rng.choice(['called', 'named'])} {t.name}" if named and t.name
                             else "")  # fmt: skip


_OPENERS = {
    "being": ("[Once upon a time|Once|Long ago], there was {intro}.", "There was once {intro}.",
              "[Once upon a time|Long ago], {intro} lived {atp}.", "This is the story of {intro}.",
              "{Atp}, there lived {intro}."),
    "thing": ("[Once upon a time|Once], there was {intro}.", "This is the story of {intro}."),
    "sky": ("[Long ago|One night], {intro} stood high above {place}.",
            "Every night, {intro} looked down on {place}."),
    "nature": ("This is the story of {intro}.", "Here is a story about {intro}."),
    "pair": ("[Once upon a time|Once|Long ago], there were {intro}.",
             "There were once {intro}.", "This is the story of {intro}."),
}  # fmt: skip


def tell(rng: Rng, t: Tale) -> str:
    slots = t.slots | {"intro": _hero(rng, t, True, True), "Atp": cap(t.slots["atp"])}
    parts = [rng.choice(_OPENERS[t.event.group])]
    if t.trait:
        parts.append(traits()[t.trait][0])
    parts += [beat for beat in t.event.beats if not (beat.startswith("?") and rng.random() < 0.4)]
    if t.trait and rng.random() < 0.6:
        parts.append(traits()[t.trait][1])
    elif rng.random() < 0.15:
        parts.append("[And so|So] {H} learned that {moral}.")
    text = fill(rng, " ".join(p.lstrip("? ") for p in parts)).replace("?]", "]")
    text = _OPENED.sub(r"\1{\2c}", text)
    slots |= {"Kc": cap(slots["K"]), "Hc": cap(slots["H"])}
    text = text.replace("{Fn}", slots["Fn"], 1).replace("{Fn}", slots["F"])
    text = fill(rng, text, slots | {"moral": t.event.moral})
    text = re.sub(r" \?(?= |$)", "", re.sub(r"\s+", " ", text)).strip()
    return stories._START.sub(lambda m: m.group(2).upper(), text)


def _topic(rng: Rng, t: Tale) -> str:
    """What the request asks for, all of which the story has."""
    named = (bool(t.name) and rng.random() < 0.25) or (
        t.event.group == "pair" and rng.random() < 0.15
    )
    hero = _hero(rng, t, named, bool(t.trait) and rng.random() < 0.85)
    x = rng.random()
    text = " ".join(t.event.beats)
    if x < 0.5:
        clause = fill(rng, rng.choice(t.event.clauses), t.slots)
        who = "that" if t.event.group in ("thing", "sky", "nature") else rng.choice(["who", "that"])
        return f"{hero} {who} {clause}"
    if x < 0.58 and re.search(r"\{(a_)?x\}", t.event.beats[0]) and t.event.group != "thing":
        return rng.choice([t.slots["a_x"], f"{hero} and {t.slots['a_x']}"])
    if x < 0.63 and "{skill}" in text:
        return f"{hero} learning to {t.slots['skill']}"
    if x < 0.67 and "{F}" in text and t.event.group != "pair":
        return f"{hero} and {article(t.slots['friend_kind'])}"
    if x < 0.71 and "{atp}" in text:
        return f"{hero} {t.slots['atp']}"
    return hero


def _wishes(rng: Rng, t: Tale, topic: str) -> str:
    """Up to three further wishes, in sentences of their own."""
    s, out, text = t.slots, [], " ".join(t.event.beats)
    it = f"The {t.kind}" if t.event.group != "pair" else ""
    if t.name and it and t.name not in topic and rng.random() < 0.5:
        out.append(
            fill(
                rng,
                "[{i} is called {n}.|{i} should be called {n}.|Call {h} {n}.|"
                "The name should be {n}.]",
                {"i": it, "n": t.name, "h": s["him"]},
            )
        )
    if "{atp}" in text and s["atp"] not in topic and rng.random() < 0.35:
        out.append(fill(rng, "[It happens {p}.|Let it happen {p}.|It should take place {p}.]",
                        {"p": s["atp"]}))  # fmt: skip
    if "{x}" in text and s["x"] not in topic and rng.random() < 0.35:
        out.append(fill(rng, "[There should be {x} in it.|Put {x} into it.|Please use {x}.]",
                        {"x": s["a_x"]}))  # fmt: skip
    if "{animal}" in text and s["animal"] not in topic and rng.random() < 0.2:
        out.append(f"There should also be {s['a_animal']}.")
    if rng.random() < 0.25:
        out.append(
            fill(
                rng,
                "[Keep it short.|It should be short.|With a happy ending, please.|"
                "For a small child.|It should end well.|Please use simple words.]",
            )
        )
    rng.shuffle(out)
    return " ".join(out[:3])


def tale(rng: Rng) -> Doc:
    t = new_tale(rng)
    text, topic = tell(rng, t), _topic(rng, t)
    if rng.random() < 0.07:
        question, topic = phrasing.any_story(rng), "whatever I like"
    else:
        question = phrasing.story_request(rng, topic, " who " in topic or " that " in topic)
        if rng.random() < 0.22:
            more = _wishes(rng, t, topic)
            question = f"{question if question[-1] in '.?!' else question + '.'} {more}".strip()
    think = fill(rng, "[The user wants a story|They want a story|I should tell a story] about "
                 "{t}. [The hero is|It is about] {h}.",
                 {"t": topic, "h": _hero(rng, t, True, True)})  # fmt: skip
    doc = Doc([user(question), assistant(text, think)], kind="tale")
    while rng.random() < 0.3 and len(doc.messages) < 6:
        doc.messages += _follow(rng, t, text)
    return doc


def _title(t: Tale) -> str:
    if t.event.group == "pair":
        return f"The Two {plural(t.kind).title()}"
    return f"The {t.trait} {t.kind}".replace("  ", " ").title()


def _questions(rng: Rng, t: Tale, text: str) -> list[tuple[str, str]]:
    """Questions that the story answers."""
    s, hero = t.slots, _hero(rng, t, False, True)
    clause = fill(rng, rng.choice(t.event.clauses[:2]), s)
    rows = [
        ("[What is|What's] the moral[| of the story| here]?|What does [it|the story] teach us?|"
         "What can [we|I|children] learn from [it|that|the story]?|And the moral?",
         f"The story teaches us that {t.event.moral}."),
        ("[Give it|Find] a title.|[What should|How should] I call this story?|A title, please.",
         f'"{_title(t)}" would be a good title.'),
        ("Who is [it|the story] about?|Who is the [hero|main character]?",
         f"It is about {_hero(rng, t, True, True)}."),
        ("[Sum it up|Sum up the story|Tell it] in one sentence.|What happens in [it|the story]?|"
         "What is the story about?|A summary, please.|Can you summarize [it|the story]?",
         f"It is about {hero} {'that' if s['he'] == 'it' else 'who'} {clause}."),
    ]  # fmt: skip
    if t.name:
        rows.append((f"What [is|was] the name of the {t.kind}?|What is the {t.kind} called?",
                     f"The {t.kind} is called {t.name}."))  # fmt: skip
    if s["F"] in text and t.event.group != "pair":
        rows.append((f"Who is {s['F']}?|And who was {s['F']}?", f"{s['F']} is {s['friend']}."))
    if t.event.group == "pair":
        rows.append((f"What are the {plural(t.kind)} called?|What are their names?",
                     f"They are called {s['N1']} and {s['N2']}."))  # fmt: skip
    return rows


def _follow(rng: Rng, t: Tale, text: str) -> list[dict]:
    """A question about the story, a thank-you, or one more story."""
    x = rng.random()
    if x < 0.25:
        new = new_tale(rng)
        topic = _topic(rng, new)
        ask = fill(rng, "[And|Now] [one|a story] about {x}[.|, please.]", {"x": topic})
        if rng.random() < 0.4:
            ask = fill(rng, "[Tell me another one.|One more story, please!|Another story?|Again!|"
                       "I want to hear one more.|Do you have another one?]")  # fmt: skip
        return [user(ask), assistant(tell(rng, new), "The user wants one more story.")]
    rows = _questions(rng, t, text)
    thanks = ("[That was|What a] [lovely|nice|great] story!|I [like|liked|love] it!|Thank you[| "
              "for the story]!|Beautiful!|[Good|Great|Nice] one!", "[I am glad that you liked it!|"
              "Thank you! I am happy that you like it.|You are welcome!]")  # fmt: skip
    ask, answer = thanks if x < 0.4 else rng.choice(rows)
    return [user(fill(rng, phrasing.pick(rng, ask))),
            assistant(fill(rng, answer), "It is about the story.")]  # fmt: skip


def reading(rng: Rng) -> Doc:
    """A story that the user brings along, with one or two questions about it."""
    t = new_tale(rng)
    text = tell(rng, t)
    rows = _questions(rng, t, text)
    messages = []
    for i, (ask, answer) in enumerate(rng.sample(rows, rng.choice([1, 1, 2]))):
        question = fill(rng, phrasing.pick(rng, ask))
        if not i:
            form = rng.choice(
                [
                    "{t}\n\n{q}",
                    "Here is a story: {t}\n\n{q}",
                    "{q}\n\n{t}",
                    "Read this story: {t}\n{q}",
                    "Story: {t}\nQuestion: {q}",
                ]
            )
            question = form.replace("{t}", text).replace("{q}", question)
        messages += [user(question), assistant(fill(rng, answer), "I look in the story.")]
    return Doc(messages, kind="reading")


def plain(rng: Rng) -> Doc:
    """A tale as plain text, with no conversation around it."""
    return Doc(text=tell(rng, new_tale(rng)), kind="story-text")
