"""Limited flooding across clouds: real brokers, their orders, and cores that obey them (A12)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gridstat.core.reference import ReferenceCore
from gridstat.core.rows import Limits
from gridstat.model.cloud import EventChannel
from gridstat.model.errors import (
    ChannelFull,
    LinkDown,
    NoSuchVariable,
    Refused,
    StillInUse,
)
from gridstat.model.identifiers import ChannelId
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Unpublish
from gridstat.net.command.operator_messages import (
    AddChannel,
    ListFlooding,
    OperatorAnswer,
    RemoveChannel,
    RemoveFlooding,
    SetFlooding,
)
from gridstat.net.command.router_messages import FloodOrder
from gridstat.router.forwarding_table import forwarding_row
from gridstat.router.router_channels import spec_of
from gridstat.router.table_orders import carried_of
from tests.golden.load import load_golden
from tests.protocol.grids import datagram, event
from tests.unit.broker.stand_ins import WALL_NS
from tests.unit.broker.tree.family import Family

GOLDEN = next(
    topology
    for topology in load_golden("flooding.toml")["topology"]
    if topology["name"] == "six-clouds"
)
PARENTS = {**dict.fromkeys("abc", "p"), **dict.fromkeys("def", "q"), "p": "root", "q": "root"}
OWNERS = ("root", "p", "q")
PUBLISHER = "a/pmu"
VOLTAGE = "a/pmu/voltage"
EVERYWHERE = frozenset("abcdef")


def full_name(router: str) -> str:
    """`a0` of the golden file is router 0 of cloud a."""
    return f"{router[0]}/{router[1:]}"


def ways(level: int, clouds: str) -> list[tuple[str, str]]:
    return [
        (full_name(each["from"]), full_name(each["to"]))
        for each in GOLDEN["channels"]
        if each["level"] == level and each["from"][0] in clouds
    ]


def six_clouds(bandwidths: dict[tuple[str, str], int] | None = None) -> Family:
    """Two brokers with three clouds each, and the root; channels as in the golden file."""
    return Family(
        PARENTS,
        {cloud: ways(2, cloud) for cloud in "abcdef"},
        {"root": ways(0, "abcdef"), "p": ways(1, "abc"), "q": ways(1, "def")},
        bandwidths=bandwidths,
    ).start()


def publish(family: Family, name: str = VOLTAGE) -> int:
    cloud, endpoint = name[0], name.rpartition("/")[0]
    leaf = family.leaves[cloud]
    leaf.attach(endpoint, f"{cloud}/0", data_port=0)
    variable = leaf.publish(name, f"{cloud}/0")
    family.settle()
    return variable.variable_id


@pytest.fixture
def family() -> Family:
    found = six_clouds()
    publish(found)
    return found


def flood(family: Family, broker: str, *modes: int, every: int = 1) -> OperatorAnswer:
    return family.operate(broker, SetFlooding(request_id=1, name=VOLTAGE, modes=modes, every=every))


def stop(family: Family, broker: str, *modes: int) -> OperatorAnswer:
    return family.operate(broker, RemoveFlooding(request_id=2, name=VOLTAGE, modes=modes))


def floods(family: Family, name: str = VOLTAGE) -> dict[str, tuple[FloodOrder, ...]]:
    """Return the floods of a variable in the routers of each cloud that has any."""
    found = {}
    for cloud, leaf in family.leaves.items():
        number = variable_id(family, name)
        orders = {
            order.floods if (order := router.table.variables.get(number)) else ()
            for router in leaf.routers.values()
        }
        (only,) = orders
        if only:
            found[cloud] = only
    return found


def variable_id(family: Family, name: str = VOLTAGE) -> int:
    return family.leaves[name[0]].broker.registry.publications[name].variable.variable_id


def charges(family: Family) -> dict[object, object]:
    found: dict[object, object] = {}
    for cloud, leaf in family.leaves.items():
        for number, carriage in leaf.broker.reservations.resources.channels.items():
            found[cloud, number] = carriage.bytes.value, sorted(carriage.streams)
    for name, node in family.brokers.items():
        for number, account in node.broker.state.channels.accounts.items():
            found[name, number] = account.carriage.bytes.value, dict(account.relied_us)
    return found


class Obedient:
    """A core for each router that holds exactly what its table says, but for sealing."""

    def __init__(self, family: Family) -> None:
        self.now_ns = WALL_NS
        self.cores: dict[str, ReferenceCore] = {}
        self.leads: dict[tuple[str, int], str] = {}
        for leaf in family.leaves.values():
            for name, router in leaf.routers.items():
                core = self.cores[name] = ReferenceCore(Limits())
                for channel in router.table.channels.values():
                    plain = msgspec.structs.replace(channel, datagram_version=2)
                    core.open_channel(spec_of(plain, in_memory=True))
                    self.leads[name, channel.channel_id] = channel.to
                for source in router.table.sources.values():
                    core.open_source(
                        source.channel_id,
                        is_publisher=source.is_publisher,
                        back_channel=source.back_channel,
                    )
                variables = router.table.variables.values()
                core.commit([forwarding_row(carried_of(order), ()) for order in variables])

    def publish(self, family: Family, name: str) -> list[dict[str, list[str]]]:
        """Publish one event; return who receives it first, and who drops a copy, by round."""
        cloud, endpoint = name[0], name.rpartition("/")[0]
        edge = f"{cloud}/0"
        attachment = family.leaves[cloud].broker.registry.endpoints[endpoint].attachments[edge]
        sent = event(variable_id(family, name), self.now_ns)
        self.cores[edge].inject(datagram(attachment.up_channel_id, sent), now_ns=self.now_ns)
        rounds = []
        while moved := self._taken():
            first: list[str] = []
            dropped: list[str] = []
            for to, octets in moved:
                before = self.cores[to].counters()["duplicate"]
                self.cores[to].inject(octets, now_ns=self.now_ns)
                is_first = self.cores[to].counters()["duplicate"] == before
                (first if is_first else dropped).append(to.replace("/", ""))
            rounds.append({"first": sorted(first), "dropped": sorted(dropped)})
        return rounds

    def _taken(self) -> list[tuple[str, bytes]]:
        return [
            (to, octets)
            for (name, channel_id), to in self.leads.items()
            for _, octets in self.cores[name].take_output(channel_id)
        ]


@pytest.mark.feature("S0-80")
@pytest.mark.parametrize("case", GOLDEN["case"], ids=lambda case: str(case["name"]))
def test_the_golden_scenarios_hold_from_the_operators_command_to_the_last_core(
    case: dict[str, Any],
) -> None:
    family = six_clouds()
    cloud = case["publisher_at"][0]
    name = f"{cloud}/pmu/voltage"
    publish(family, name)
    broker = "root" if case["scope_level"] == 0 else PARENTS[cloud]
    answer = family.operate(broker, SetFlooding(request_id=1, name=name))
    assert answer.refused is None
    assert [term["level"] for term in answer.facts["modes"]] == [case["scope_level"]]
    assert Obedient(family).publish(family, name) == case["rounds"]


def test_the_scope_of_a_broker_is_all_clouds_below_it_and_its_level_is_its_depth(
    family: Family,
) -> None:
    flood(family, "p", 3)
    assert floods(family) == dict.fromkeys("abc", (FloodOrder(level=1, modes=0b1000),))
    stop(family, "p", 3)
    assert floods(family) == {}
    flood(family, "root")
    assert floods(family) == dict.fromkeys(EVERYWHERE, (FloodOrder(level=0),))
    stop(family, "root")
    family.operate("a", SetFlooding(request_id=1, name=VOLTAGE))
    assert floods(family) == {"a": (FloodOrder(level=2),)}


def test_of_three_levels_the_highest_decides_in_each_mode(family: Family) -> None:
    flood(family, "a", 1, 2, 3, every=2)
    flood(family, "p", 2, 3, every=3)
    flood(family, "root", 3, every=5)
    low = FloodOrder(level=2, modes=0b0010, every=2)
    middle = FloodOrder(level=1, modes=0b0100, every=3)
    high = FloodOrder(level=0, modes=0b1000, every=5)
    assert floods(family)["a"] == (high, middle, low)
    assert floods(family)["b"] == (high, middle)
    assert floods(family)["d"] == (high,)
    (listed,) = family.operate("p", ListFlooding(request_id=9)).facts["floods"]
    assert [(term["mode"], term["asked_by"]) for term in listed["modes"]] == [
        (2, "operator"),
        (3, "parent"),
    ]
    stop(family, "root")
    assert floods(family)["b"] == (FloodOrder(level=1, modes=0b1100, every=3),)
    stop(family, "p")
    assert floods(family) == {"a": (FloodOrder(level=2, modes=0b1110, every=2),)}


def test_what_flooding_took_is_given_back_exactly_at_every_broker(family: Family) -> None:
    before = charges(family)
    for broker in ("a", "p", "root"):
        flood(family, broker, every=2)
        assert charges(family) != before
    for broker in ("p", "a", "root"):
        stop(family, broker)
    assert charges(family) == before


def test_routers_at_borders_are_charged_for_what_they_send_to_other_clouds(
    family: Family,
) -> None:
    """c/1 has channels to a at level 1, and to d and e at level 0."""
    account = family.leaves["c"].broker.reservations.resources.router("c/1").events
    flood(family, "p")
    nearby = account.value
    stop(family, "p")
    assert account.value == 0
    flood(family, "root")
    rate = 60
    assert account.value - nearby == 2 * rate
    stop(family, "root")
    assert account.value == 0


@pytest.mark.parametrize(
    ("way", "where"), [(("e/0", "e/1"), "in a cloud"), (("c/1", "d/0"), "between clouds")]
)
def test_one_full_channel_anywhere_in_the_scope_refuses_the_flood_everywhere(
    way: tuple[str, str], where: str
) -> None:
    family = six_clouds({way: 4_000})  # 60 events a second take 4,080.
    publish(family)
    before = charges(family)
    answer = flood(family, "root")
    assert answer.refused is not None, where
    assert answer.refused.code == ChannelFull.code
    assert answer.refused.bottleneck == f"channel {way[0]}→{way[1]}"
    assert answer.refused.shortfall == "120 bytes/s"
    assert floods(family) == {}
    assert charges(family) == before
    assert flood(family, "root", every=2).refused is None
    assert floods(family).keys() == EVERYWHERE


def test_a_broker_that_is_away_when_flooding_begins_refuses_it_and_hears_of_it_later(
    family: Family,
) -> None:
    family.disconnect("d")
    before = charges(family)
    family.ask("root", SetFlooding(request_id=1, name=VOLTAGE))
    family.settle()
    (answer,) = family.answers("root")
    assert answer.refused is not None
    assert answer.refused.code == LinkDown.code
    assert answer.refused.reason == "d below q cannot be reached"
    assert (floods(family), charges(family)) == ({}, before)
    family.connect("d")
    family.settle()
    assert flood(family, "root").refused is None
    family.disconnect("d")
    stop(family, "root")
    family.pass_time(60 * NS_PER_S)
    assert floods(family).keys() == {"d"}
    family.connect("d")
    family.settle()
    assert (floods(family), charges(family)) == ({}, before)


def test_only_what_is_published_below_a_broker_floods_its_scope(family: Family) -> None:
    for broker, name in (("q", VOLTAGE), ("root", "a/pmu/nothing"), ("root", "z/pmu/voltage")):
        answer = family.operate(broker, SetFlooding(request_id=1, name=name))
        assert answer.refused is not None
        assert answer.refused.code == NoSuchVariable.code
    assert family.operate("root", SetFlooding(request_id=1, name=VOLTAGE, every=0)).refused


def test_channels_between_clouds_come_with_room_for_what_floods_and_go_without_floods(
    family: Family,
) -> None:
    flood(family, "p")
    narrow = EventChannel(ChannelId(0), "a/1", "c/0", bandwidth_bytes_per_s=4_000, security="none")
    refused = family.operate("p", AddChannel(request_id=5, channel=narrow)).refused
    assert refused is not None
    assert (refused.code, refused.shortfall) == (ChannelFull.code, "120 bytes/s")
    removal = RemoveChannel(request_id=6, from_router="a/1", to_router="b/0")
    refused = family.operate("p", removal).refused
    assert refused is not None
    assert refused.code == StillInUse.code
    wide = replace(narrow, bandwidth_bytes_per_s=5_000)
    assert family.operate("p", AddChannel(request_id=5, channel=wide)).refused is None
    stop(family, "p")
    assert family.operate("p", removal).refused is None


def test_a_second_change_of_the_same_variable_is_asked_to_wait(family: Family) -> None:
    family.ask("root", SetFlooding(request_id=1, name=VOLTAGE))
    while VOLTAGE not in family.brokers["root"].broker.parts.flooding.floods and family.step():
        family.ask("root", SetFlooding(request_id=7, name=VOLTAGE, every=2))
    family.settle()
    codes = {
        answer.request_id: 0 if answer.refused is None else answer.refused.code
        for answer in family.answers("root")
    }
    assert codes == {1: 0, 7: Refused.code}
    assert floods(family) == dict.fromkeys(EVERYWHERE, (FloodOrder(level=0),))


def test_a_variable_that_is_no_longer_published_floods_nowhere(family: Family) -> None:
    before = charges(family)
    flood(family, "root")
    flood(family, "p", 4)
    number = variable_id(family)
    family.leaves["a"].ask(PUBLISHER, "a/0", Unpublish(names=(VOLTAGE,)))
    family.settle()
    for leaf in family.leaves.values():
        assert all(number not in router.table.variables for router in leaf.routers.values())
        assert leaf.broker.floods.variables == {}
    for node in family.brokers.values():
        assert node.broker.parts.flooding.floods == {}
    publish(family)
    assert charges(family) == before


@pytest.mark.parametrize("victim", ["root", "p", "q", "a", "d"])
def test_the_flood_is_whole_or_not_there_after_a_kill_at_any_message(victim: str) -> None:
    """Kill after any message; a repeated command restores the flood, its end leaves nothing."""
    for words in itertools.count():
        family = six_clouds()
        publish(family)
        before = charges(family)
        family.ask("root", SetFlooding(request_id=1, name=VOLTAGE, modes=(2,), every=2))
        is_over = not all(family.step() for _ in range(words))
        family.kill(victim)
        family.settle()
        family.pass_time(60 * NS_PER_S)
        whole = dict.fromkeys(EVERYWHERE, (FloodOrder(level=0, modes=0b100, every=2),))
        assert floods(family) in ({}, whole), words
        if floods(family) == {}:
            assert charges(family) == before, words
        flood(family, "root", 2, every=2)
        assert floods(family) == whole, words
        for broker in OWNERS:
            stop(family, broker)
        assert (floods(family), charges(family)) == ({}, before), words
        if is_over:
            break
