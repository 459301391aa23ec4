"""How people say things: polite openers, indirect questions, chatter before and after.

Owns the composition opener x verb x core x closer that every skill shares, so that an intent is
recognised by its core and not by its first words. Knows no answers.
"""

from __future__ import annotations

from . import lexicon as lex
from .base import Rng, cap, fill, lower_first

_PEOPLE = (
    "my son", "my daughter", "my little brother", "my sister", "my teacher", "a friend",
    "my grandmother", "my neighbor", "my mother", "my father", "the children", "my niece",
    "somebody", "my boss", "my friend", "a child", "my cousin", "my class", "my uncle",
)  # fmt: skip
_IMPERATIVE = (
    "{C}.", "{C}.", "{C}.", "{C}.", "Please {c}.", "Please {c}.", "{C}, please.", "Can you {c}?",
    "Could you {c}?", "Can you please {c}?", "Could you please {c}?", "Would you {c}?",
    "Will you {c}?", "Would you please {c}?", "I would like you to {c}.", "I'd like you to {c}.",
    "I want you to {c}.", "Now {c}.", "You should {c} now.", "Are you able to {c}?",
    "It would be nice if you could {c}.", "Could you possibly {c}?", "I need you to {c}.",
    "Be so kind and {c}.", "Kindly {c}.", "pls {c}", "{c}", "Go ahead and {c}.", "Try to {c}.",
    "Would you be able to {c}?", "Can I ask you to {c}?", "May I ask you to {c}?", "Just {c}.",
    "Do me a favor and {c}.", "You can surely {c}, can't you?", "Help me and {c}.",
)  # fmt: skip
_INDIRECT = (
    "Tell me {i}.", "Can you tell me {i}?", "Could you tell me {i}?", "Do you know {i}?",
    "I want to know {i}.", "I would like to know {i}.", "I need to know {i}.", "I wonder {i}.",
    "Please tell me {i}.", "I was wondering {i}.", "I forgot {i}.", "Remind me {i}.",
    "Any idea {i}?", "I do not know {i}.", "I'd like to know {i}.", "Would you tell me {i}?",
    "Can you say {i}?", "I have always wondered {i}.", "Let me know {i}.", "Say {i}.",
    "I am trying to find out {i}.", "Can you remind me {i}?", "For school I need to know {i}.",
    "You surely know {i}.", "I am curious {i}.", "Could you please tell me {i}?",
    "Help me: {i}?", "I never learned {i}.", "Does anybody know {i}?", "I must know {i}.",
)  # fmt: skip
_BY_OTHERS = (
    "{P} asked me {i}.", "{P} asks {i}.", "{P} wants to know {i}.", "{P} would like to know {i}.",
    "{P} is asking {i}.", "{P} does not know {i}.", "{P} keeps asking {i}.",
    "{P} wonders {i}.", "What should I say when {p} asks {i}?", "How do I tell {p} {i}?",
    "{P} just asked {i}.", "Can you tell {p} {i}?",
)  # fmt: skip
_AFTER_OTHERS = (
    "", "", "", " What do I say?", " What can I answer?", " Can you help?", " What is the answer?",
    " How do I explain it?", " What should I answer?", " Do you know?", " I have no idea.",
    " What would you say?", " How would you answer?",
)  # fmt: skip
_BEFORE = (
    "Hi!", "Hello!", "Hey,", "One more thing:", "Quick question:", "Just curious:", "OK,", "So,",
    "By the way:", "I have a question.", "Another question:", "Hi there!", "Good morning!",
    "I need some help.", "Sorry to bother you.", "For my homework:", "Hmm,", "Let me think.",
    "Something else:", "Good evening.", "Excuse me,", "Next question:", "Well,", "All right.",
)  # fmt: skip
_AFTER = (
    "Thanks!", "Thank you.", "I am curious.", "In one sentence, please.", "It is for school.",
    "Please be brief.", "Thank you in advance!", "I really want to know.", "I am not sure.",
    "A short answer is fine.", "I need it for a quiz.", "Keep it simple.",
)  # fmt: skip


# Words that may lose their capital behind an opener; names and "I" may not.
_LOWER = frozenset(lex.WORDS["STARTERS"])


def softened(text: str) -> str:
    """The text as it stands behind `So,`."""
    return lower_first(text) if text.split(" ", 1)[0].rstrip("?.,") in _LOWER else text


def split(text: str) -> list[str]:
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


def pick(rng: Rng, text: str) -> str:
    return rng.choice(split(text))


def careless(rng: Rng, text: str) -> str:
    """Now and then no capital or no full stop, as people type."""
    x = rng.random()
    if x < 0.07:
        return softened(text).rstrip("?.")
    if x < 0.1:
        return text.lower()
    if x < 0.13:
        return text.rstrip("?.")
    return text


def dressed(rng: Rng, text: str, share: float = 0.16) -> str:
    """Sometimes a word before the question or after it."""
    if rng.random() < share:
        if rng.random() < 0.6:
            before = rng.choice(_BEFORE)
            text = f"{before} {text if before[-1] in '.!' else softened(text)}"
        else:
            text = f"{text if text[-1] in '.?!' else text + '.'} {rng.choice(_AFTER)}"
    return careless(rng, text)


def imperative(rng: Rng, core: str) -> str:
    """`explain the word x` as an order, a wish or a question."""
    return rng.choice(_IMPERATIVE).replace("{C}", cap(core)).replace("{c}", core)


