"""Parts that the tests of sealed channels share: the subjects with every backend, keys, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest

from gridstat.core._core import Core, seal_backends
from gridstat.core.key_settings import TAG_BYTES
from gridstat.core.reference import ReferenceCore
from gridstat.core.reference_seal import ReferenceSealKey
from gridstat.core.rows import ChannelSpec, Limits, Route, Term
from tests.protocol.grids import HEADER, SMALL, Subject, datagram, periodic

if TYPE_CHECKING:
    from gridstat.core.key_settings import ChannelKey, ReceivingState

LINK = 5
"""The sealed channel, out of the first core and into the second."""
OUT = 6
"""The plain channel out of the second core."""

BACKENDS = tuple(seal_backends())
backends = pytest.mark.parametrize("seal_backend", BACKENDS)


class MakeSealing(Protocol):
    """Either class of cores, the compiled one with a backend."""

    def __call__(self, limits: Limits, /) -> Subject: ...


SUBJECTS: dict[str, MakeSealing] = {"reference": ReferenceCore} | {
    name: partial(Core, seal_backend=name) for name in BACKENDS
}
subjects = pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)


def key_of(epoch: int, variant: int = 0) -> ChannelKey:
    return epoch % 256, bytes([epoch % 256, variant] * 8), bytes([variant, 1, 2, 3])


def opened(octets: bytes, key: ChannelKey, port: int = 0) -> bytes:
    """Header and events of a sealed datagram; its tag stands right behind `length`."""
    end = HEADER.unpack_from(octets)[2] + TAG_BYTES
    assert octets[:2] == bytes([3, key[0]])
    assert not any(octets[end:]), "padding is written as zeros"
    found = ReferenceSealKey(key[1], key[2]).unseal(octets[:end], port)
    assert found is not None, "the tag is wrong"
    return found


def sealed(*events: bytes, counter: int, key: ChannelKey, port: int = 0, to: int = LINK) -> bytes:
    plain = datagram(to, *events, counter=counter, version=3)
    return ReferenceSealKey(key[1], key[2]).seal(plain[:1] + bytes([key[0]]) + plain[2:], port)


def sending(make: MakeSealing, *variables: int, spec: ChannelSpec | None = None) -> Subject:
    """A core whose variables are due on the sealed channel LINK, at every millisecond."""
    core = make(SMALL)
    core.open_source(1)
    core.open_channel(spec or ChannelSpec(LINK, datagram_version=3, is_sealed=True))
    core.commit([periodic(v, 1, routes=(Route(LINK, (Term(1),)),)) for v in variables or (1,)])
    return core


def receiving(make: MakeSealing, *variables: int, keys: tuple[ChannelKey, ...] = ()) -> Subject:
    """A core that accepts LINK sealed, and sends what came on the plain channel OUT."""
    core = make(SMALL)
    core.open_source(LINK, is_sealed=True)
    core.set_receiving_keys(LINK, keys)
    core.open_channel(ChannelSpec(OUT, mtu_bytes=9_000))
    core.commit([periodic(v, 1, routes=(Route(OUT, (Term(1),)),)) for v in variables or (1,)])
    return core


def state_of(
    *, opened: tuple[int, ...] = (), dropped: tuple[int, ...] = (), unknown: tuple[int, ...] = ()
) -> ReceivingState:
    """What a receiver has seen of the epochs since it was last asked."""
    return {"epochs": opened, "dropped_epochs": dropped, "unknown_epochs": unknown}


@dataclass(frozen=True, slots=True)
class Believed:
    """All that a core believes of its sources and has sent on; a reject must not change it."""

    counters: dict[str, int]
    sources: dict[int, dict[str, int]]
    outputs: list[tuple[int, bytes]]


def believed(core: Subject) -> Believed:
    """What the core believes, without the counters of rejects and of raw bytes."""
    counters = {
        name: count
        for name, count in core.counters().items()
        if not name.startswith("sealed_") and name not in {"datagrams_in", "bytes_in"}
    }
    sources = {
        channel_id: {name: value for name, value in facts.items() if name != "silent_ns"}
        for channel_id, facts in core.source_states().items()
    }
    return Believed(counters, sources, core.take_output(OUT))
