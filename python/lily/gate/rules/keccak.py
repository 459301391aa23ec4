"""Keccak-256 as Ethereum uses it, before SHA-3 changed the padding; `hashlib` has only the latter.

Source: the Keccak reference, version 3.0. It knows no address.
"""

from __future__ import annotations

_RATE_BYTES = 136
_MASK = (1 << 64) - 1


def _turned(lane: int, bits: int) -> int:
    """A lane of 64 bits, rotated to the left."""
    return (lane << bits | lane >> (64 - bits)) & _MASK


def _permute(lanes: list[list[int]]) -> list[list[int]]:
    """Keccak-f[1600]; `lanes[x][y]`."""
    register = 1
    for _ in range(24):
        columns = [a ^ b ^ c ^ d ^ e for a, b, c, d, e in lanes]  # theta
        mixed = [columns[(x + 4) % 5] ^ _turned(columns[(x + 1) % 5], 1) for x in range(5)]
        lanes = [[lane ^ mixed[x] for lane in lanes[x]] for x in range(5)]
        x, y, moved = 1, 0, lanes[1][0]  # rho and pi
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, lanes[x][y] = lanes[x][y], _turned(moved, (step + 1) * (step + 2) // 2 % 64)
        for y in range(5):  # chi
            row = [lanes[x][y] for x in range(5)]
            for x in range(5):
                lanes[x][y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5] & _MASK)
        for bit in range(7):  # iota
            register = (register << 1 ^ (register >> 7) * 0x71) % 256
            if register & 2:
                lanes[0][0] ^= 1 << ((1 << bit) - 1)
    return lanes


def keccak_256(data: bytes) -> bytes:
    """The digest of some bytes, 32 long."""
    padded = bytearray(data + b"\x01" + bytes(-(len(data) + 1) % _RATE_BYTES))
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for block in range(0, len(padded), _RATE_BYTES):
        for lane in range(_RATE_BYTES // 8):
            at = block + 8 * lane
            lanes[lane % 5][lane // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        lanes = _permute(lanes)
    return b"".join(lanes[lane][0].to_bytes(8, "little") for lane in range(4))
