"""Arithmetic a child can do: sums, word problems, comparisons, sequences, time and money.

Owns the numbers and the traces that show the steps. Answers are always computed.
"""

from __future__ import annotations

from . import lexicon as lex
from .base import Doc, Rng, assistant, cap, casual, fill, number_word, plural, qa, user

Turn = tuple[str, str, str]
_SIGNS = {"+": ("plus", "+", "and"), "-": ("minus", "-", "minus"), "*": ("times", "*", "x")}


def _numbers(rng: Rng, op: str) -> tuple[int, int]:
    """Operands: mostly small, sometimes two or three digits."""
    x = rng.random()
    if op == "*":
        return (rng.randint(0, 12), rng.randint(0, 12)) if x < 0.9 else (
            rng.randint(2, 9), rng.randint(11, 50))  # fmt: skip
    top = 10 if x < 0.3 else 20 if x < 0.55 else 100 if x < 0.92 else 1000
    a, b = rng.randint(0, top), rng.randint(0, top)
    return (max(a, b), min(a, b)) if op == "-" and rng.random() < 0.95 else (a, b)


def _steps(a: int, b: int, op: str, result: int) -> str:
    """A short trace: split into tens and ones where that helps."""
    if op == "+" and a >= 10 and b >= 10 and result < 1000:
        t, o = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
        return (f"{a // 10 * 10} + {b // 10 * 10} = {t}. {a % 10} + {b % 10} = {o}. "
                f"{t} + {o} = {result}.")  # fmt: skip
    if op == "-" and b >= 10 and result >= 0:
        t = a - b // 10 * 10
        return f"{a} - {b // 10 * 10} = {t}. {t} - {b % 10} = {result}."
    if op == "*" and b > 12:
        return f"{a} * {b // 10 * 10} = {a * (b // 10 * 10)}. {a} * {b % 10} = {a * (b % 10)}. " \
               f"Together {result}."  # fmt: skip
    return f"{a} {op} {b} = {result}."


def plain(rng: Rng) -> Turn:
    op = rng.choices("+-*/", [45, 30, 17, 8])[0]
    if op == "/":
        b, q = rng.randint(1, 12), rng.randint(0, 12)
        a, result = b * q, q
        ask = fill(rng, f"[What is|How much is|Calculate] {a} divided by {b}?|".rstrip("|"))
        ask = rng.choice([ask, f"{a} / {b} = ?", f"Divide {a} by {b}.", f"{a}/{b}"])
        answer = _say(f"{a} divided by {b}", f"{a} / {b}", result, ask)
        return ask, answer, f"{b} * {q} = {a}."
    a, b = _numbers(rng, op)
    result = a + b if op == "+" else a - b if op == "-" else a * b
    word = _SIGNS[op][0]
    forms = [
        f"What is {a} {op} {b}?", f"What is {a} {word} {b}?", f"{a} {op} {b}", f"{a}{op}{b}=",
        f"{a} {op} {b} = ?", f"How much is {a} {word} {b}?", f"Calculate {a} {op} {b}.",
        f"what's {a} {word} {b}", f"Can you tell me what {a} {word} {b} is?",
        f"Compute {a} {op} {b}.", f"I need to know {a} {op} {b}.",
    ]  # fmt: skip
    if op == "+":
        forms += [f"Add {a} and {b}.", f"What is the sum of {a} and {b}?", f"What do {a} and {b} "
                  "make together?"]  # fmt: skip
    elif op == "-":
        forms += [f"Subtract {b} from {a}.", f"What is the difference between {a} and {b}?",
                  f"Take {b} away from {a}."]  # fmt: skip
    else:
        forms += [f"Multiply {a} by {b}.", f"What is the product of {a} and {b}?", f"{a} x {b}"]
    if max(a, b) <= 20 and rng.random() < 0.15:
        forms = [f"What is {number_word(a)} {word} {number_word(b)}?"]
    ask = rng.choice(forms)
    return ask, _say(f"{a} {word} {b}", f"{a} {op} {b}", result, ask), (
        _steps(a, b, op, result))  # fmt: skip


def _say(words: str, signs: str, result: int, question: str) -> str:
    """The answer in the style of the question: signs with signs, words with words."""
    if any(c in question for c in "+-*/="):
        return f"{signs} = {result}"
    return f"{cap(words)} is {result}."


def _who(rng: Rng) -> tuple[str, str]:
    name = rng.choice(lex.NAMES)
    return name, lex.pronouns(name)[0]


