"""Cores joined by memory channels, and the bytes to feed them: no socket, no thread, no clock.

A `Grid` moves datagrams in rounds: everything sent in one round arrives in the next.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gridstat.core.counter_names import CHANNEL_DROPS
from gridstat.core.rows import ChannelSpec, CopyFacts, Limits, Row
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.core.key_settings import ChannelKey, ReceivingState, SendingState

NOW_NS = 1_700_000_000_000_000_000
"""An instant on a slot of every period used here, as synchronised publishers would have it."""

MS = 1_000_000
EVENT = struct.Struct(">QIBBHq")
HEADER = struct.Struct(">BBHIQ")
PUBLISHER = 900
"""Channel on which a publisher's events come in."""


class Subject(Protocol):
    """Interface of a core, compiled or reference, that the tests use."""

    @property
    def modes(self) -> int: ...
    def open_channel(self, spec: ChannelSpec) -> None: ...
    def close_channel(self, channel_id: int) -> dict[str, int]: ...
    def release_channel(self, channel_id: int) -> None: ...
    def hold_channel(self, channel_id: int, *, is_probed: bool) -> None: ...
    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None: ...
    def clear_sending_key(self, channel_id: int) -> None: ...
    def sending_state(self, channel_id: int) -> SendingState: ...
    def set_receiving_keys(self, channel_id: int, keys: Iterable[ChannelKey]) -> None: ...
    def receiving_state(self, channel_id: int) -> ReceivingState: ...
    def open_source(
        self,
        channel_id: int,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None: ...
    def close_source(self, channel_id: int) -> None: ...
    def source_states(self) -> dict[int, dict[str, int]]: ...
    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None: ...
    def newest(self, variable_id: int) -> bytes | None: ...
    def copies(self, variable_id: int) -> CopyFacts | None: ...
    def policed(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]: ...
    def set_modes(self, mask: int) -> None: ...
    def inject(self, datagram: bytes, *, port: int = 0, now_ns: int) -> None: ...
    def pump(self, now_ns: int) -> None: ...
    def take_output(self, channel_id: int) -> list[tuple[int, bytes]]: ...
    def counters(self) -> dict[str, int]: ...
    def channel_counters(self, channel_id: int) -> dict[str, int]: ...
    def pool_free(self) -> tuple[int, int]: ...


class MakeCore(Protocol):
    """Either class of cores."""

    def __call__(self, limits: Limits, /, *, versions_max: int = 3) -> Subject: ...


SMALL = Limits(variables_max=4_096, rings_max=64, channels_max=64, pool_small=1_024, pool_large=16)
"""Enough for these tests, and quick to set up."""


def event(
    variable_id: int,
    created_ns: int,
    *,
    sequence: int = 0,
    value: int = 0,
    options: int = 0,
) -> bytes:
    """The bytes of one event, with a recognisable filling in its options."""
    head = EVENT.pack(created_ns, variable_id, options, 0, sequence, value)
    return head + bytes(index % 251 for index in range(24 * options))


def datagram(channel_id: int, *events: bytes, counter: int = 1, version: int = 1) -> bytes:
    octets = b"".join(events)
    return HEADER.pack(version, 0, HEADER.size + len(octets), channel_id, counter) + octets


def events_in(octets: bytes) -> list[bytes]:
    """The events of a good datagram, without its padding."""
    end = HEADER.unpack_from(octets)[2]
    found = []
    at = HEADER.size
    while at < end:
        size = 24 + 24 * octets[at + 12]
        found.append(octets[at : at + size])
        at += size
    assert at == end
    return found


def told(outputs: Iterable[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Variable and time stamp of every event in the datagrams, in order."""
    found = []
    for _, octets in outputs:
        for one in events_in(octets):
            created_ns, variable_id, *_ = EVENT.unpack_from(one)
            found.append((variable_id, created_ns))
    return found


def drops(counters: dict[str, int]) -> int:
    return sum(counters[reason] for reason in CHANNEL_DROPS)


def assert_reconciled(core: Subject, channel_ids: Iterable[int] = ()) -> None:
    """Every event ended somewhere, once (design: counters reconcile)."""
    counters = core.counters()
    ends = ("malformed", "unknown", "policed", "duplicate", "too_old", "not_due", "dispatched")
    assert counters["in"] == sum(counters[end] for end in ends)
    for end in ("malformed", "unknown", "policed"):
        reasons = [name for name in counters if name.startswith(f"{end}_")]
        assert counters[end] == sum(counters[reason] for reason in reasons)
    for channel_id in channel_ids:
        channel = core.channel_counters(channel_id)
        assert channel["due"] == channel["sent"] + drops(channel) + channel["queued"]


@dataclass(frozen=True, slots=True)
class Way:
    """A one-way event channel of a grid."""

    start: str
    end: str
    level: int = 1


class Grid:
    """Named cores and the memory channels between them; channel ids count from 1 as listed."""

    def __init__(
        self, make_core: MakeCore, ways: Sequence[Way], *, template: ChannelSpec | None = None
    ) -> None:
        self.ways = tuple(ways)
        self.channel_ids = {(way.start, way.end): i for i, way in enumerate(ways, start=1)}
        names = sorted({name for way in ways for name in (way.start, way.end)})
        self.cores = {name: make_core(SMALL) for name in names}
        self.now_ns = NOW_NS
        self.swallowed: set[tuple[str, str]] = set()
        """Channels that lose all they are given."""
        spec = template or ChannelSpec(channel_id=0, floods=True)
        for way in ways:
            channel_id = self.channel_ids[way.start, way.end]
            self.cores[way.start].open_channel(
                replace(spec, channel_id=channel_id, level=way.level)
            )
            back = self.channel_ids.get((way.end, way.start), 0)
            self.cores[way.end].open_source(channel_id, back_channel=back)

    def publish_at(self, router: str, *events: bytes) -> None:
        """Hand events to a router as their publisher would, one datagram each."""
        core = self.cores[router]
        core.open_source(PUBLISHER, is_publisher=True)
        for one in events:
            core.inject(datagram(PUBLISHER, one), now_ns=self.now_ns)

    def round(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """Deliver all that was sent so far; what travelled, by channel."""
        sent = {
            (start, end): self.cores[start].take_output(channel_id)
            for (start, end), channel_id in self.channel_ids.items()
        }
        for way in self.swallowed:
            sent[way] = []
        for (_, end), outputs in sent.items():
            for port, octets in outputs:
                self.cores[end].inject(octets, port=port, now_ns=self.now_ns)
        return {way: told(outputs) for way, outputs in sent.items() if outputs}

    def rounds(self) -> list[dict[tuple[str, str], list[tuple[int, int]]]]:
        """Rounds until nothing moves any more."""
        found = []
        while travelled := self.round():
            found.append(travelled)
            assert len(found) < 100, "copies run in circles"
        return found

    def counts(self, counter: str) -> Counter[str]:
        return Counter({name: core.counters()[counter] for name, core in self.cores.items()})


def periodic(variable_id: int, period_ms: int, **fields: object) -> Row:
    """A row with a period in milliseconds, published on `PUBLISHER`."""
    row = Row(variable_id, Period(period_ms, 1_000), source=PUBLISHER)
    return replace(row, **fields)  # type: ignore[arg-type]  # The fields of Row, by name.


def aperiodic(variable_id: int, **fields: object) -> Row:
    row = Row(variable_id, None, source=PUBLISHER)
    return replace(row, **fields)  # type: ignore[arg-type]  # As above.
