"""Checksums, as yes or no, of the libraries that know them.

This file owns the bridge to `python-stdnum` and the few checks that it lacks. It knows no text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import import_module

from lily.gate.rules.keccak import keccak_256

Check = Callable[[str], bool]


@cache
def stdnum(module: str) -> Check:
    """The check of a `stdnum` module, such as "es.dni"; imported when first used."""

    def check(value: str) -> bool:
        valid: bool = import_module(f"stdnum.{module}").is_valid(value)
        return valid

    return check


def any_of(*modules: str) -> Check:
    """Whether any of several `stdnum` modules takes the value."""
    return lambda value: any(stdnum(module)(value) for module in modules)


def digits(value: str) -> str:
    """Its digits alone."""
    return "".join(each for each in value if each.isdigit())


_VIN_VALUES = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", "12345678123457923456789", strict=True))
_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)


def vin(value: str) -> bool:
    """The check digit of a vehicle identification number (49 CFR 565.15)."""
    try:
        numbers = [int(_VIN_VALUES.get(each, each)) for each in value.upper()]
    except ValueError:
        return False
    if len(numbers) != len(_VIN_WEIGHTS):
        return False
    rest = sum(a * b for a, b in zip(numbers, _VIN_WEIGHTS, strict=True)) % 11
    return value[8].upper() == ("X" if rest == 10 else str(rest))


def dea(value: str) -> bool:
    """The check digit of a DEA registration number."""
    numbers = [int(each) for each in value[2:]]
    total = sum(numbers[0:6:2]) + 2 * sum(numbers[1:6:2])
    return total % 10 == numbers[6]


def npi(value: str) -> bool:
    """A US provider number: Luhn with the prefix of US health industry numbers."""
    return len(value) == 10 and stdnum("luhn")(f"80840{value}")


def eip55(value: str) -> bool:
    """The checksum that the letters' case of an Ethereum address ("0x...") holds (EIP-55)."""
    letters = value[2:]
    digest = keccak_256(letters.lower().encode("ascii")).hex()
    pairs = zip(letters, digest, strict=False)  # the digest is the longer
    return all(each.isupper() == (nibble >= "8") for each, nibble in pairs if each.isalpha())


_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32_CONSTANTS = (1, 0x2BC830A3)  # bech32 and bech32m (BIP-173, BIP-350)


def bech32(value: str) -> bool:
    """The checksum of a segwit address."""
    human, _, data = value.lower().rpartition("1")
    if not human or len(data) < 6 or any(each not in _BECH32 for each in data):
        return False
    values = [ord(each) >> 5 for each in human] + [0] + [ord(each) & 31 for each in human]
    checksum = 1
    for number in values + [_BECH32.index(each) for each in data]:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ number
        for bit, generator in enumerate(_BECH32_GENERATOR):
            checksum ^= generator if top >> bit & 1 else 0
    return checksum in _BECH32_CONSTANTS


_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_DIGIT = {each: value for value, each in enumerate(_BASE58)}


def base58check(value: str) -> bool:
    """The checksum of a Bitcoin-like address: SHA-256, twice, over 21 of its 25 bytes."""
    number = 0
    for each in value:
        if each not in _BASE58_DIGIT:
            return False
        number = number * 58 + _BASE58_DIGIT[each]
    if number.bit_length() > 200:
        return False
    data = number.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(data[:21]).digest()).digest()[:4] == data[21:]
