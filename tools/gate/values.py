"""Made-up values for the slots of templates: people, places, dates, numbers, secrets.

This file owns how a value is put together and which label its span has. It knows no template. No
value is taken from a real person: names come from Faker's lists and from `templates/lexicon.txt`.
"""

from __future__ import annotations

import gzip
import json
import random
import string
from pathlib import Path
from typing import Any

from grammar import read_lexicon

HERE = Path(__file__).parent
SLOTS_OF_LABEL = {
    "person": "name first last", "username": "user", "organization": "org", "date_of_birth": "dob",
    "age": "age", "demographic": "demo job", "address": "addr street zip",
    "location": "city country place", "date": "date time", "email": "email", "phone": "phone",
    "url": "url", "ip_address": "ip", "payment_card": "card", "iban": "iban",
    "bank_account": "acct",
    "amount": "amount", "government_id": "ssn taxid", "passport": "passport",
    "driving_license": "dl", "health_id": "mrn policy npi", "case_number": "case",
    "vehicle_id": "vin", "license_plate": "plate", "other_id": "emp student cust device",
    "health": "cond lab", "medication": "med", "secret": "secret password",
}  # fmt: skip
LABEL = {slot: label for label, slots in SLOTS_OF_LABEL.items() for slot in slots.split()}
PARTICLES = ("de ", "van ", "von ", "da ", "al-", "bin ", "van der ", "de la ", "O’", "Mc")
WORDS_OF = {"place": "places", "country": "countries", "job": "jobs"}  # slot -> lexicon


def digits(rng: random.Random, shape: str) -> str:
    """`shape` with its marks filled, as `templates/shapes.txt` explains them."""
    marks = {
        "#": string.digits,
        "@": string.ascii_uppercase,
        "~": string.ascii_lowercase + string.digits,
    }
    return "".join(rng.choice(marks[c]) if c in marks else c for c in shape)


