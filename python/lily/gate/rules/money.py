"""Numbers of payment: cards, IBANs, and wallets of crypto currencies.

This file owns their shapes; each needs its checksum. Labelled account numbers are `labels.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.checks import base58check, bech32, digits, eip55, stdnum
from lily.gate.rules.scan import Scan

# Groups may be apart by a space, a dot, a hyphen, or a line break.
_GAP = r"(?:[ .\-–/]{1,3}|[ \t]{0,4}\r?\n[> \t]{0,8})"
_CARD = re.compile(
    rf"(?<![A-Za-z0-9_.+-])(?:[2-6]\d{{3}}(?:{_GAP}?\d{{4}}){{3}}(?:{_GAP}?\d{{3}})?"
    rf"|3\d{{3}}{_GAP}?\d{{6}}{_GAP}?\d{{4,5}}"
    rf"|[456]\d{{3}}(?:{_GAP}\d{{4}}){{2}}{_GAP}\d{{1,3}}"
    rf"|[456]\d{{11,18}})(?![A-Za-z0-9_-])(?!\.\d)"
)
_BROKEN_CARD = re.compile(r"(?<![\w.-])[3-6]\d{3,12}[ \t]{0,4}\r?\n[> \t]{0,8}\d{3,12}(?![\w-])")
_GROUPED = re.compile(r"[3-6]\d{3}([ -])\d{4}\1\d{4}\1\d{4}")  # a mistyped card is one still
_CARD_WORD = re.compile(
    r"card|visa|master|amex|american express|discover|diners|jcb|maestro|tarjeta|karte|carte"
    r"|cart[aã]o|carta|"
    r"カード|卡|카드|pay|charge|billing|cc\b|ccn|pan\b"
)
# Issuers: (first digits from, to, lengths), as the card schemes publish them (ISO/IEC 7812).
_ISSUERS = (
    ("4", "4", (13, 16, 19)), ("51", "55", (16,)), ("2221", "2720", (16,)), ("34", "34", (15,)),
    ("37", "37", (15,)),
    ("300", "305", (14, 16)), ("36", "36", (14, 15, 16, 17, 18, 19)), ("38", "39", (14, 16)),
    ("6011", "6011", (16, 19)),
    ("644", "659", (16, 19)), ("622126", "622925", (16, 19)), ("62", "62", (16, 17, 18, 19)),
    ("3528", "3589", (16, 19)),
    ("50", "50", (12, 13, 14, 15, 16, 17, 18, 19)), ("56", "58", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("60", "69", (12, 13, 14, 15, 16, 17, 18, 19)), ("2200", "2204", (16,)), ("9792", "9792", (16,
    )),
)  # fmt: skip
_SURE_LENGTHS = (14, 15, 16)  # others, and Maestro, need a word beside them


def _issued(number: str) -> bool:
    return any(
        low <= number[: len(low)] <= high and len(number) in lengths
        for low, high, lengths in _ISSUERS
    )


def cards(scan: Scan) -> Iterator[Finding]:
    """Card numbers: Luhn, an issuer's prefix and length."""
    if not scan.has_digit:
        return
    luhn = stdnum("luhn")
    for pattern in (_CARD, _BROKEN_CARD):
        for match in pattern.finditer(scan.text):
            number = digits(match.group())
            start, end = match.span()
            if not 12 <= len(number) <= 19 or not _issued(number) or len(set(number)) == 1:
                continue
            if not luhn(number):
                if _GROUPED.fullmatch(match.group()) and not scan.guarded(start, end):
                    yield Finding(start, end, Category.PAYMENT_CARD, 0.7, "card.grouped")
                continue
            named = _CARD_WORD.search(scan.before(start)) or _CARD_WORD.search(scan.after(end))
            sure = len(number) in _SURE_LENGTHS and number[0] in "2345" and pattern is _CARD
            if named or (sure and not scan.guarded(start, end)):
                yield Finding(start, end, Category.PAYMENT_CARD, 1.0, "card.luhn")


_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:(?:[ \-]|[ \t]{0,4}\r?\n[> \t]{0,8})?[A-Z0-9]{4}){2,7}"
    r"(?:(?:[ \-]|[ \t]{0,4}\r?\n[> \t]{0,8})?[A-Z0-9]{1,4})?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SEPARATED = re.compile(r"[\s>-]{1,16}")


def ibans(scan: Scan) -> Iterator[Finding]:
    """IBANs, printed or in groups: mod 97 and the country's own structure."""
    if not scan.has_digit:
        return
    valid = stdnum("iban")
    for match in _IBAN.finditer(scan.text):
        start, end = match.span()
        # A word after the last group can look like one more group.
        for _ in range(4):
            value = scan.text[start:end]
            if valid(_SEPARATED.sub("", value)):
                yield Finding(start, end, Category.IBAN, 1.0, "iban.mod97")
                break
            shorter = max(value.rfind(" "), value.rfind("\n"), value.rfind("-"))
            if shorter <= 0:
                break
            end = start + len(value[:shorter].rstrip())


_WALLET = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<base58>[13mn2LDX9At][1-9A-HJ-NP-Za-km-z]{25,34})|(?P<bech32>(?:bc|tb"
    r"|ltc)1[02-9ac-hj-np-z]{8,87})"
    r"|(?P<ether>0x[0-9a-fA-F]{40})|(?P<tron>T[1-9A-HJ-NP-Za-km-z]{33})"
    r"|(?P<ripple>r[1-9A-HJ-NP-Za-km-z]{24,34})"
    r"|(?P<monero>[48][0-9AB][1-9A-HJ-NP-Za-km-z]{93})|(?P<cosmos>(?:addr1|cosmos1"
    r"|osmo1)[02-9ac-hj-np-z]{38,98})"
    r"|(?P<solana>[1-9A-HJ-NP-Za-km-z]{43,44}))(?![A-Za-z0-9])"
)
_WALLET_WORD = re.compile(
    r"wallet|address|btc|bitcoin|eth|solana|\bsol\b|xrp|ripple|crypto|coin|token|send|monedero"
    r"|adresse"
)


def wallets(scan: Scan) -> Iterator[Finding]:
    """Wallet addresses; those whose checksum is not known here need a word beside them."""
    for match in _WALLET.finditer(scan.text):
        kind, value = match.lastgroup or "", match.group()
        start, end = match.span()
        if (kind in ("base58", "tron") and base58check(value)) or (
            kind in ("bech32", "cosmos") and bech32(value)
        ):
            confidence = 1.0
        elif kind == "ether":
            confidence = 1.0 if eip55(value) else 0.8  # the case may have been lost
        elif kind == "monero":
            confidence = 0.9
        elif kind in ("solana", "ripple") and _WALLET_WORD.search(scan.before(start)):
            confidence = 0.8
        else:
            continue
        yield Finding(start, end, Category.CRYPTO_WALLET, confidence, f"wallet.{kind}")


RECOGNIZERS = (cards, ibans, wallets)
