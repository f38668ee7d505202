"""Two cores driven alike, and the random commands to drive them with.

`Pair` compares after every call: results, refusals, outputs by port and byte, and all counters.
Words come from a plain random source, so that a script is dense with things that matter (equal
slots, jumps beyond the window, full queues) and a failure is repeated by its seed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gridstat.core._core import Core
from gridstat.core.key_settings import TAG_BYTES, ChannelKey
from gridstat.core.reference import ReferenceCore
from gridstat.core.reference_seal import ReferenceSealKey
from gridstat.core.rows import ChannelSpec, Flood, Limits, Route, Row, Term
from gridstat.model.errors import GridStatError
from gridstat.model.rate_law import EVERY_MAX, Period, slot_of
from tests.protocol.grids import HEADER, MS, NOW_NS, Subject, datagram, event

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

VARIABLES = range(8)
CHANNELS = range(1, 6)
SOURCES = range(10, 14)
TALKATIVE = (10, 10, 10, 10, 11, 12, 13)
"""Most rows belong to the first source, and most datagrams come from there."""

U64_MAX = 2**64 - 1
DATAGRAM_BYTES_MAX = 65_507
PERIODS = (
    Period(1, 1_000),
    Period(1, 30),
    Period(1_001, 30_000),
    Period(1, 1_000_000),
    Period(7, 3),
    Period(3_600, 1),
    Period(1, 2**32 - 1),
    Period(2**32 - 1, 1),
)
TIME_STEPS_NS = (0, 2, 1_000, MS, MS, 10 * MS, 500 * MS, 1_000 * MS, 3_000 * MS, 60_000 * MS)
"""Even, because the compiled core remembers arrivals to 2 ns."""

BACK_STEPS_NS = (2, MS, 10 * MS, 999 * MS, 3_000 * MS, 61_000 * MS)
SMOOTH = math.lcm(*range(1, 23))
"""Has many divisors, so that the common one of it and a slot is seldom 1."""


class Pair:
    """The reference and the compiled core, given the same commands and compared after each."""

    def __init__(self, limits: Limits, *, seal_backend: str = "best") -> None:
        compiled = Core(limits, seal_backend=seal_backend)
        self.subjects: tuple[Subject, Subject] = (ReferenceCore(limits), compiled)
        self.open: dict[int, ChannelSpec] = {}
        self.sealed_sources: set[int] = set()
        self.now_ns = NOW_NS

    def tell(self, call: Callable[[Subject], object]) -> bool:
        """Return whether both subjects did it; check that else both refused for one reason."""
        answers = [_answer(call, subject) for subject in self.subjects]
        assert answers[0] == answers[1]
        self.compare()
        return not isinstance(answers[0], type)

    def open_channel(self, spec: ChannelSpec) -> None:
        if self.tell(lambda core: core.open_channel(spec)):
            self.open[spec.channel_id] = spec

    def close_channel(self, channel_id: int) -> None:
        self.open.pop(channel_id, None)
        self.tell(lambda core: core.close_channel(channel_id))

    def reopen_channel(self, spec: ChannelSpec) -> None:
        """Close and open a channel with nothing in between, so that no event sees it closed."""
        self.close_channel(spec.channel_id)
        self.open_channel(spec)

    def open_source(
        self, channel_id: int, *, is_publisher: bool, back_channel: int, is_sealed: bool = False
    ) -> None:
        self.sealed_sources.discard(channel_id)
        self.tell(
            lambda core: core.open_source(
                channel_id,
                is_publisher=is_publisher,
                back_channel=back_channel,
                is_sealed=is_sealed,
            )
        )
        if is_sealed:
            self.sealed_sources.add(channel_id)

    def close_source(self, channel_id: int) -> None:
        self.sealed_sources.discard(channel_id)
        self.tell(lambda core: core.close_source(channel_id))

    def inject(self, octets: bytes, port: int) -> None:
        self.tell(lambda core: core.inject(octets, port=port, now_ns=self.now_ns))

    def compare(self) -> None:
        reference, compiled = self.subjects
        for channel_id in self.open:
            assert compiled.take_output(channel_id) == reference.take_output(channel_id)
            assert compiled.channel_counters(channel_id) == reference.channel_counters(channel_id)
            assert compiled.sending_state(channel_id) == reference.sending_state(channel_id)
        for channel_id in self.sealed_sources:
            assert compiled.receiving_state(channel_id) == reference.receiving_state(channel_id)
        assert compiled.counters() == reference.counters()
        assert compiled.source_states() == reference.source_states()
        assert compiled.policed() == reference.policed()
        for variable_id in VARIABLES:
            assert compiled.newest(variable_id) == reference.newest(variable_id)
            assert compiled.copies(variable_id) == reference.copies(variable_id)
        assert compiled.pool_free() == reference.pool_free()


def _answer(call: Callable[[Subject], object], subject: Subject) -> object:
    try:
        return call(subject)
    except GridStatError as refusal:
        return type(refusal)


def limits(rng: random.Random) -> Limits:
    return Limits(
        variables_max=64,
        rings_max=16,
        channels_max=16,
        pool_small=rng.choice((1, 4, 20, 200)),
        pool_large=rng.choice((1, 3)),
        stamp_bound_ns=rng.choice((0, 10_000 * MS)),
        ring_expiry_ns=rng.choice((0, 1_000 * MS, 60_000 * MS)),
    )


def channel(rng: random.Random) -> ChannelSpec:
    return ChannelSpec(
        rng.choice(CHANNELS),
        level=rng.randrange(4),
        floods=rng.random() < 0.5,
        mtu_bytes=rng.choice((64, 100, 137, 576, 1_232, 1_472, 9_000)),
        bandwidth_bytes_per_s=rng.choice((0, 0, 0, 100, 20_000, 125_000, 10**9)),
        queue_events_max=rng.choice((1, 3, 50)),
        datagram_version=(version := rng.choice((1, 2, 2, 3, 3))),
        probe_interval_ns=rng.choice((0, MS, 10 * MS, 25 * MS)) if version >= 2 else 0,
        probes_only_when_idle=rng.random() < 0.5,
        is_sealed=version == 3,
        is_held=rng.random() < 0.1,
        probes_only_when_held=rng.random() < 0.3,
        counter_start=rng.choice((0, 0, 7, 2**48 - 1)),
    )


def key(rng: random.Random) -> ChannelKey:
    """A key of few, so that sender, receiver and forger meet; two share each epoch."""
    epoch, variant = rng.choice((0, 1, 2, 255)), rng.choice((0, 0, 0, 0, 1))
    return epoch, bytes([epoch, variant] * 8), bytes([variant, 7, 8, 9])


def keys(rng: random.Random) -> tuple[ChannelKey, ...]:
    """Keys to accept; now and then with an epoch twice, which is refused."""
    found = [key(rng) for _ in range(rng.randrange(6))]
    return tuple(found if rng.random() < 0.1 else {each[0]: each for each in found}.values())


def sealed(rng: random.Random, octets: bytes, port: int) -> bytes:
    """The datagram sealed with some key for some port, most often the right one."""
    epoch, secret, salt = key(rng)
    plain = bytes((3, epoch)) + octets[2:]
    at_port = port if rng.random() < 0.95 else 1 - port
    return ReferenceSealKey(secret, salt).seal(plain, at_port)


def modes(rng: random.Random) -> int:
    """A mask of few modes, so that rows and switches meet."""
    return rng.choice((1, 1, 2, 4, 6, 8, 1 << 63, U64_MAX, rng.getrandbits(64) | 1))


def divisor(rng: random.Random, slot: int) -> int:
    """Small, a power of two, anything, or one that a slot close by is a multiple of."""
    near = abs(slot + rng.randrange(-3, 4)) or 1
    return rng.choice(
        (
            1,
            rng.randrange(1, 13),
            1 << rng.randrange(32),
            rng.randrange(1, EVERY_MAX + 1),
            EVERY_MAX,
            math.gcd(near, SMOOTH),
            math.gcd(near, SMOOTH) * rng.choice((1, 2, 3)),
            near if near <= EVERY_MAX else math.gcd(near, 1 << 31),
        )
    )


def row(rng: random.Random, open_channels: list[int], now_ns: int) -> Row:
    named = sorted(rng.sample(open_channels, rng.randrange(len(open_channels) + 1)))
    period = rng.choice(PERIODS) if rng.random() < 0.7 else None
    phase_ns = rng.choice((0, 0, 0, 3 * MS, NOW_NS, NOW_NS + 7, U64_MAX))
    slot = slot_of(now_ns, period, phase_ns) if period is not None else 0
    terms = rng.choice((1, 2, 3, 3, 12, 30))
    return Row(
        rng.choice(VARIABLES),
        period,
        phase_ns=phase_ns,
        source=rng.choice(TALKATIVE),
        is_urgent=rng.random() < 0.2,
        interval_ns_min=rng.choice((0, MS, 10 * MS, U64_MAX)),
        is_stamp_exempt=rng.random() < 0.5,
        **rng.choice(({}, {"ahead_ns_max": 100 * MS, "behind_ns_max": 2_000 * MS})),
        routes=tuple(
            Route(
                channel_id,
                tuple(Term(divisor(rng, slot), modes(rng)) for _ in range(terms)),
                rng.randrange(1, 9),
            )
            for channel_id in named
        ),
        floods=tuple(
            Flood(rng.randrange(4), modes(rng), divisor(rng, slot))
            for _ in range(rng.choice((0, 0, 0, 1, 2)))
        ),
        keeps_newest=rng.random() < 0.7,
        newest_options_max=rng.choice((0, 9, 24, 24, 255)),
        counted_every=rng.choice((0, 1, 1, 2, 3, 256)),
    )


def stamp(rng: random.Random, period: Period | None, now_ns: int) -> int:
    """Near the present, a few slots or a jump away, or absurd."""
    if rng.random() < 0.03:
        return rng.choice((0, 1, U64_MAX, U64_MAX - 1, rng.getrandbits(64)))
    slots = rng.choice(
        (0, 0, 1, 2, rng.randrange(-70, 70), rng.randrange(-300, 300), 256, -256, 255, -255, 10**6)
    )
    period_ns = period.period_ns if period is not None else MS
    jitter_ns = rng.choice((0, 0, 1, -1, int(period_ns // 2), -int(period_ns // 2)))
    nominal_ns = int(now_ns // period_ns * period_ns + slots * period_ns)
    return max(0, min(U64_MAX, nominal_ns + jitter_ns))


def counter(rng: random.Random) -> int:
    """Near the others, so that they run ahead, fall back and repeat; or a life away."""
    near = rng.choice((1, 500, 5_000, 900_000, 2_000_000))
    return rng.choice((near + rng.randrange(60), near + rng.randrange(3_000), rng.getrandbits(64)))


def burst(rng: random.Random, periods: dict[int, Period | None], now_ns: int) -> bytes:
    """A good datagram: a probe, few events or many, small ones or all sizes."""
    source, number = rng.choice(TALKATIVE), counter(rng)
    if rng.random() < 0.1:
        return datagram(source, counter=number, version=2)
    sizes = rng.choice(((0,), (0, 0, 1, 5), (0, 9, 10), (0, 3, 51, 255)))
    events: list[bytes] = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 5, 5, 20, 20, 200))):
        variable_id = rng.choice(VARIABLES)
        options = rng.choice(sizes)
        created_ns = stamp(rng, periods.get(variable_id), now_ns)
        events.append(event(variable_id, created_ns, sequence=rng.randrange(3), options=options))
        if rng.random() < 0.1:
            events.append(events[-1])
    while sum(map(len, events)) > DATAGRAM_BYTES_MAX - HEADER.size - TAG_BYTES:
        events.pop()
    return datagram(source, *events, counter=number, version=rng.choice((1, 2)))


def accident(rng: random.Random, octets: bytes) -> bytes:
    """The datagram, most often as it is."""
    damaged = bytearray(octets)
    match rng.randrange(12):
        case 0:
            return octets[: rng.randrange(len(octets) + 1)]
        case 1:
            for _ in range(rng.randrange(1, 6)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        case 2:
            damaged[rng.randrange(min(len(damaged), HEADER.size))] = rng.randrange(256)
        case 3:
            return octets + rng.randbytes(rng.randrange(40))
        case 4:
            return rng.randbytes(rng.randrange(200))
        case _:
            pass
    return bytes(damaged)
