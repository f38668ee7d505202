"""The law of a faulty link: the fate of its n-th frame, from seed, n and settings alone.

Loss follows S1 §6.1: a trigger of probability loss / mean burst loses a number of frames in a row,
drawn evenly from [burst_min, burst_max], and none triggers inside a burst; so bursts of 1 are plain
independent loss. `law.c` is the fast copy; every kind of fault has its own stream of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NS_PER_MS: Final = 1_000_000
DELAY_MS_MAX: Final = 60_000.0
SEED_MAX: Final = 2**64 - 1
GOLDEN: Final = 0x9E3779B97F4A7C15
MASK: Final = 2**64 - 1


class Direction(Enum):
    """Direction of a wire: from its near end to its far end, back, or both."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


class Stream(Enum):
    """Stream of random numbers, one for each question."""

    LOSS = 0
    BURST = 1
    CORRUPT = 2
    FLIP = 3
    DUPLICATE = 4
    HOLD = 5
    JITTER = 6
    COPY_JITTER = 7


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """Faults of a link for frames of one direction; the defaults are a faultless link.

    A frame is delayed by at least `delay_ms` and at most `delay_ms + jitter_ms`, each on its own,
    so that jitter alone can reorder. `reorder` holds a frame back until the next one has passed.
    `corrupt` flips one bit of a datagram's content. A rate of 0 is unbounded; behind any other
    one at most `queue_bytes` wait. Probabilities are those of one frame.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    burst_min: int = 1
    burst_max: int = 1
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    rate_bytes_per_s: int = 0
    queue_bytes: int = 262_144
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and must be 0 to 1")
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= DELAY_MS_MAX:
                raise ValueError(f"{name} is {getattr(self, name)}, and must be 0 to 60,000")
        if not 1 <= self.burst_min <= self.burst_max:
            raise ValueError(f"no burst is {self.burst_min} to {self.burst_max} frames long")
        if self.rate_bytes_per_s < 0 or self.queue_bytes < 0 or not 0 <= self.seed <= SEED_MAX:
            raise ValueError("rates, queues and seeds cannot be negative")

    @property
    def loss_in_the_long_run(self) -> float:
        """Return the true share of lost frames; a little under `loss` for bursts (S1 §6.1)."""
        burst_mean = (self.burst_min + self.burst_max) / 2
        return self.loss / (1 + self.loss - self.loss / burst_mean)

    def arguments(self) -> list[str]:
        """Return the settings as the C program reads them."""
        return [
            argument
            for field in fields(self)
            for argument in (field.name, _plain(self, field.name))
        ]


@dataclass(frozen=True, slots=True)
class Fate:
    """Fate of one frame; `flip` counts modulo the bits of a datagram's content."""

    is_lost: bool
    is_corrupted: bool
    is_duplicated: bool
    is_held: bool
    flip: int
    delay_ns: int
    copy_delay_ns: int


def fates(faults: LinkFaults, direction: Direction) -> Iterator[Fate]:
    """Yield the fates of all frames of one direction, in the order of their arrival."""
    assert direction is not Direction.BOTH
    key = _mix(faults.seed * 2 + (direction is Direction.BACKWARD) + GOLDEN)
    burst_left = 0
    number = 0
    while True:
        burst_left = burst_left - 1 if burst_left else _burst(faults, key, number)
        yield Fate(
            is_lost=burst_left >= 0,
            is_corrupted=_happens(key, Stream.CORRUPT, number, faults.corrupt),
            is_duplicated=_happens(key, Stream.DUPLICATE, number, faults.duplicate),
            is_held=_happens(key, Stream.HOLD, number, faults.reorder),
            flip=_draw(key, Stream.FLIP, number),
            delay_ns=_delay_ns(faults, _draw(key, Stream.JITTER, number)),
            copy_delay_ns=_delay_ns(faults, _draw(key, Stream.COPY_JITTER, number)),
        )
        burst_left = max(burst_left, 0)
        number += 1


def _burst(faults: LinkFaults, key: int, number: int) -> int:
    """Return how many more frames a burst takes that begins with this one; -1 if none begins."""
    burst_mean = (faults.burst_min + faults.burst_max) / 2
    if not _happens(key, Stream.LOSS, number, faults.loss / burst_mean):
        return -1
    lengths = faults.burst_max - faults.burst_min + 1
    return faults.burst_min + _draw(key, Stream.BURST, number) % lengths - 1


def _delay_ns(faults: LinkFaults, drawn: int) -> int:
    delay_ns = int(faults.delay_ms * NS_PER_MS + 0.5)
    jitter_ns = int(faults.jitter_ms * NS_PER_MS + 0.5)
    return delay_ns + drawn % (jitter_ns + 1)


def _happens(key: int, stream: Stream, number: int, probability: float) -> bool:
    return (_draw(key, stream, number) >> 11) * 2.0**-53 < probability


def _draw(key: int, stream: Stream, number: int) -> int:
    return _mix(_mix(key + stream.value * GOLDEN) + (number + 1) * GOLDEN)


def _mix(value: int) -> int:
    """Return the finisher of SplitMix64 (Steele, Lea and Flood 2014)."""
    value &= MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def _plain(faults: LinkFaults, name: str) -> str:
    value = getattr(faults, name)
    return str(value) if isinstance(value, int) else f"{value:.17g}"
