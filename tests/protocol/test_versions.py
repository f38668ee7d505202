"""Two versions of the datagram side by side: what each core takes, and what it sends. Two subjects.

A router of yesterday knows version 1 alone; one of today knows both and speaks what was agreed.
"""

from __future__ import annotations

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.errors import LayoutError
from tests.protocol.grids import (
    HEADER,
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    assert_reconciled,
    datagram,
    event,
    periodic,
    told,
)

OLD, NEW, SEALED = 1, 2, 3


def core_with(make_core: MakeCore, spec: ChannelSpec, *, versions_max: int = NEW) -> Subject:
    core = make_core(SMALL, versions_max=versions_max)
    core.open_source(PUBLISHER)
    core.open_channel(spec)
    core.commit([periodic(1, 1, routes=(Route(spec.channel_id, (Term(1),)),))])
    return core


@pytest.mark.parametrize("spoken", [OLD, NEW])
def test_a_channel_speaks_the_version_that_was_agreed(subject: MakeCore, spoken: int) -> None:
    core = core_with(subject, ChannelSpec(1, datagram_version=spoken))
    core.inject(datagram(PUBLISHER, event(1, NOW_NS)), now_ns=NOW_NS)
    assert core.take_output(1) == [(0, datagram(1, event(1, NOW_NS), version=spoken))]


@pytest.mark.parametrize("spoken", [OLD, NEW])
def test_a_padded_run_is_of_one_version(subject: MakeCore, spoken: int) -> None:
    core = core_with(subject, ChannelSpec(1, mtu_bytes=100, datagram_version=spoken))
    events = [event(1, NOW_NS + i * MS, options=i % 2) for i in range(9)]
    core.inject(datagram(PUBLISHER, *events), now_ns=NOW_NS)
    outputs = core.take_output(1)
    assert len(outputs) > 3
    assert {octets[0] for _, octets in outputs} == {spoken}


def test_a_core_takes_every_version_up_to_its_highest(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1))
    for number, version in enumerate((OLD, NEW, OLD), start=1):
        stamp_ns = NOW_NS + number * MS
        raw = datagram(PUBLISHER, event(1, stamp_ns), counter=number, version=version)
        core.inject(raw, now_ns=NOW_NS)
        assert told(core.take_output(1)) == [(1, stamp_ns)]
    assert core.source_states()[PUBLISHER]["lost"] == 0
    assert_reconciled(core, [1])


@pytest.mark.parametrize(
    ("versions_max", "sent"), [(OLD, NEW), (NEW, SEALED), (NEW, 255), (SEALED, 4)]
)
def test_a_version_above_the_highest_known_is_a_counted_drop(
    subject: MakeCore, versions_max: int, sent: int
) -> None:
    core = core_with(subject, ChannelSpec(1), versions_max=versions_max)
    for events in ((), (event(1, NOW_NS),)):
        core.inject(datagram(PUBLISHER, *events, version=sent), now_ns=NOW_NS)
    counters = core.counters()
    assert counters["malformed_version"] == counters["in"] == 2
    assert core.source_states()[PUBLISHER]["datagrams"] == 0
    assert core.take_output(1) == []


def test_a_router_of_version_1_refuses_to_speak_version_2(subject: MakeCore) -> None:
    core = subject(SMALL, versions_max=OLD)
    with pytest.raises(LayoutError, match="datagram version 2"):
        core.open_channel(ChannelSpec(1, datagram_version=NEW))
    core.open_channel(ChannelSpec(1))


@pytest.mark.parametrize("versions_max", [0, 4])
def test_a_core_of_a_version_that_does_not_exist_is_refused(
    subject: MakeCore, versions_max: int
) -> None:
    with pytest.raises(LayoutError, match="versions_max"):
        subject(SMALL, versions_max=versions_max)


@pytest.mark.parametrize(
    "spec", [ChannelSpec(1, datagram_version=SEALED), ChannelSpec(1, 2, is_sealed=True)]
)
def test_the_sealed_version_and_no_other_is_sealed(subject: MakeCore, spec: ChannelSpec) -> None:
    core = subject(SMALL)
    with pytest.raises(LayoutError, match="version 3 is the sealed one"):
        core.open_channel(spec)
    with pytest.raises(LayoutError, match="datagram version 3 is not 1 to 2"):
        subject(SMALL, versions_max=NEW).open_channel(
            ChannelSpec(1, datagram_version=SEALED, is_sealed=True)
        )


def test_routers_upgraded_one_by_one_lose_nothing(subject: MakeCore) -> None:
    """The channel is reopened with each version in turn; its numbers and its events go on."""
    core = core_with(subject, ChannelSpec(1))
    peer = subject(SMALL)
    peer.open_source(1)
    peer.open_channel(ChannelSpec(2))
    peer.commit([periodic(1, 1, routes=(Route(2, (Term(1),)),))])
    for number, spoken in enumerate((OLD, NEW, OLD, NEW, NEW)):
        core.close_channel(1)
        core.open_channel(ChannelSpec(1, datagram_version=spoken))
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + number * MS)), now_ns=NOW_NS)
        for port, octets in core.take_output(1):
            assert HEADER.unpack_from(octets)[4] == number + 1
            peer.inject(octets, port=port, now_ns=NOW_NS)
    assert [stamp for _, stamp in told(peer.take_output(2))] == [NOW_NS + i * MS for i in range(5)]
    assert peer.source_states()[1]["lost"] == 0