def person(rng: Rng) -> str:
    return rng.choice(_PEOPLE)


def indirect(rng: Rng, clause: str) -> str:
    """`what a ladder is` as somebody's question."""
    if rng.random() < 0.3:
        who = person(rng)
        form = rng.choice(_BY_OTHERS)
        if who == "the children":
            for one, many in (
                ("asks", "ask"),
                ("wants", "want"),
                ("is asking", "are asking"),
                ("does", "do"),
                ("keeps", "keep"),
                ("wonders", "wonder"),
            ):
                form = form.replace(f"{{P}} {one}", f"{{P}} {many}").replace(
                    f"{{p}} {one}", f"{{p}} {many}")  # fmt: skip
        text = form.replace("{P}", cap(who)).replace("{p}", who).replace("{i}", clause)
        return text + ("" if text.endswith("?") else rng.choice(_AFTER_OTHERS))
    return rng.choice(_INDIRECT).replace("{i}", clause)


def ask(rng: Rng, direct: str = "", clause: str = "", core: str = "") -> str:
    """One question out of its direct, indirect and imperative forms (each with alternatives)."""
    forms = [(direct, 5), (clause, 3), (core, 3)]
    chosen = rng.choices([f for f in forms if f[0]], [w for f, w in forms if f])[0]
    text = fill(rng, pick(rng, chosen[0])).replace("  ", " ").strip()
    if chosen[0] == clause and chosen[1] == 3 and clause != core:
        text = indirect(rng, text)
    elif chosen[0] == core:
        text = imperative(rng, text)
    return dressed(rng, text)


_STORY_VERBS = (
    "tell me", "tell me", "write", "write me", "make up", "invent", "think of", "come up with",
    "give me", "read me", "create", "compose", "tell us", "tell my children", "tell my daughter",
    "tell my son", "write down", "improvise", "narrate", "share", "dream up", "spin",
)  # fmt: skip
_STORIES = (
    "a story", "a story", "a story", "a short story", "a short story", "a little story", "a tale",
    "a short tale", "a fairy tale", "a fable", "a bedtime story", "a children's story", "an "
    "adventure story", "a nice story", "a very short story", "a few sentences", "a little tale",
    "a good story", "a funny story", "a small story", "one of your stories", "a good-night story",
    "some kind of story", "a new story", "a sweet story", "a paragraph", "a mini story",
)  # fmt: skip
_STORY_WISHES = (
    "I want to hear {s} about {x}.", "I would love {s} about {x}.", "{S} about {x}, please.",
    "{S} about {x}, please!", "Do you know {s} about {x}?", "{P} would like {s} about {x}.",
    "{P} wants {s} about {x}.", "I need {s} about {x}.", "I feel like {s} about {x}.",
    "How about {s} about {x}?", "What about {s} about {x}?", "Let us have {s} about {x}.",
    "I am in the mood for {s} about {x}.", "Is there {s} about {x}?", "{X}: {s}, please.",
    "story about {x}", "Could I hear {s} about {x}?", "May I have {s} about {x}?", "{S}: {x}.",
    "{P} cannot sleep. Do you have {s} about {x}?", "I wish to hear {s} about {x}.",
    "Today I would like {s} about {x}.", "I'd enjoy {s} about {x}.", "{S} with {x} in it, please.",
    "We want {s} about {x}!", "It is bedtime. {S} about {x}, please.", "Topic for a story: {x}.",
    "I have to write {s} about {x}. Help me.", "Do you have {s} about {x}?", "{S} about {x}",
    "Can I have {s} about {x}?", "For my class I need {s} about {x}.", "One story about {x}!",
)  # fmt: skip
_CLAUSE_WISHES = (
    "Tell me about {x}.", "Tell us about {x}.", "What happens to {x}?", "Once there was {x}. Go "
    "on.", "Imagine {x}. What happens?", "Tell me of {x}.", "Write about {x}.", "I want to hear "
    "about {x}.", "Tell me what happens to {x}.", "Write something about {x}.",
)  # fmt: skip


def story_request(rng: Rng, topic: str, clause: bool) -> str:
    """A wish for a story about `topic`; with a clause in it, `tell me about` is a wish too."""
    if clause and rng.random() < 0.16:
        return careless(rng, rng.choice(_CLAUSE_WISHES).replace("{x}", topic))
    story = rng.choice(_STORIES)
    if rng.random() < 0.5:
        about = rng.choice(["about", "about", "about", "about", "with", "on the subject of"])
        text = imperative(rng, f"{rng.choice(_STORY_VERBS)} {story} {about} {topic}")
        return dressed(rng, text, 0.08)
    who = person(rng)
    text = rng.choice(_STORY_WISHES).replace("{x}", topic).replace("{X}", cap(topic))
    text = text.replace("{s}", story).replace("{S}", cap(story))
    if who == "the children":
        who = "my child"
    return dressed(rng, text.replace("{P}", cap(who)), 0.08)


def any_story(rng: Rng) -> str:
    """A wish for a story that names no topic."""
    story = rng.choice(_STORIES)
    if rng.random() < 0.6:
        return dressed(rng, imperative(rng, f"{rng.choice(_STORY_VERBS)} {story}"), 0.08)
    text = fill(rng, "[{s}, please.|I want {s}.|Do you know {s}?|I would like {s}.|{s}!|I need "
                "{s}.|It is bedtime. Do you have {s}?|How about {s}?]", {"s": story})  # fmt: skip
    return dressed(rng, cap(text), 0.08)
