"""More than a million malformed datagrams against the Python decoder, by hand: `make fuzz`.

Random bytes, flipped bits, cuts and wrong lengths; every one is decoded or refused with a reason,
and the next good datagram decodes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from gridstat.model.errors import Malformed
from gridstat.net.codec.datagram import decode_datagram, encode_datagram

TRIES = 2_000_000


def good_datagram(rng: random.Random, stamp_ns: int) -> bytes:
    """A probe, or one to four events, some with options."""
    events = []
    if stamp_ns > 1 and rng.random() < 0.1:
        return encode_datagram(77, stamp_ns, events=(), version=2)
    for _ in range(rng.randint(1, 4)):
        options = rng.choice((0, 0, 0, 2))
        head = stamp_ns.to_bytes(8, "big") + rng.randrange(64).to_bytes(4, "big")
        events.append(head + bytes([options, 0]) + rng.randbytes(10 + 24 * options))
    return encode_datagram(77, stamp_ns, events=events, version=rng.choice((1, 2)))


def lie(rng: random.Random, stamp_ns: int) -> bytes:
    """One datagram that may be anything but what it says."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.randrange(120))
    raw = bytearray(good_datagram(rng, stamp_ns + 1))
    if kind == 1:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del raw[rng.randrange(len(raw) + 1) :]
    else:
        raw[2:4] = rng.randbytes(2)
    return bytes(raw)


def main(tries: int = TRIES, seed: int = 3) -> int:
    """Lie `tries` times; the number of datagrams that decoded."""
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    good = good_datagram(random.Random(0), 1)
    for tried in range(tries):
        try:
            decode_datagram(lie(rng, tried))
            ends["decoded"] += 1
        except Malformed as refusal:
            ends[refusal.reason] += 1
        if tried % 64 == 0:
            decode_datagram(good)
    assert sum(ends.values()) == tries
    told = " + ".join(f"{name} {count}" for name, count in sorted(ends.items()))
    sys.stdout.write(f"codec: tried {tries} = {told}; the next good one always decoded\n")
    return ends["decoded"]


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
