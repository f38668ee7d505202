"""Joining a parent, and what it hears of borders and of the channels between clouds."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.model.errors import StaleTerm, StorageFailed
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import BackPressureChanged, ChannelStateChanged
from gridstat.net.command.segment_messages import SegmentsHeld
from gridstat.net.command.tree_messages import (
    AbstractLinksReported,
    BorderChannelReported,
    BorderReported,
    CloseBorder,
    JoinTree,
    OpenBorder,
    TreeJoined,
    WantBorders,
)
from tests.unit.broker.conversation import pair
from tests.unit.broker.segments.family import (
    BORDERS,
    ENTRIES,
    EXITS,
    IN,
    OUT,
    ROOT,
    Family,
    border,
    family,
)
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Family:
    return family()


def test_a_cloud_joins_its_parent_with_its_name_and_term(cloud: Family) -> None:
    (join,) = cloud.heard(JoinTree)
    assert (join.clouds, join.height, join.term) == (("c1",), 0, cloud.broker.registry.term)
    assert cloud.heard(SegmentsHeld)[0].held == ()


def test_nothing_is_said_to_a_parent_that_has_not_taken_the_cloud_in() -> None:
    cloud = Family()
    cloud.start()
    cloud.call_parent()
    cloud.say(WantBorders(term=7, routers=BORDERS))
    assert [type(word) for word in cloud.words] == [JoinTree]


def test_a_lower_term_of_the_parent_is_refused_also_after_a_kill(cloud: Family) -> None:
    cloud.kill_broker()
    cloud.start()
    cloud.call_parent()
    cloud.say(TreeJoined(term=6, depth=1, above=("root",)))
    assert [(close.peer, close.code) for close in cloud.closed] == [(ROOT, StaleTerm.code)]
    cloud.say(WantBorders(term=6, routers=BORDERS))
    assert len(cloud.heard(BorderReported)) == 2


def test_a_broker_that_is_not_the_parent_is_sent_away() -> None:
    lone = pair()
    lone.tell(Received("broker/root", WantBorders(term=7, routers=BORDERS)))
    assert [close.peer for close in lone.closed] == ["broker/root"]


def test_channels_of_the_cloud_have_its_depth_for_their_level(cloud: Family) -> None:
    cloud.say(TreeJoined(term=7, depth=3, above=("root", "region", "state")))
    cloud.settle()
    levels = {
        order.level
        for router in cloud.routers.values()
        for order in router.table.channels.values()
        if order.to.startswith("c1/") and order.to in cloud.routers
    }
    assert levels == {3}
    cloud.kill_broker()
    cloud.start()
    assert cloud.differing() == []
    assert cloud.broker.registry.tree.depth == 3


def test_a_wanted_border_is_told_with_where_it_listens(cloud: Family) -> None:
    told = {word.router: word for word in cloud.heard(BorderReported)}
    assert set(told) == set(BORDERS)
    assert told["c1/i0"].is_up
    assert told["c1/i0"].data_port == cloud.routers["c1/i0"].port


def test_a_border_that_comes_back_elsewhere_or_is_down_is_told_anew(cloud: Family) -> None:
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    cloud.settle()
    assert cloud.last(BorderReported).data_port == cloud.routers["c1/i0"].port

    cloud.disconnect("c1/i0")
    channels = cloud.broker.registry.channels
    for number in [one for one, found in channels.items() if found.from_router == "c1/i0"]:
        cloud.hear(channels[number].to_router, ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()
    assert (cloud.last(BorderReported).router, cloud.last(BorderReported).is_up) == ("c1/i0", False)


def test_abstract_links_are_reported_with_latency_and_free_capacity() -> None:
    cloud = family(bandwidth_bytes_per_s=1_000_000)
    told = cloud.last(AbstractLinksReported)
    ways = {(one.from_router, one.to_router): one for one in told.abstract_links}
    assert set(ways) == {("c1/i0", "c1/i1"), ("c1/i1", "c1/i0")}
    way = ways["c1/i0", "c1/i1"]
    resources = cloud.broker.reservations.resources
    number = resources.channel_between("c1/i0", "c1/i1")
    ends_us = resources.ends_us
    assert way.latency_us == resources.path_us(("c1/i0", "c1/i1"), (number,)) - ends_us
    assert way.free_bytes_per_s == {0: 997_600}


@pytest.mark.parametrize(("bandwidth_bytes_per_s", "is_told"), [(1_000_000, False), (20_000, True)])
def test_a_change_of_load_is_told_if_it_is_a_tenth_or_more(
    bandwidth_bytes_per_s: int, *, is_told: bool
) -> None:
    cloud = family(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    cloud.advance(cloud.settings.retry_after_ns)
    before = len(cloud.heard(AbstractLinksReported))
    cloud.reserve("c9#1", entries=ENTRIES[:1], exits=EXITS[1:])
    cloud.advance(2 * cloud.settings.retry_after_ns)
    assert len(cloud.heard(AbstractLinksReported)) == before + is_told


def test_a_way_that_is_down_is_told_as_none(cloud: Family) -> None:
    inner = cloud.broker.registry.channels
    for number in [one for one, found in inner.items() if found.to_router == "c1/i1"]:
        cloud.hear("c1/i1", ChannelStateChanged(channel_id=number, is_up=False))
    cloud.advance(cloud.settings.retry_after_ns)
    ways = {
        (one.from_router, one.to_router) for one in cloud.last(AbstractLinksReported).abstract_links
    }
    assert ways == {("c1/i1", "c1/i0")}


def test_a_channel_between_clouds_is_ordered_at_our_end(cloud: Family) -> None:
    table = cloud.routers["c1/i0"].table
    order = table.channels[OUT]
    assert (order.to, order.host, order.data_port, order.level) == ("c2/b", "10.9.0.1", 700, 0)
    assert order.probe_interval_ms > 0
    assert table.sources[IN].sender == "c2/b"
    assert OUT not in cloud.broker.registry.channels


def test_channels_between_clouds_outlive_the_parent_and_a_kill(cloud: Family) -> None:
    cloud.kill_broker()
    cloud.start()
    assert OUT in cloud.routers["c1/i0"].table.channels
    assert cloud.differing() == []


def test_a_channel_that_the_whole_list_lacks_is_closed(cloud: Family) -> None:
    left = border(OUT, "c1/i0", "c2/b")
    cloud.say(OpenBorder(term=7, channels=(left,), is_whole=True))
    cloud.settle()
    assert list(cloud.broker.registry.tree.borders) == [OUT]
    assert IN not in cloud.routers["c1/i0"].table.sources


def test_a_channel_that_a_segment_uses_is_closed_when_the_segment_is_released(
    cloud: Family,
) -> None:
    cloud.reserve("c9#1", entries=ENTRIES, exits=EXITS)
    cloud.commit("c9#1")
    cloud.say(CloseBorder(term=7, channel_id=OUT))
    cloud.settle()
    assert OUT in cloud.routers["c1/i0"].table.channels
    cloud.release("c9#1")
    assert OUT not in cloud.routers["c1/i0"].table.channels


def test_an_order_that_no_router_could_obey_is_not_taken(cloud: Family) -> None:
    inside = border(99, "c1/i0", "c1/i1")
    cloud.say(OpenBorder(term=7, channels=(inside,)))
    assert 99 not in cloud.broker.registry.tree.borders
    assert any(note.word == "border_refused" for note in cloud.notes)


@pytest.mark.feature("S0-129")
def test_what_routers_say_of_channels_between_clouds_goes_up(cloud: Family) -> None:
    cloud.hear("c1/i0", ChannelStateChanged(channel_id=IN, is_up=False))
    cloud.hear("c1/i0", BackPressureChanged(channel_id=OUT, is_on=True))
    silent, pressed = cloud.heard(BorderChannelReported)[-2:]
    assert (silent.channel_id, silent.is_up, silent.is_pressed) == (IN, False, None)
    assert (pressed.channel_id, pressed.is_up, pressed.is_pressed) == (OUT, None, True)

    cloud.hear("c1/i1", ChannelStateChanged(channel_id=IN, is_up=True))
    assert cloud.last(BorderChannelReported) == pressed, "only its receiver knows"
    cloud.lose_parent()
    cloud.words.clear()
    cloud.join()
    told = cloud.heard(BorderChannelReported)
    assert silent in told
    assert pressed in told
    assert all(word.is_up is not False or word == silent for word in told)


def test_a_router_that_reports_again_repeats_which_channels_are_congested(cloud: Family) -> None:
    cloud.hear("c1/i0", BackPressureChanged(channel_id=OUT, is_on=True))
    cloud.disconnect("c1/i0")
    cloud.connect("c1/i0")
    told = cloud.last(BorderChannelReported)
    assert (told.channel_id, told.is_pressed) == (OUT, False)


def test_a_router_that_comes_back_as_a_new_process_has_no_complaints(cloud: Family) -> None:
    cloud.hear("c1/i0", ChannelStateChanged(channel_id=IN, is_up=False))
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    told = cloud.last(BorderChannelReported)
    assert (told.channel_id, told.is_up) == (IN, True)


def test_a_cloud_without_a_session_to_its_parent_serves_its_own(cloud: Family) -> None:
    cloud.lose_parent()
    cloud.publish(VOLTAGE, "c1/e0")
    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))


def test_ways_that_were_lost_while_the_parent_was_away_are_told_as_gone(cloud: Family) -> None:
    assert cloud.last(AbstractLinksReported).abstract_links
    cloud.lose_parent()
    for number, found in sorted(cloud.broker.registry.channels.items()):
        if found.to_router in BORDERS:
            cloud.hear(found.to_router, ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()
    cloud.join()
    assert cloud.last(AbstractLinksReported).abstract_links == ()


def report_while_undecided(cloud: Family, opened: OpenBorder) -> None:
    """A router comes back, as a new process, while the parent's word is on its way to the disk."""
    cloud.is_journal_held = True
    cloud.say(opened)
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    cloud.advance(10**7)


