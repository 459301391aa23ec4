"""Short stories that stay on topic, and talk about them.

Owns the cast (who may be a hero, how it is introduced), the story frame around the beats of
`data/plots.txt`, the many ways to ask for a story, and follow-up questions whose answers are
known because the cast is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from . import lexicon as lex
from . import phrasing
from .base import Doc, Rng, article, assistant, cap, casual, fill, lines, plural, user

_START = re.compile(r'(^|(?<=[.!?] )|(?<=\." ))([a-z])')
_SKILLS = (
    "paint", "dance", "sing", "swim", "cook", "read", "write", "draw", "fly", "juggle", "skate",
    "sail", "bake bread", "play chess", "speak French", "climb", "ride a horse", "whistle", "knit",
    "count", "ski", "build a house", "play the drums", "run fast", "tell jokes",
)  # fmt: skip
_FOODS = (
    "apple", "carrot", "pear", "tomato", "plum", "cherry", "potato", "strawberry", "melon", "grape",
    "peach", "pumpkin", "lemon", "orange", "banana", "mango",
)  # fmt: skip


@dataclass(frozen=True)
class Plot:
    themes: tuple[str, ...]
    beats: tuple[str, ...]


@dataclass
class Cast:
    """Everything a story fixes; the answers to questions about it come from here."""

    kind: str  # "girl", "fox", "baker", "robot"
    name: str  # "Mia", or "" for a nameless animal
    intro: str  # "a little fox named Finn"
    she: bool
    friend: str
    friend_intro: str
    friend_she: bool
    thing: str
    adjective: str
    place: str
    place2: str
    animal: str
    food: str
    trait: str
    mood: str
    skill: str

    @property
    def hero(self) -> str:
        return self.name or f"the {self.kind}"


@lru_cache(maxsize=1)
def plots() -> tuple[Plot, ...]:
    out: list[Plot] = []
    themes: tuple[str, ...] = ()
    beats: list[str] = []
    for row in [*lines("plots.txt"), "=="]:
        if row.startswith("=="):
            if beats:
                out.append(Plot(themes, tuple(beats)))
            themes = tuple(x.strip() for x in row[2:].split(","))
            beats = []
        else:
            beats.append(row)
    return tuple(out)


def _who(rng: Rng, child: float = 0.4) -> tuple[str, str, str, bool]:
    """(kind, name, introduction, is female) of somebody."""
    name = rng.choice(lex.STORY_NAMES if rng.random() < 0.85 else lex.NAMES)
    x = rng.random()
    if x < child:
        kind = "girl" if name in lex.GIRL_SET else "boy"
        size = rng.choice(["little ", "young ", "small ", "", "clever ", "shy ", "brave "])
    elif x < 0.8:
        kind = rng.choice(list(lex.ANIMALS))
        size = rng.choice(
            ["little ", "young ", "small ", "", "old ", "clever ", "gray ", "lonely "]
        )
    elif x < 0.87:
        kind = rng.choice([j for j in lex.JOBS if j not in ("king", "queen")])
        size = rng.choice(["young ", "old ", "poor ", "", "kind "])
    elif x < 0.92:
        kind = rng.choice(lex.OBJECT_HEROES)
        size = rng.choice(["little ", "small ", "old ", "", "lonely "])
    else:
        kind = rng.choice([k for k in lex.FANTASY if k not in ("princess", "prince")])
        size = rng.choice(["little ", "young ", "old ", "", "friendly ", "lonely "])
    same = lex.BY_INITIAL[kind[0]]
    if kind not in ("girl", "boy") and same and rng.random() < 0.7:
        # Finn the fox, Bella the bear: the topic decides, so that greedy answers differ.
        name = rng.choice(same)
    she = name in lex.GIRL_SET
    if kind in ("girl", "boy") or rng.random() < 0.7:
        return kind, name, f"{article(size + kind)} {rng.choice(['named', 'called'])} {name}", she
    return kind, "", article(size + kind), she


def new_cast(rng: Rng, **fixed: str) -> Cast:
    kind, name, intro, she = _who(rng)
    fkind, friend, fintro, fshe = _who(rng, 0.5)
    while (friend == name and name) or (fkind == kind and not (friend and name)):
        fkind, friend, fintro, fshe = _who(rng, 0.5)
    if fkind in ("girl", "boy") and rng.random() < 0.6:
        fintro = fill(rng, "{h} [friend|best friend] {n}", {"n": friend, "h": "{his}"})
    place = rng.choice(lex.habitat(kind) if rng.random() < 0.75 else list(lex.PLACES))
    place2 = rng.choice([p for p in lex.PLACES if p != place])
    thing = (
        rng.choice(lex.THING_LIST) if rng.random() < 0.7 else rng.choice(lex.WORDS["MORE_THINGS"])
    )
    cast = Cast(
        kind=kind, name=name, intro=intro, she=she, friend=friend or f"the {fkind}",
        friend_intro=fintro, friend_she=fshe, thing=thing,
        adjective=rng.choice(lex.ADJECTIVES), place=place, place2=place2,
        animal=rng.choice([a for a in lex.ANIMALS if a not in (kind, fkind)]),
        food=rng.choice(_FOODS), trait=rng.choice(lex.TRAITS), mood=rng.choice(lex.WORDS["MOODS"]),
        skill=rng.choice(_SKILLS),
    )  # fmt: skip
    for key, value in fixed.items():
        setattr(cast, key, value)
    return cast


def _slots(rng: Rng, c: Cast) -> dict[str, str]:
    he, him, his = ("she", "her", "her") if c.she else ("he", "him", "his")
    fhe, fhim, fhis = ("she", "her", "her") if c.friend_she else ("he", "him", "his")
    thing = f"{c.adjective} {c.thing}"
    return {
        "H": c.hero, "Hk": c.hero, "F": c.friend, "he": he, "him": him, "his": his, "He": cap(he),
        "His": cap(his), "fhe": fhe, "fhim": fhim, "fhis": fhis, "fHe": cap(fhe), "thing": thing,
        "a_thing": article(thing), "t": c.thing, "place": f"the {c.place}",
        "atp": f"{lex.PLACES[c.place]} the {c.place}", "place2": f"the {c.place2}",
        "atp2": f"{lex.PLACES[c.place2]} the {c.place2}", "animal": c.animal,
        "a_animal": article(c.animal), "food": c.food, "a_food": article(c.food),
        "foods": plural(c.food), "weather": rng.choice(lex.WEATHER), "mood": c.mood,
        "trait": c.trait, "intro": c.intro, "skill": c.skill,
    }  # fmt: skip


_OPENERS = (
    "[Once upon a time|Once|Long ago|Many years ago], there was {intro}.",
    "There was once {intro}.",
    "[Once upon a time|Long ago], {intro} lived [near {place2}|by {place2}|not far from {place2}].",
    "[In a small house|In a quiet corner] near {place2} lived {intro}.",
    "This is the story of {intro}.",
    "[Far away|Far, far away], {atp2}, there lived {intro}.",
)
_TRAITS = (
    "{He} was {trait} and [loved {foods}|had a {thing_}|liked to sing|had many dreams].",
    "{He} loved {his} {thing} more than anything else.",
    "Everybody knew that {H} was {trait}.",
    "{He} had a {thing_}, and {he} took it everywhere.",
    "Every [day|morning|evening], {he} went to {place}.",
    "{He} was {trait}, but sometimes {he} felt {mood}.",
)
_ENDINGS = (
    "[That night|That evening], {H} [slept well and dreamed of {place}|fell asleep with a smile].",
    "[And from that day on|From then on], {H} and {F} were [the best of friends|always together].",
    "And they all lived happily [ever after|in the little house by {place2}].",
    "{H} [went home with a big smile|was very happy|never forgot that day].",
    "It was [the best day of the whole year|a day that nobody would ever forget].",
    "And {H} learned that {moral}.",
    "",
)
MORALS = {
    "kindness": "kindness always comes back", "helping": "helping others makes everyone happy",
    "honesty": "it is always best to tell the truth", "sharing": "sharing is better than fighting",
    "friendship": "a good friend is worth more than gold", "courage": "it is good to be brave",
    "patience": "good things take time", "teamwork": "together we are stronger",
    "greed": "enough is as good as a feast", "envy": "it is best to be yourself",
    "curiosity": "it is good to be curious", "lie": "nobody believes a liar",
    "slow": "slow and steady wins the race", "gift": "the best gifts come from the heart",
    "magic": "the best wishes are for others", "work": "a clever head can do more than strong arms",
    "music": "practice makes perfect", "lost": "there is always somebody who can help",
    "bedtime": "the night is nothing to be afraid of", "cooking": "the best meals are shared",
    "sea": "an adventure is best with a friend", "winter": "a warm heart is the best fire",
    "school": "everybody can learn", "practice": "everybody can learn if they practice",
    "fear": "the dark is nothing to be afraid of", "space": "home is the best place of all",
    "lost pet": "you should never give up", "loss": "friends help",
}  # fmt: skip


def tell(rng: Rng, cast: Cast, plot: Plot, short: bool = False) -> str:
    """The text of one story."""
    moral = next((MORALS[t] for t in plot.themes if t in MORALS), "it is good to be kind")
    slots = _slots(rng, cast) | {"moral": moral, "thing_": f"{cast.adjective} {cast.thing}"}
    parts = [rng.choice(_OPENERS)]
    if rng.random() < 0.6 and not short:
        parts.append(rng.choice(_TRAITS).replace("a {thing_}", "{a_thing}"))
    for beat in plot.beats:
        optional = beat.startswith("?")
        if optional and (short or rng.random() < 0.4):
            continue
        parts.append(beat.lstrip("? "))
    if short:
        parts = parts[:3] + parts[-2:]
    parts.append(rng.choice(_ENDINGS))
    text = fill(rng, " ".join(p for p in parts if p))
    if "{Fn}" in text:
        text = text.replace("{Fn}", cast.friend_intro, 1).replace("{Fn}", cast.friend)
    elif "{F}" in text:
        text = text.replace("{F}", cast.friend_intro, 1)
    text = re.sub(r"\s+", " ", fill(rng, text, slots)).strip()
    return _START.sub(lambda m: m.group(2).upper(), text)


_ASK_PLAIN = (
    "Tell me a [story|short story|bedtime story|little story].",
    "Write a [story|short story] for [a child|children|my daughter|my son].",
    "[Can|Could] you tell me a [story|short story]?", "I want to hear a story.",
    "Please write a short story.", "Do you know a [nice|good|short] story?", "Tell me something.",
    "Read me a story before I go to sleep.", "Make up a story.",
)  # fmt: skip
_ASK_ABOUT = (
    "Tell me a [story|short story|little story] about {x}.",
    "[Write|Please write|Make up] a [story|short story] about {x}.",
    "[Can|Could] you [tell me|write] a story about {x}?",
    "I would like to hear a story about {x}.", "A story about {x}, please.", "story about {x}",
    "Write [a few sentences|a paragraph] about {x}.", "Do you know a story about {x}?",
    "Give me a short story with {x} in it.", "Tell my kids a story about {x}.",
    "Invent a story about {x}.", "Let's have a story about {x}.",
)  # fmt: skip
_THEME_WORDS = {
    "kindness": "kindness|being kind", "helping": "helping others|helping a friend",
    "honesty": "honesty|telling the truth", "sharing": "sharing|two friends who fight",
    "friendship": "friendship|friends|two friends", "courage": "courage|being brave|fear",
    "patience": "patience|waiting", "teamwork": "teamwork|working together|a storm",
    "greed": "greed|wanting too much", "curiosity": "a treasure|a map|a treasure hunt",
    "lie": "a lie|lying", "slow": "a race", "bedtime": "the stars|the night|a star",
    "cooking": "a cake|baking", "music": "music|learning an instrument", "sea": "the sea|a boat",
    "lost": "getting lost|someone who is lost", "magic": "a wish|magic", "winter": "winter|snow",
    "birthday": "a birthday|a gift", "garden": "a garden|a seed", "lost pet": "a lost pet",
    "school": "learning something new", "envy": "envy|being yourself", "new": "a new friend",
    "fear": "fear|being afraid|the dark", "practice": "learning something|practice",
    "adventure": "an adventure|a journey", "space": "space|a rocket|the moon",
    "work": "a clever idea|a problem",
}  # fmt: skip


def _request(rng: Rng, c: Cast, plot: Plot) -> tuple[str, str]:
    """(the question, what it asks for) with a topic that the story really has."""
    topics = []
    named = f" {rng.choice(['named', 'called'])} {c.name}" if c.name else ""
    topics += [article(c.kind) + named] * 3
    if c.name and c.kind in ("girl", "boy"):
        topics += [c.name, f"{article(c.kind)} named {c.name}"]
    text = " ".join(plot.beats)
    if "{thing}" in text or "{a_thing}" in text or "{t}" in text:
        thing = f"{c.adjective} {c.thing}"
        topics += [article(c.kind) + " and " + article(thing)]
        if re.search(r"\{(a_thing|thing|t)\}", plot.beats[0]):  # it is there from the beginning
            topics += [article(thing), article(c.thing)]
    topics += [f"{article(c.kind)} {lex.PLACES[c.place]} the {c.place}"]
    if not c.friend.startswith("the "):
        topics.append(f"{c.hero if c.name else article(c.kind)} and {c.friend}")
    else:
        topics.append(f"{article(c.kind)} and {article(c.friend[4:])}")
    if "{skill}" in text:
        wish = f"wants to learn to {c.skill}"
        topics += [f"{article(c.kind)} who {wish}", f"{article(c.kind)} that {wish}"] * 2
    if "fear" in plot.themes:
        topics += [f"{article(c.kind)} {w} is afraid of the dark" for w in ("who", "that")] * 2
    themes = [t for t in plot.themes if t in _THEME_WORDS]
    if themes:
        theme = rng.choice(_THEME_WORDS[rng.choice(themes)].split("|"))
        topics += [theme, f"{article(c.kind)} and {theme}"]
    topic = rng.choice(topics)
    if rng.random() < 0.6:
        return phrasing.story_request(rng, topic, False), topic
    return casual(rng, fill(rng, rng.choice(_ASK_ABOUT), {"x": topic})), topic


def story(rng: Rng) -> Doc:
    """One request and one story, sometimes followed by questions about it."""
    plot = rng.choice(plots())
    cast = new_cast(rng)
    if rng.random() < 0.12:
        cast = new_cast(rng, thing=cast.thing)
    short = rng.random() < 0.15
    text = tell(rng, cast, plot, short)
    cast.friend_intro = cast.friend
    if rng.random() < 0.18:
        question, topic = casual(rng, fill(rng, rng.choice(_ASK_PLAIN))), ""
    else:
        question, topic = _request(rng, cast, plot)
    if short:
        question = fill(rng, "{q} [Keep it short.|Make it very short.|Only a few sentences.]",
                        {"q": question.rstrip(".") + "."})  # fmt: skip
    think = fill(rng, "[The user wants a story|I should tell a story|They want a story]")
    think += f" about {topic}. " if topic else ". "
    think += fill(rng, "[The hero is|I will write about|It is about] {i}, and it is about {t}.",
                  {"i": cast.intro, "t": plot.themes[0]})  # fmt: skip
    doc = Doc([user(question), assistant(text, think)], kind="story")
    doc.meta = {"cast": cast, "plot": plot, "text": text}
    while rng.random() < 0.4 and len(doc.messages) < 8:
        doc.messages += follow_up(rng, cast, plot, text)
    return doc


def follow_up(rng: Rng, c: Cast, plot: Plot, text: str) -> list[dict]:
    """One more turn about the story that was just told."""
    he, his = ("she", "her") if c.she else ("he", "his")
    moral = next((MORALS[t] for t in plot.themes if t in MORALS), "it is good to be kind")
    options = [
        ("What is the moral of the story?|What can we learn from it?|What does the story teach?",
         f"The story teaches us that {moral}.", f"The story is about {plot.themes[0]}."),
        ("[Give it a title.|What would be a good title?|Find a title for the story.]",
         f'"{cap(c.hero)} and {cap(c.friend)}" would be a good title.' if c.friend in text else
         f'"{cap(c.hero)}" would be a good title.', "A title names who the story is about."),
        ("Who is the story about?|Who is the hero?|Who is the main character?",
         f"The story is about {c.intro}.", f"The hero is {c.intro}."),
        ("Thank you!|That was nice.|I liked it.|Great story!|Nice, thanks.",
         "[I am glad that you liked it!|You are welcome! Would you like another one?|Thank you! "
         "Just ask if you want to hear another story.]", "The user liked the story."),
        ("Was it a true story?|Did that really happen?|Is it true?",
         "No, I made it up. It is only a story.", "I invented this story."),
    ]  # fmt: skip
    if c.friend in text:
        options.append(("Who [helped|was with] {h}?|Who is the other one?|Who is {f}?",
                        f"{cap(c.friend)} is the friend of {c.hero} in the story.",
                        f"The other one is {c.friend}."))  # fmt: skip
    if c.thing in text:
        options.append((f"What [color|kind of {c.thing}] was the {c.thing}?|Tell me more about "
                        f"the {c.thing}.", f"It was {article(c.adjective + ' ' + c.thing)}.",
                        f"The story says {c.adjective} {c.thing}."))  # fmt: skip
    if c.name:
        options.append(("What was the name of the {k}?|What is the {k} called?",
                        f"The {c.kind} is called {c.name}.", f"The name is {c.name}."))  # fmt: skip
    if c.mood in text:
        options.append((f"How did {{h}} feel?|Was anybody {c.mood}?",
                        f"At one point somebody felt {c.mood}, but it ended well.",
                        f"The story says {c.mood}."))  # fmt: skip
    if rng.random() < 0.2:
        return another(rng)
    question, answer, think = rng.choice(options)
    slots = {"h": c.hero, "f": c.friend, "k": c.kind, "he": he, "his": his}
    question = phrasing.pick(rng, question)
    return [user(casual(rng, fill(rng, question, slots))),
            assistant(fill(rng, answer, slots), think)]  # fmt: skip


def another(rng: Rng) -> list[dict]:
    """`Tell me another one`, with or without a new topic."""
    plot, cast = rng.choice(plots()), new_cast(rng)
    text = tell(rng, cast, plot, rng.random() < 0.3)
    if rng.random() < 0.5:
        question = fill(rng, "[Tell me another one.|Another story, please.|One more!|Again!]")
        think = "The user wants one more story. I will choose a new hero."
    else:
        topic = article(cast.kind)
        question = fill(rng, "[Now|And now] [tell me one|a story] about {x}[.|, please.]|"
                             "Another one, but about {x}.".replace("|Another", "|Another"),
                        {"x": topic}).split("|")[0]  # fmt: skip
        think = f"The user wants another story, about {topic}."
    return [user(question), assistant(text, think)]


def continuation(rng: Rng) -> Doc:
    """Continue a first sentence that the user gives."""
    plot, cast = rng.choice(plots()), new_cast(rng)
    text = tell(rng, cast, plot)
    first, _, rest = text.partition(". ")
    ask = fill(rng, "[Continue this story|Go on with this story|Finish this story|Continue]: ")
    think = f"The story begins with {cast.intro}. I will go on from there."
    return Doc([user(f'{ask}"{first}."'), assistant(rest, think)], kind="story")


def plain(rng: Rng) -> Doc:
    """A story as plain text, with no conversation around it."""
    return Doc(text=tell(rng, new_cast(rng), rng.choice(plots())), kind="story-text")