class Values:
    """The slot function of `grammar.fill`, over the pools of `pools.py` and the lexicon.

    A maker takes the generator, the text's memory and a key that ties a person's parts together.
    """

    def __init__(self, pools: Path, lexicon: dict[str, list[str]]) -> None:
        with gzip.open(pools, "rt", encoding="utf-8") as file:
            self.pools: dict[str, list[dict[str, list[str]]]] = json.load(file)
        self.lexicon = lexicon
        self.shapes = read_lexicon(HERE / "templates/shapes.txt")
        self.everywhere = [pool for group in self.pools.values() for pool in group]
        self.makers = {
            name.removeprefix("make_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("make_")
        }

    def __call__(
        self, slot: str, rng: random.Random, memory: dict[str, object]
    ) -> tuple[str, str | None]:
        if not slot[-1].isdigit():
            return self.value(slot, rng, memory, str(rng.random())), LABEL.get(slot)
        kind, key = slot[:-1], f"={slot}"
        if key not in memory:
            memory[key] = self.value(kind, rng, memory, slot[-1])
        return str(memory[key]), LABEL.get(kind)

    def value(self, kind: str, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        """One value of `kind`; `who` ties first and last names of one person together."""
        if kind in self.makers:
            return str(self.makers[kind](rng, memory, who))
        if kind in self.shapes:
            return self._shaped(rng, kind)
        return rng.choice(self.lexicon[WORDS_OF.get(kind, kind)])

    def _shaped(self, rng: random.Random, kind: str) -> str:
        return digits(rng, rng.choice(self.shapes[kind]))

    def _word(self, rng: random.Random, name: str) -> str:
        return rng.choice(self.lexicon[name])

    def _lang(self, rng: random.Random, memory: dict[str, Any]) -> str:
        languages = ["en"] * 6 + ["de", "fr", "es", "it", "pt"]
        return str(memory.setdefault("lang", rng.choice(languages)))

    def _pool(self, rng: random.Random, memory: dict[str, Any]) -> dict[str, list[str]]:
        if "pool" not in memory:
            near = rng.random() < 0.7
            memory["pool"] = rng.choice(
                self.pools[self._lang(rng, memory)] if near else self.everywhere
            )
        return memory["pool"]  # type: ignore[no-any-return]

    # people

    def _person(self, rng: random.Random, memory: dict[str, Any], who: str) -> tuple[str, str]:
        key = f"person{who}"
        if key not in memory:
            pool = self._pool(rng, memory) if rng.random() < 0.6 else rng.choice(self.everywhere)
            first, last = rng.choice(pool["first"]), rng.choice(pool["last"])
            if rng.random() < 0.3:
                first, last = self._word(rng, "first_names"), self._word(rng, "last_names")
            if rng.random() < 0.04:
                last = self._invented(rng)
            if rng.random() < 0.04:
                first = self._invented(rng)
            memory[key] = (first, last)
        return memory[key]  # type: ignore[no-any-return]

    def _invented(self, rng: random.Random) -> str:
        return "".join(rng.choices(self.lexicon["syllables"], k=rng.choice([2, 2, 3]))).capitalize()

    def make_name(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        first, last = self._person(rng, memory, who)
        initial = rng.choice(string.ascii_uppercase)
        forms = [
            (72, f"{first} {last}"),
            (6, f"{first} {initial}. {last}"),
            (4, f"{first[0]}. {last}"),
            (3, f"{first} {self._word(rng, 'first_names')} {last}"),
            (3, f"{first} {last}-{self._word(rng, 'last_names')}"),
            (2, f"{last}, {first}"),
            (2, f"{first} {last} {rng.choice(['Jr.', 'jr.', 'Sr.', 'III', 'II', 'Jr'])}"),
            (2, f"{first[0]}.{initial}. {last}"),
            (2, f"{first} {rng.choice(PARTICLES)}{last}"),
            (2, first),
        ]
        return rng.choices([form for _, form in forms], [weight for weight, _ in forms])[0]

    def make_first(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._person(rng, memory, who)[0]

    def make_last(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._person(rng, memory, who)[1]

    def _handle(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        first, last = (
            part.lower().replace(" ", "").replace("'", "")
            for part in self._person(rng, memory, who)
        )
        return self._word(rng, "handle_forms").format(
            f=first,
            l=last,
            i=first[:1],
            n=rng.randint(1, 2009),
            a=self._word(rng, "handle_words"),
        )

    def make_user(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return rng.choice(["", "", "@"]) + self._handle(rng, memory, who)

    def make_email(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        handle, domain = self._handle(rng, memory, who), self._word(rng, "domains")
        if rng.random() < 0.3:
            end = rng.choice([".com", ".io", ".net", ".co.uk", ".de", ".org", "-corp.com"])
            domain = self._invented(rng).lower() + end
        if rng.random() < 0.04:
            return f"{handle} at {domain.replace('.', ' dot ')}"
        return f"{handle}@{domain}"

    def _listed(self, rng: random.Random, memory: dict[str, Any], kind: str, shape: str) -> str:
        """From the country's own list, or by one of our shapes."""
        pool = self._pool(rng, memory)
        return (
            rng.choice(pool[kind])
            if pool[kind] and rng.random() < 0.5
            else self._shaped(rng, shape)
        )

    def make_phone(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._listed(rng, memory, "phone", "phone_shape")

    def make_ssn(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._listed(rng, memory, "national_id", "ssn_shape")

    def make_plate(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._listed(rng, memory, "license_plate", "plate_shape")

    # places

    def make_city(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        own = rng.random() < 0.4
        return rng.choice(self._pool(rng, memory)["city"] if own else self.lexicon["cities"])

    def make_street(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        pool = self._pool(rng, memory)
        if rng.random() < 0.5 and pool["street"]:
            return rng.choice(pool["street"]).replace("\n", rng.choice([", ", "\n"]))
        name = rng.choice([self.make_last(rng, memory, "s" + who), self._word(rng, "street_words")])
        flats = (
            *("", "", ""),
            f", Apt {rng.randint(1, 90)}{rng.choice(['', 'B', 'C'])}",
            f" #{rng.randint(1, 400)}",
            f", Flat {rng.randint(1, 40)}",
            f" Suite {rng.randint(100, 900)}",
        )
        kind = self._word(rng, "street_kinds")
        return f"{rng.randint(1, 9999)} {name} {kind}{rng.choice(flats)}"

    def make_zip(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        pool = self._pool(rng, memory)
        return rng.choice(pool["postcode"]) if pool["postcode"] else digits(rng, "#####")

    def make_addr(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        street, city, code = (
            make(rng, memory, who) for make in (self.make_street, self.make_city, self.make_zip)
        )
        pool, country = self._pool(rng, memory), self._word(rng, "countries")
        state = rng.choice(pool["state"] or ["CA"]) if rng.random() < 0.5 else digits(rng, "@@")
        gap = rng.choice([", ", ", ", ", ", "\n", "\n", " "])
        ends = (
            f"{city}, {state} {code}",
            f"{code} {city}",
            city,
            f"{city} {code}",
            f"{city}\n{code}",
            f"{city}, {country}",
            f"{city}\n, {state}\n {country} {code}",
        )
        return f"{street}{gap}{rng.choice(ends)}"

    def make_org(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        roll = rng.random()
        if roll < 0.4:
            return rng.choice(self._pool(rng, memory)["company"] or self.lexicon["companies"])
        if roll < 0.7:
            return self._word(rng, "companies")
        names = (self._invented(rng), self.make_last(rng, memory, "o"), self._word(rng, "cities"))
        return f"{rng.choice(names)} {self._word(rng, 'company_tails')}"

    # time and money

    def _day(self, rng: random.Random, memory: dict[str, Any], low: int, high: int) -> str:
        y, m, d = rng.randint(low, high), rng.randint(1, 12), rng.randint(1, 28)
        lang = self._lang(rng, memory)
        month = self.lexicon[f"months_{lang}"][m - 1]
        of = " de " if lang in ("es", "pt") else " "
        forms = [
            f"{y}-{m:02}-{d:02}",
            f"{m:02}/{d:02}/{y}",
            f"{d:02}/{m:02}/{y}",
            f"{d}.{m}.{y}",
            f"{d:02}.{m:02}.{y}",
            f"{m}/{d}/{y % 100:02}",
            f"{d:02}-{m:02}-{y}",
            f"{d}{'.' if lang == 'de' else ''}{of}{month}{of}{y}",
        ]
        if lang == "en":
            suffix = "th" if 10 <= d <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(d % 10, "th")
            short = month[:3]
            forms += [f"{month} {d}, {y}", f"{month} {d}{suffix}, {y}", f"{d} {short} {y}"]
            forms += [
                f"{short} {d}, {y}",
                f"{d}{suffix} of {month} {y}",
                f"{d:02}-{short.upper()}-{y}",
            ]
        return rng.choice(forms)

    def make_dob(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._day(rng, memory, 1930, 2018)

    def make_date(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        roll, month = rng.random(), self._word(rng, f"months_{self._lang(rng, memory)}")
        if roll < 0.75:
            return self._day(rng, memory, 1990, 2027)
        if roll < 0.85:
            return f"{month} {rng.randint(1990, 2027)}"
        if roll < 0.93 and self._lang(rng, memory) == "en":
            return f"{month} {rng.randint(1, 28)}"
        return (
            f"{self._day(rng, memory, 2015, 2027)} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        )

    def make_time(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        day = f"{rng.randint(2019, 2027)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        clock = ":".join(f"{rng.randint(0, top):02}" for top in (23, 59, 59))
        return f"{day}T{clock}Z"

    def make_age(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return str(rng.randint(1, 97))

    def make_amount(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        n = rng.choice([rng.randint(40, 990), rng.randint(1, 99) * 1000, rng.randint(1000, 250000)])
        cents = f"{rng.randint(0, 99):02}"
        forms = [f"${n:,}", f"${n}", f"€{n:,}", f"£{n:,}", f"{n:,} USD", f"{n} euros", f"{n:,} EUR"]
        forms += [f"${n:,}.{cents}", f"{n // 1000 or 3}k", f"₹{n}", f"{n} dollars", f"{n:,.2f} €"]
        return rng.choice(forms)

    # the net

    def make_password(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        return self._word(rng, "password_heads") + self._shaped(rng, "password_tail")

    def make_url(self, rng: random.Random, memory: dict[str, Any], who: str) -> str:
        handle, name = self._handle(rng, memory, who), self._invented(rng)
        host = rng.choice([name.lower(), handle, name + rng.choice(["Hub", "Works", "Shop"])])
        end = rng.choice([".com", ".net", ".org", ".io", ".co.uk", ".de", ".fr"])
        path = rng.choice(
            ["", "", "", f"/{handle}", "/profile", f"/in/{handle}", f"/?user={handle}"]
        )
        return rng.choice(["", "https://", "http://www.", "www."]) + host + end + path