def fail_writes(cloud: Family) -> None:
    cloud.is_disk_full = True
    cloud.is_journal_held = False
    cloud.write()
    cloud.is_disk_full = False
    cloud.settle()
    cloud.advance(3 * 10**9)


def test_a_channel_that_could_not_be_kept_is_on_no_router(cloud: Family) -> None:
    new = border((1 << 31) + 9, "c1/i0", "c4/b")
    report_while_undecided(cloud, OpenBorder(term=7, channels=(new,)))
    fail_writes(cloud)
    number = new.channel.channel_id
    assert number not in cloud.broker.registry.tree.borders
    assert number not in cloud.routers["c1/i0"].table.channels
    assert cloud.differing() == []


def test_a_channel_whose_change_could_not_be_kept_is_as_before(cloud: Family) -> None:
    changed = structs.replace(border(OUT, "c1/i0", "c2/b"), data_port=800)
    report_while_undecided(cloud, OpenBorder(term=7, channels=(changed,)))
    fail_writes(cloud)
    assert cloud.routers["c1/i0"].table.channels[OUT].data_port == 700


def test_channels_that_could_not_be_kept_are_said_again_after_a_join(cloud: Family) -> None:
    cloud.is_disk_full = True
    cloud.say(OpenBorder(term=7, channels=(border((1 << 31) + 9, "c1/i0", "c4/b"),)))
    assert (cloud.closed[-1].peer, cloud.closed[-1].code) == (ROOT, StorageFailed.code)