def word_problem(rng: Rng) -> Turn:
    (n, he), (m, _) = _who(rng), _who(rng)
    while m == n:
        m, _ = _who(rng)
    one = rng.choice(lex.FOODS + [t for t in lex.THING_LIST if t not in ("scissors",)])
    things = plural(one)
    big = rng.random() < 0.3
    a, b = rng.randint(4, 60 if big else 15), rng.randint(2, 40 if big else 10)
    less = min(b, a - 2)
    k = rng.randint(2, 9)
    price = rng.randint(2, 9)
    he_ = cap(he)
    rows = [
        (f"{n} has {a} {things}. {m} gives {lex.pronouns(n)[1]} {b} more. How many {things} does "
         f"{n} have now?", f"{n} has {a + b} {things} now.", f"{a} + {b} = {a + b}."),
        (f"{n} had {a} {things} and lost {less}. How many are left?|{n} has {a} {things} and gives "
         f"{less} to {m}. How many {things} does {n} have left?|{n} had {a} {things}. {he_} sold "
         f"{less} of them. How many are left?", f"{n} has {a - less} {things} left.",
         f"{a} - {less} = {a - less}."),
        (f"{n} has {a} {things}, and {m} has {b}. How many do they have together?|There are {a} "
         f"{things} on the table and {b} in the bag. How many {things} are there in all?",
         f"Together there are {a + b} {things}.", f"{a} + {b} = {a + b}."),
        (f"There are {k} boxes with {price} {things} in each box. How many {things} are there?|"
         f"{n} buys {k} bags. Each bag holds {price} {things}. How many {things} does {he} have?",
         f"There are {k * price} {things}.", f"{k} * {price} = {k * price}."),
        (f"One {one} costs {price} dollars. How much do {k} {things} cost?|{n} buys {k} {things} "
         f"for {price} dollars each. How much does {he} pay?",
         f"{cap(number_word(k))} {things} cost {k * price} dollars.", f"{k} * {price} = "
         f"{k * price}."),
        (f"{n} shares {k * price} {things} equally among {k} friends. How many does each one get?",
         f"Each friend gets {price} {things}.", f"{k * price} / {k} = {price}."),
        (f"{n} is {a + 5} years old. {m} is {b} years older. How old is {m}?",
         f"{m} is {a + 5 + b} years old.", f"{a + 5} + {b} = {a + 5 + b}."),
        (f"{n} is {a + 5} years old. How old will {he} be in {b} years?",
         f"{n} will be {a + 5 + b} years old.", f"{a + 5} + {b} = {a + 5 + b}."),
        (f"{n} reads {price} pages a day. How many pages does {he} read in {k} days?",
         f"{n} reads {k * price} pages in {k} days.", f"{k} * {price} = {k * price}."),
        (f"A bus has {a + 10} people. At the stop, {less} get off and {k} get on. How many people "
         f"are on the bus now?", f"There are {a + 10 - less + k} people on the bus now.",
         f"{a + 10} - {less} = {a + 10 - less}. {a + 10 - less} + {k} = {a + 10 - less + k}."),
        (f"{n} has {k * price} dollars. One {one} costs {price} dollars. How many can {he} buy?",
         f"{n} can buy {k} {things}.", f"{k * price} / {price} = {k}."),
        (f"{n} had {a} {things}. Now {he} has {a + b}. How many did {he} get?",
         f"{n} got {b} {things}.", f"{a + b} - {a} = {b}."),
    ]  # fmt: skip
    questions, answer, think = rng.choice(rows)
    return rng.choice(questions.split("|")), answer, think


def compare(rng: Rng) -> Turn:
    a, b = rng.sample(range(rng.choice([20, 100, 1000])), 2)
    hi, lo = max(a, b), min(a, b)
    rows = [
        (f"Which is bigger, {a} or {b}?", f"{hi} is bigger than {lo}.", f"{hi} > {lo}."),
        (f"Which number is larger: {a} or {b}?", f"{hi} is larger than {lo}.", f"{hi} > {lo}."),
        (f"Which is smaller, {a} or {b}?", f"{lo} is smaller than {hi}.", f"{lo} < {hi}."),
        (f"Is {a} greater than {b}?", ("Yes" if a > b else "No") + f", {a} is "
         f"{'greater' if a > b else 'less'} than {b}.", f"{hi} > {lo}."),
        (f"Is {a} even or odd?", f"{a} is {'even' if a % 2 == 0 else 'odd'}.",
         f"The last digit of {a} is {a % 10}."),
        (f"Is {a} an even number?", ("Yes" if a % 2 == 0 else "No") + f", {a} is "
         f"{'even' if a % 2 == 0 else 'odd'}.", f"The last digit of {a} is {a % 10}."),
    ]  # fmt: skip
    return rng.choice(rows)


