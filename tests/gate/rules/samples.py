"""Sample numbers with valid checksums, made here so that none is anybody's.

This file owns their making; it knows no recogniser and takes no checksum from the code under test.
"""

from __future__ import annotations

import hashlib

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def luhn(body: str) -> str:
    """The body and its Luhn digit."""
    total = 0
    for place, each in enumerate(reversed(body)):
        value = int(each) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return body + str(-total % 10)


def iban(country: str, account: str) -> str:
    """An IBAN with its two check digits (ISO 7064, mod 97-10)."""
    turned = "".join(str(int(each, 36)) for each in account + country + "00")
    return f"{country}{98 - int(turned) % 97:02d}{account}"


def base58(version: int, payload: bytes) -> str:
    """A Bitcoin-like address of twenty payload bytes."""
    data = bytes([version]) + payload
    data += hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, rest = divmod(number, 58)
        text = _BASE58[rest] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def vin(body: str) -> str:
    """A vehicle number: seventeen characters whose ninth, given as 0, becomes the check digit."""
    letters = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", map(int, "12345678123457923456789"), strict=True))
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    total = sum(
        w * letters.get(c, 0) if c.isalpha() else w * int(c)
        for w, c in zip(weights, body, strict=True)
    )
    return body[:8] + ("X" if total % 11 == 10 else str(total % 11)) + body[9:]


def dni(number: str) -> str:
    """A Spanish DNI with its letter."""
    return number + "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]


def cpf(body: str) -> str:
    """A Brazilian CPF, written with its dots, from nine digits."""
    digits = [int(each) for each in body]
    for _ in range(2):
        total = sum((len(digits) + 1 - place) * value for place, value in enumerate(digits))
        digits.append(total * 10 % 11 % 10)
    text = "".join(map(str, digits))
    return f"{text[:3]}.{text[3:6]}.{text[6:9]}-{text[9:]}"


def nir(body: str) -> str:
    """A French social security number from its thirteen digits."""
    return f"{body}{97 - int(body) % 97:02d}"


def nhs(body: str) -> str:
    """An NHS number from nine digits (the sum must not ask for a 10)."""
    check = 11 - sum((10 - place) * int(each) for place, each in enumerate(body)) % 11
    assert check != 10
    return body + str(check % 11)


def routing(body: str) -> str:
    """A US routing number from eight digits."""
    total = sum(weight * int(each) for weight, each in zip((3, 7, 1) * 3, body, strict=False))
    return body + str(-total % 10)


VISA = luhn("400000123456789")
MASTERCARD = luhn("555500006666777")
AMEX = luhn("37821234567890")
IBAN_GB = iban("GB", "NWBK60161331926819")
IBAN_DE = iban("DE", "370400440532013000")
IBAN_FR = iban("FR", "20041010050500013M02606")
BITCOIN = base58(0, bytes(range(20)))
VIN = vin("1HGCM82603A004352")
DNI = dni("12345678")
CPF = cpf("111444777")
NIR = nir("2550875120005")
NHS = nhs("943476587")
ROUTING = routing("02100002")
# The second vector of BIP-39.
SEED = "legal winner thank year wave sausage worth useful legal winner thank yellow"
GITHUB = "ghp_" + "a1B2" * 9
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIzNDU2Nzg5MA"


def grouped(number: str, separator: str = " ", size: int = 4) -> str:
    """A number in groups."""
    return separator.join(number[at : at + size] for at in range(0, len(number), size))
