"""Secrets: tokens, passwords, keys in code and prose, private keys, credentials in links.

This file owns how they are found and what makes a value a placeholder. The table of known tokens
is `tokens.py`; seed phrases are `seeds.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan
from lily.gate.rules.tokens import BY_START, SHAPED, STARTS
from lily.gate.vocabulary import word_set

_SECRET = Category.SECRET
_BLANK = re.compile(r"[xX*.•0_-]{6,500}")


def known_tokens(scan: Scan) -> Iterator[Finding]:
    """Tokens that begin as their issuer makes them; samples count, rows of x do not."""
    text = scan.text
    for match in STARTS.finditer(text):
        for name, pattern in BY_START[match.group()]:
            token = pattern.match(text, match.start())
            if token is None or _BLANK.fullmatch(token.group()[len(match.group()) :]):
                continue
            if name == "openai" and not any(each.isdigit() for each in token.group()[3:]):
                continue
            yield Finding(*token.span(), _SECRET, 1.0, f"secret.{name}")
            break
    for name, shape, needle in SHAPED:
        if needle in text:
            for token in shape.finditer(text):
                yield Finding(*token.span(), _SECRET, 1.0, f"secret.{name}")


_PEM_BEGIN = re.compile(r"-----BEGIN (?P<kind>(?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?)-----")
_PEM_TAIL = re.compile(r"(?:\\n|\s){0,8}(?:[A-Za-z0-9+/=]{4,100}\.{0,3}(?:\\n|\s){0,4}){0,2000}")
_PUTTY = re.compile(
    r"PuTTY-User-Key-File-\d: [^\n]{1,64}\n(?:[^\n]{0,128}\n){1,200}?Private-MAC: [0-9a-f]{32,128}"
)


def private_keys(scan: Scan) -> Iterator[Finding]:
    """Whole blocks of private keys (PEM, OpenSSH, PGP, PuTTY); cut off ones as far as they go."""
    text = scan.text
    for begin in _PEM_BEGIN.finditer(text):
        end_mark = f"-----END {begin.group('kind')}-----"
        end = text.find(end_mark, begin.end(), begin.end() + 65_536)
        if end >= 0:
            stop = end + len(end_mark)
        else:
            tail = _PEM_TAIL.match(text, begin.end())
            body = text[begin.start() : tail.end() if tail else begin.end()]
            stop = begin.start() + len(body.rstrip())
        yield Finding(begin.start(), stop, Category.PRIVATE_KEY, 1.0, "private_key.pem")
    if "PuTTY-User-Key-File" in text:
        for match in _PUTTY.finditer(text):
            yield Finding(*match.span(), Category.PRIVATE_KEY, 1.0, "private_key.putty")


_USER_INFO = re.compile(
    r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://(?P<userinfo>[^\s:/@\"'<>]{0,128}:"
    r"(?P<password>[^\s/@\"'<>]{1,256}))@(?=[\w\[{$-])"
)
_QUERY_TOKEN = re.compile(
    r"[?&#](?:access_token|token|api_?key|apikey|key|sig|signature|auth|secret|password|passwd|pwd"
    r"|client_secret|id_token|"
    r"refresh_token|session|sessionid|code|x-amz-signature|sas"
    r"|jwt)=(?P<value>[^\s&#\"'<>]{6,2000})",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"\b(?:authorization|proxy-authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic"
    r"|token|apikey)\s{1,3})?(?P<value>[\w.~+/=-]{8,4000})"
    r"|\bbearer\s{1,3}(?P<bearer>[\w.~+/=-]{16,4000})"
    r"|\b(?:set-)?cookie:\s{0,3}[\w-]{1,64}=(?P<cookie>[\w.%~+/=-]{16,4000})"
    r"|\bx-(?:api-key|auth-token):\s{0,3}(?P<key>[\w.~+/=-]{8,400})",
    re.IGNORECASE,
)


def in_transport(scan: Scan) -> Iterator[Finding]:
    """Credentials in links, queries and headers."""
    text = scan.text
    if "://" in text:
        for match in _USER_INFO.finditer(text):
            if not placeholder(match.group("password")):
                yield Finding(*match.span("userinfo"), _SECRET, 1.0, "secret.url_userinfo")
    if "=" in text:
        for match in _QUERY_TOKEN.finditer(text):
            value = match.group("value")
            if (
                not placeholder(value)
                and _entropy(value) >= 2.5
                and any(c.isdigit() for c in value)
            ):
                yield Finding(*match.span("value"), _SECRET, 0.9, "secret.url_query")
    if not scan.vocabulary.isdisjoint(("authorization", "bearer", "cookie", "x")):
        for match in _HEADER.finditer(text):
            group = match.lastgroup or "value"
            if not placeholder(match.group(group)) and _random(match.group(group)):
                yield Finding(*match.span(group), _SECRET, 0.95, "secret.header")


_KEY_WORDS = word_set(
    "password passwd pwd pass passphrase passcode secret token apikey api key credential "
    "credentials auth contraseña contrasena clave passwort kennwort senha parola wachtwoord mdp "
    "psk pat bearer signing encryption access identified private salt webhook"
)
_ASSIGNED = re.compile(
    r"(?P<word>pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_.-]?key|access[_.-]?key"
    r"|(?:private|signing|encryption|master|account|storage|shared|"
    r"license|client|service|deploy|session|admin|auth|ssh|hmac|webhook|app)[_.-]?key|credentials?"
    r"|psk|salt|contraseña|passwort|kennwort|senha|mdp)"
    r"(?P<tail>(?:[_.-]?(?:key|hash|value|string|secret|id|prod|production|dev|staging|test|live"
    r"|\d{1,3}))?)"
    r"[\"'\]]{0,2}[ \t]{0,4}(?::=|=>|[:=]|\bis\b)"
    r"[ \t]{0,4}(?P<quote>[\"'`]?)(?P<value>[^\s\"'`<>]{4,512})",
    re.IGNORECASE,
)
_IDENTIFIED_BY = re.compile(
    r"\bIDENTIFIED BY\s{1,3}['\"](?P<value>[^'\"\n]{4,128})['\"]|\bsshpass "
    r"-p\s{0,2}['\"]?(?P<ssh>[^\s'\"]{4,128})"
    r"|\s-u[ ]?['\"]?[\w.@-]{1,64}:(?P<curl>[^\s'\"]{4,128})|(?<=\s)--password"
    r"[ =]['\"]?(?P<flag>[^\s'\"]{4,128})"
)
_KEY_START = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_PASSWORDS = re.compile(r"pass|pwd|passwort|kennwort|contrase|senha|mdp|psk", re.IGNORECASE)
_NO_SECRET_KEY = re.compile(
    r"public|pub_?key|key_?id$|primary|foreign|token_?(?:type|count|id|s$|limit|name|url|endpoint)"
    r"|max_?token|tokeniz|pass_?rate|"
    r"bypass|compass|passive|passenger|passage|password_?(?:field|input|length|policy|hash_?algo"
    r"|reset)|secret_?(?:name|id|ref|version)|secretary",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"your|example|placeholder|changeme|change_me|dummy|sample|insert|replace|redacted|todo|fixme"
    r"|<[^>]{0,64}>?|\$\{|\{\{|\$\(|%\(|"
    r"^\$[A-Z_][A-Z0-9_]{0,64}$|^\$[a-z_]{1,64}$|^%[A-Za-z_]\w{0,64}%$|^x{3,512}|\*{3}|\.{3}|xxxx"
    r"|1234567890abcdef|^(?:null|none|true|false|undefined|nil|empty|string|str|"
    r"required|optional|password|passwd|secret|token|key|apikey|value|text|hidden|varchar|the|not"
    r"|wrong|and|or|is|was|type|process|self|os|env|"
    r"config|settings|request|input|output|getenv|args|options|params|this|user|test"
    r"|default)\W{0,3}$",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[()\[\]{}]|^[A-Za-z_]\w{0,64}(?:(?:\.|->|::)[A-Za-z_]\w{0,64}){1,8}[,;]?$|^@|^/|^\.{1,2}/"
    r"|^https?:|^arn:|\w=\w"
)


_MIXED = re.compile(r"[a-z]{0,64}[A-Z]{1,64}[a-z]{1,64}[^_\s]{0,64}[A-Z0-9][a-z]")


def placeholder(value: str) -> bool:
    """Whether a value only stands for a secret."""
    if len(value) >= 20 and _random(value) and _MIXED.search(value):
        return False  # drawn, whatever words it happens to hold
    return (
        _PLACEHOLDER.search(value) is not None
        or _BLANK.fullmatch(value) is not None
        or len(set(value)) < 3
    )


def _entropy(value: str) -> float:
    """Shannon entropy in bits a character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _random(value: str) -> bool:
    """Whether a value looks drawn and not written: letters and digits mixed, much entropy."""
    if len(value) < 8 or not any(each.isdigit() for each in value):
        return False
    if not any(each.isalpha() for each in value):
        return False
    return _entropy(value) >= (2.8 if len(value) < 16 else 3.1)


