"""SipHash with 128 bits of output as its authors write it down, in plain Python, for any number of rounds."""

_MASK = (1 << 64) - 1
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)  # "somepseudorandomlygen..."


def _left(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _MASK
    v[2] = (v[2] + v[3]) & _MASK
    v[1] = _left(v[1], 13) ^ v[0]
    v[3] = _left(v[3], 16) ^ v[2]
    v[0] = _left(v[0], 32)
    v[2] = (v[2] + v[1]) & _MASK
    v[0] = (v[0] + v[3]) & _MASK
    v[1] = _left(v[1], 17) ^ v[2]
    v[3] = _left(v[3], 21) ^ v[0]
    v[2] = _left(v[2], 32)


def siphash(data: bytes, key: bytes, rounds: int, last_rounds: int) -> bytes:
    """The hash, 16 bytes."""
    k = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")]
    v = [start ^ k[i & 1] for i, start in enumerate(_START)]
    v[1] ^= 0xEE
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        for _ in range(rounds):
            _round(v)
        v[0] ^= word
    out = b""
    for place, change in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= change
        for _ in range(last_rounds):
            _round(v)
        out += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return out
