"""Every operation is in the snapshot: a compacted journal leads to the same state.

A life of a cloud, and one of a broker above clouds, writes operations of every type. For each type
that a real broker has registered, the state after each write of such an operation is built twice:
from the journal, and from the snapshot of that state.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import pytest
from msgspec import structs

from gridstat.broker.access.access_operations import AccessEnding
from gridstat.broker.records.operations import MatchingLeft, NumbersReached, Operation, encode
from gridstat.broker.tree.tree_operations import TreeOperation, operations_of
from gridstat.model.access_rules import AccessRule
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    Detach,
    ListenToFloods,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import ChannelStateChanged, OperatorCommand
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddChild,
    AddRouter,
    GrantAccess,
    RemoveChannel,
    RemoveChild,
    RemoveRouter,
    RevokeAccess,
    SetAccessMode,
    SetFlooding,
)
from gridstat.net.command.tree_messages import CloseBorder
from lab.open_access import OPEN_RULE
from lab.simulation.state_image import differences, image
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.segments.family import OUT_TWO, Family
from tests.unit.broker.segments.test_kills import LIFE, loads
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.test_parentless import lease, start_below
from tests.unit.broker.tree.test_probed_borders import two_clouds
from tests.unit.broker.tree.tree_world import TreeWorld
from tests.unit.broker.tree.worlds import VOLTAGE as FAR_VOLTAGE
from tests.unit.broker.tree.worlds import deep_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.tree.qos_broker import QosBroker

CURRENT = f"{PMU}/current"
VOLATILE = frozenset(
    {"_capabilities", "_interned_tuples", "_totals", "carriage", "layout_version", "version"}
)
"""Fields that hold no durable state; the totals of `carriage` are compared apart."""

CHANNEL = EventChannel(ChannelId(0), "c1/w2", "c2/w2")
CHANGES: tuple[Any, ...] = (
    AddChild(request_id=0, name="c9"),
    RemoveChild(request_id=0, name="c9"),
    AddChannel(request_id=0, channel=CHANNEL),
    RemoveChannel(request_id=0, from_router="c1/w2", to_router="c2/w2"),
)
"""Commands of operators to a broker above clouds."""

Operations: TypeAlias = "Sequence[Any]"


class Life(NamedTuple):
    """Operations that a broker has written, and their number after each write.

    `new` returns an empty broker, `state` the objects of a broker that hold durable state.
    """

    written: Operations
    lengths: Sequence[int]
    new: Callable[[], Any]
    state: Callable[[Any], object]

    def restored(self, operations: Operations) -> Any:
        """Return a broker with the state that these operations build."""
        broker = self.new()
        broker.restore([msgspec.msgpack.encode(operation) for operation in operations])
        return broker

    def image(self, broker: Any) -> dict[str, str]:
        return image(self.state(broker), without=VOLATILE)


# A cloud.


def operate(cloud: Family, command: OperatorCommand) -> None:
    cloud.tell(Received("operator/o", command))
    cloud.settle()
    assert cloud.operator_answers[-1].refused is None, cloud.operator_answers[-1]


def change_topology(cloud: Family) -> None:
    router, name = Router("c1/i9", RouterRole.INNER), "c1/i9"
    channel = EventChannel(ChannelId(0), "c1/i0", name)
    operate(cloud, AddRouter(request_id=1, router=router))
    operate(cloud, AddChannel(request_id=2, channel=channel))
    operate(cloud, RemoveChannel(request_id=3, from_router="c1/i0", to_router=name))
    operate(cloud, RemoveRouter(request_id=4, name=name))
    cloud.say(CloseBorder(term=7, channel_id=OUT_TWO))


def change_period(cloud: Family) -> None:
    cloud.publish(CURRENT, "c1/e0")
    cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/*"))
    cloud.ask(PMU, "c1/e0", ChangePublication(name=CURRENT, period=Period(1, 30)))
    cloud.advance(60 * NS_PER_S)


def move(cloud: Family) -> None:
    """Fail a channel of a contract, so that the contract moves and its old path retires."""
    (found,) = cloud.broker.registry.subscriptions.values()
    path = found.record.paths[0]
    down = ChannelStateChanged(channel_id=path.channel_ids[0], is_up=False, silent_ms=100)
    cloud.hear(path.routers[1], down)
    cloud.advance(10 * NS_PER_S)


def flood(cloud: Family) -> None:
    operate(cloud, SetFlooding(request_id=5, name=CURRENT, modes=(), every=1))
    cloud.ask(CENTRE, "c1/e2", ListenToFloods(data_port=9, urgent_port=10))


def change_rules(cloud: Family) -> None:
    """Grant a rule, revoke one of the file, and end the enforcement for a while."""
    rule = AccessRule("more", "c1/**", ("find",), "c1/**")
    operate(cloud, GrantAccess(request_id=6, rule=rule))
    operate(cloud, SetAccessMode(request_id=7, is_enforced=False))
    operate(cloud, RevokeAccess(request_id=8, identifier="open"))
    operate(cloud, GrantAccess(request_id=9, rule=OPEN_RULE))
    operate(cloud, RevokeAccess(request_id=10, identifier="more"))
    operate(cloud, SetAccessMode(request_id=11, is_enforced=True))


def write(cloud: Family, operation: Operation) -> None:
    """Write an operation that only snapshots, or very large clouds, have."""
    cloud.journal.append(encode(operation))
    cloud.written_lengths.append(len(cloud.journal))


def leave(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", Detach())
    cloud.settle()
    write(cloud, NumbersReached(variable_id=90_000, subscription_id=80_000, channel_id=70_000))
    write(cloud, MatchingLeft(pattern_id=0, name=CURRENT))
    write(cloud, AccessEnding(rule=OPEN_RULE))


@cache
def life_of_a_cloud() -> Life:
    cloud = Family()
    cloud.start()
    cloud.join()
    cloud.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    cloud.attach(CENTRE, "c1/e2", "c1/e3")
    cloud.publish(VOLTAGE, "c1/e0")
    for step in (*LIFE, change_topology, change_period, move, flood, change_rules, leave):
        step(cloud)
    written = [cloud.broker.decode(data) for data in cloud.journal]
    return Life(written, cloud.written_lengths, cloud.new_broker, _state_of_a_cloud)


def _state_of_a_cloud(broker: LeafBroker) -> object:
    wanted = {name: broker.tables[name].wanted for name in broker.registry.routers}
    allowed = broker.permissions
    rules = broker.access, list(allowed.rules), allowed.is_enforced, allowed.reserved
    return broker.registry, broker.floods, rules, loads(broker), wanted


# Brokers above clouds.


@cache
def lives_above_clouds() -> list[Life]:
    """Return what the brokers of three trees have written."""
    deep = deep_tree()
    contract = deep.subscribe("c4/d", FAR_VOLTAGE)
    deep.rest()
    lease(deep, "c1", 1)
    for number, command in enumerate(CHANGES, start=1):
        answer = deep.operate("west", structs.replace(command, request_id=number))
        assert answer.refused is None, answer
        deep.rest()
    deep.end(contract)
    deep.rest()
    start_below(deep, "west", "")
    alone = [CloudStandIn("c1", "root", numbers_used=30)]
    small = TreeWorld({"root": ("", ("c1",), ())}, alone).start()
    small.rest()
    flooded = two_clouds()
    flooded.operate("root", SetFlooding(request_id=1, name="a/pmu/voltage", modes=(), every=1))
    node = flooded.brokers["root"]
    return [
        _life_above_clouds(node.journal, node.written_lengths, node.new_broker),
        *(
            _life_above_clouds(process.written, process.written_lengths, process.new_broker)
            for world in (deep, small)
            for process in world.brokers.values()
        ),
    ]


def _life_above_clouds(
    journal: Sequence[bytes], lengths: Sequence[int], new: Callable[[], QosBroker]
) -> Life:
    return Life(operations_of(journal, new().operation_types), lengths, new, _state_above_clouds)


def _state_above_clouds(broker: QosBroker) -> object:
    accounts = broker.state.channels.accounts
    loaded = {number: account.carriage.bytes.value for number, account in accounts.items()}
    return broker.state, broker.parts.flooding.floods, loaded


# Checks of both kinds of brokers.


def check(lives: Iterable[Life], kind: type[Any]) -> None:
    """Compare the state after each write of such an operation with what its snapshot builds."""
    effects = [found for life in lives for found in _effects(life, kind)]
    assert any(effects), f"no step of the life writes {kind.__name__} with an effect"


def _effects(life: Life, kind: type[Any]) -> Iterator[bool]:
    """Check each write of such an operation; yield whether the operation has changed the state."""
    for before, after in pairwise([0, *life.lengths]):
        others = [found for found in life.written[before:after] if not isinstance(found, kind)]
        if len(others) == after - before:
            continue
        broker = life.restored(life.written[:after])
        expected = life.image(broker)
        compacted = life.new()
        compacted.restore(broker.snapshot())
        assert differences(life.image(compacted), expected) == []
        yield life.image(life.restored([*life.written[:before], *others])) != expected


LEAF = Conversation().broker.operation_types
ABOVE = TreeWorld({"root": ("", (), ())}, []).brokers["root"].machine.operation_types


@pytest.mark.parametrize("kind", LEAF, ids=[kind.__name__ for kind in LEAF])
def test_the_snapshot_of_a_cloud_has_the_effect_of_every_operation(kind: type[Operation]) -> None:
    """A new operation of a leaf broker gets a step in `life_of_a_cloud`."""
    check([life_of_a_cloud()], kind)


@pytest.mark.parametrize("kind", ABOVE, ids=[kind.__name__ for kind in ABOVE])
def test_the_snapshot_above_clouds_has_the_effect_of_every_operation(
    kind: type[TreeOperation],
) -> None:
    """A new operation of a broker above clouds gets a step in `lives_above_clouds`."""
    check(lives_above_clouds(), kind)