_SYMBOLS = re.compile(r"[^A-Za-z'-]")


def assigned(scan: Scan) -> Iterator[Finding]:
    """Values of keys that are named as secrets, in code and configuration."""
    if (
        scan.vocabulary.isdisjoint(_KEY_WORDS)
        and "pass" not in scan.lower
        and "key" not in scan.lower
    ):
        return
    for match in _ASSIGNED.finditer(scan.text):
        start_of_key = _KEY_START.search(scan.text, max(0, match.start() - 64), match.start())
        key = (
            (start_of_key.group() if start_of_key else "")
            + match.group("word")
            + match.group("tail")
        )
        value = match.group("value").rstrip("" if match.group("quote") else ",;.?)]}")
        if _NO_SECRET_KEY.search(key) or not value or placeholder(value):
            continue
        if match.group("word") in ("PWD", "pwd") and value[0] in "/~.":
            continue  # a shell's working directory
        quoted, spoken = bool(match.group("quote")), scan.text[match.end("tail")].isspace()
        is_password = _PASSWORDS.search(match.group("word")) is not None
        if not quoted and _CODE.search(value) and not is_password:
            continue
        if not quoted and is_password and re.search(r"[(\[]|^[A-Za-z_]+(?:\.[A-Za-z_]+)+$", value):
            continue
        signed = any(each.isdigit() or not each.isalnum() for each in value)
        strong = _random(value) if not is_password else (quoted or signed) and len(value) >= 4
        if is_password and spoken and not _SYMBOLS.search(value):
            strong = False  # prose: `passwords_in_prose` knows its words
        if not is_password and scan.text[
            match.end("tail") : match.end("tail") + 4
        ].strip().startswith("is"):
            strong = _random(value)
        if strong:
            start = match.start("value")
            yield Finding(start, start + len(value), _SECRET, 0.9, "secret.assigned")
    for match in _IDENTIFIED_BY.finditer(scan.text):
        group = match.lastgroup or "value"
        if not placeholder(match.group(group)):
            yield Finding(*match.span(group), _SECRET, 0.9, "secret.command")