def number_task(rng: Rng) -> Turn:
    n = rng.randint(1, 100)
    start, step = rng.randint(0, 20), rng.choice([1, 2, 2, 3, 5, 10])
    row = [start + i * step for i in range(4)]
    nums = rng.sample(range(1, 60), rng.randint(3, 5))
    up = ", ".join(map(str, sorted(nums)))
    given = ", ".join(map(str, nums))
    k = rng.randint(3, 12)
    hour, hours = rng.randint(1, 12), rng.randint(1, 6)
    later = (hour + hours - 1) % 12 + 1
    rows = [
        (f"What number comes after {n}?", f"{n + 1} comes after {n}.", f"{n} + 1 = {n + 1}."),
        (f"What number comes before {n}?", f"{n - 1} comes before {n}.", f"{n} - 1 = {n - 1}."),
        (f"What is half of {2 * n}?", f"Half of {2 * n} is {n}.", f"{n} + {n} = {2 * n}."),
        (f"What is double {n}?|What is twice {n}?", f"Double {n} is {2 * n}.",
         f"{n} + {n} = {2 * n}."),
        (f"What comes next: {', '.join(map(str, row))}?|Continue the sequence: "
         f"{', '.join(map(str, row))}", f"The next number is {row[-1] + step}.",
         f"Each number is {step} more. {row[-1]} + {step} = {row[-1] + step}."),
        (f"Sort these numbers: {given}|Put these numbers in order: {given}|Sort {given} from small "
         "to large.", up, f"From small to large: {up}."),
        (f"Which number is the largest: {given}?|What is the maximum of {given}?",
         f"{max(nums)} is the largest.", f"Sorted: {up}."),
        (f"Which number is the smallest: {given}?", f"{min(nums)} is the smallest.",
         f"Sorted: {up}."),
        (f"Count to {k}.|Count from 1 to {k}.", ", ".join(map(str, range(1, k + 1))),
         f"From 1 to {k}."),
        (f"Count down from {k}.|Count backwards from {k}.", ", ".join(map(str, range(k, 0, -1))),
         f"From {k} down to 1."),
        (f"Write {n} in words.|How do you write {n} as a word?", cap(number_word(n)) + ".",
         f"{n} is {number_word(n)}."),
        (f"Write {number_word(n)} as a number.|What number is {number_word(n)}?", f"{n}",
         f"{number_word(n)} is {n}."),
        (f"It is {hour} o'clock. What time will it be in {hours} hours?",
         f"It will be {later} o'clock.", f"{hour} + {hours} = {hour + hours}."),
        (f"What is {nums[0]} + {nums[1]} + {nums[2]}?|Add {nums[0]}, {nums[1]} and {nums[2]}.",
         f"{nums[0]} + {nums[1]} + {nums[2]} = {sum(nums[:3])}",
         f"{nums[0]} + {nums[1]} = {nums[0] + nums[1]}. {nums[0] + nums[1]} + {nums[2]} = "
         f"{sum(nums[:3])}."),
    ]  # fmt: skip
    questions, answer, think = rng.choice(rows)
    return rng.choice(questions.split("|")), answer, think


def turn(rng: Rng) -> Turn:
    make = rng.choices([plain, word_problem, compare, number_task], [45, 30, 8, 17])[0]
    question, answer, think = make(rng)
    return casual(rng, question) if rng.random() < 0.5 else question, answer, think


def sum_doc(rng: Rng) -> Doc:
    question, answer, think = turn(rng)
    if rng.random() < 0.1:
        question += fill(rng, " [Show your steps.|Explain how you got it.|Explain.|Step by step.]")
        answer = f"{think} {answer}"
    elif rng.random() < 0.08:
        question += fill(rng, " [Only the number, please.|Just the answer.|Answer with a number.]")
        digits = [w.strip(".,") for w in answer.split() if w.strip(".,").isdigit()]
        answer = digits[-1] if digits else answer
    return qa(question, answer, think, kind="sum")


def chain(rng: Rng) -> Doc:
    """A sum and follow-ups on its result."""
    a, b = rng.randint(1, 30), rng.randint(1, 30)
    value = a + b
    messages = [user(f"What is {a} plus {b}?"),
                assistant(f"{a} plus {b} is {value}.", _steps(a, b, "+", value))]  # fmt: skip
    for _ in range(rng.randint(1, 3)):
        k = rng.randint(1, 10)
        if rng.random() < 0.5 or k > value:
            new, word, op = value + k, "plus", "+"
            ask = fill(rng, f"[And plus {k}?|Add {k} to that.|Now add {k}.|plus {k}?]")
        else:
            new, word, op = value - k, "minus", "-"
            ask = fill(rng, f"[And minus {k}?|Subtract {k} from that.|Now take away {k}.]")
        messages += [user(ask), assistant(f"{value} {word} {k} is {new}.",
                                          f"{value} {op} {k} = {new}.")]  # fmt: skip
        value = new
    return Doc(messages, kind="sum")