_PROSE = re.compile(
    r"\b(?:(?P<sure>my|our|the|his|her|their|your|mi|mein|meine|mon|la|el|das|wifi|wi-fi|root"
    r"|admin|user|login|account|new|old|temporary|master|"
    r"email|bank|router|laptop|current)[ ])(?:[\w-]{1,20}"
    r"[ ]){0,2}?(?P<word>passwords?|passphrase|passcode|pass(?:wd)?|pwd|pin(?: code| number)?|"
    r"contraseña|clave|passwort|kennwort|mot de passe|mdp|senha|security answer|otp|verification "
    r"code|one-time code|access code|door code|gate code|alarm code)"
    r"(?:[ ](?:for|to|on|of|at)[ ](?:[\w.-]{1,24}[ ]){1,4}?)?[ ]?(?:is "
    r"now|is|was|=|:|es|ist|lautet|est|é|to)[ :]{1,3}(?P<quote>[\"'`“]?)"
    r"(?P<value>[^\s\"'`“”<>]{3,128})",
    re.IGNORECASE,
)
_NO_PASSWORD = word_set(
    "not wrong incorrect invalid expired required the a an too weak strong correct right now "
    "never always also being been blocked lost forgotten stolen compromised hacked case saved "
    "stored in on at for to my your our his her their that this it no nothing what where how "
    "why when changed reset set locked missing different same ok okay fine good bad working "
    "still so just only really already getting going about from secure safe old new short long "
    "unknown default hidden visible disabled enabled and or but if because login log sign "
    "access enter open get use something someone empty null none password rejected denied "
    "declined refused failing failed"
)
_CODES = re.compile(r"pin|otp|code|answer", re.IGNORECASE)


def passwords_in_prose(scan: Scan) -> Iterator[Finding]:
    """A word that says what follows, then a value that is no word about it ("is hunter2")."""
    for match in _PROSE.finditer(scan.text):
        value = match.group("value").rstrip("" if match.group("quote") else ".,;:?)")
        if len(value) < 3 or value.lower().rstrip("!") in _NO_PASSWORD or placeholder(value):
            continue
        if _CODES.match(match.group("word")) and not re.fullmatch(
            r"[A-Za-z]{0,4}-?\d{3,12}", value
        ):
            continue
        telling = any(not (each.isalpha() or each in "-'") for each in value)
        rest = scan.after(match.start("value") + len(value), 3)
        closes = not rest.strip() or rest[0] in ".,;!?)\n\"'`”"
        if (
            telling
            or match.group("quote")
            or (closes and len(value) >= 5 and " to" not in match.group()[-len(value) - 4 :])
        ):
            start = match.start("value")
            yield Finding(
                start, start + len(value), _SECRET, 0.9 if telling else 0.75, "secret.password"
            )


_BESIDE = re.compile(
    r"\b(?:password|passwd|pwd|passwort|kennwort|contraseña|mot de passe|wi-?fi key|wlan "
    r"key|network key)"
    r"(?: is| ist| es| est)?[ :=]{1,2}(?P<value>(?=[^\s\d]{0,64}\d)"
    r"(?=[^\sA-Za-z]{0,64}[A-Za-z])[^\s\"'`<>(){}=/,;]{6,64})",
    re.IGNORECASE,
)


def beside_the_word(scan: Scan) -> Iterator[Finding]:
    """A mix of letters and digits right behind the word ("user bob password Winter2024!")."""
    for match in _BESIDE.finditer(scan.text):
        value = match.group("value").rstrip(".:?")
        if len(value) >= 6 and not placeholder(value) and not _NO_SECRET_KEY.search(value):
            start = match.start("value")
            yield Finding(start, start + len(value), _SECRET, 0.8, "secret.password")


RECOGNIZERS = (
    known_tokens,
    private_keys,
    in_transport,
    assigned,
    passwords_in_prose,
    beside_the_word,
)
