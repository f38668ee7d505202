"""Trees of any shape: real brokers, one to ten levels, two or three children, balanced or not.

Clouds stand in a row, each joined with the next by two ways; a channel belongs to the lowest
broker above both clouds. In every shape contracts and floods keep to the brokers that they concern.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import GrantedOutcome, Unsubscribe
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from tests.protocol.test_tree import ask, residue
from tests.unit.broker.stand_ins import subscribe
from tests.unit.broker.tree.family import Family

NS_PER_S = 1_000_000_000
PUBLISHER, VARIABLE = "c0/pmu", "c0/pmu/v"


@dataclass(frozen=True)
class Shape:
    """`parents` by child; leaves are the clouds, from left to right."""

    name: str
    parents: dict[str, str]
    clouds: tuple[str, ...]

    def above(self, name: str) -> list[str]:
        """Return the names from this one up to the root."""
        found = [name]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
        return found

    def lowest_common(self, one: str, other: str) -> str:
        return next(broker for broker in self.above(one) if broker in self.above(other))

    def below(self, broker: str) -> set[str]:
        return {cloud for cloud in self.clouds if broker in self.above(cloud)}


def full(levels: int, branching: int) -> Shape:
    """Every broker that is no leaf has as many children."""
    parents: dict[str, str] = {}
    row = ["root"]
    for level in range(1, levels):
        is_last = level == levels - 1
        below: list[str] = []
        for parent in row:
            for _ in range(branching):
                name = f"{'c' if is_last else f'b{level}x'}{len(below)}"
                parents[name] = parent
                below.append(name)
        row = below
    return Shape(f"{levels} levels by {branching}", parents, tuple(row))


def stairs(levels: int) -> Shape:
    """Beside each broker stands a cloud, so that every depth has one; the deepest has two.

    From the deepest to the highest, since an owner has no way that leaves its scope.
    """
    parents: dict[str, str] = {}
    broker = "root"
    for level in range(1, levels):
        parents[f"c{levels - level}"] = broker
        below = "c0" if level == levels - 1 else f"b{level}"
        parents[below] = broker
        broker = below
    return Shape(f"stairs of {levels}", parents, tuple(f"c{at}" for at in range(levels)))


SHAPES = [*(stairs(levels) for levels in range(2, 11)), full(4, 2), full(5, 2), full(3, 3)]


def grown(shape: Shape) -> Family:
    inside = {
        cloud: [(f"{cloud}/e", f"{cloud}/f"), (f"{cloud}/f", f"{cloud}/e")]
        for cloud in shape.clouds
    }
    between: dict[str, list[tuple[str, str]]] = {}
    for one, other in pairwise(shape.clouds):
        owned = between.setdefault(shape.lowest_common(one, other), [])
        for router in ("e", "f"):
            ends = (f"{one}/{router}", f"{other}/{router}")
            owned += [ends, ends[::-1]]
    family = Family(shape.parents, inside, between).start()
    family.pass_time(3 * NS_PER_S)
    for cloud in shape.clouds:
        family.leaves[cloud].attach(f"{cloud}/centre", f"{cloud}/e", f"{cloud}/f")
    first = family.leaves["c0"]
    first.attach(PUBLISHER, "c0/e", "c0/f", data_port=0)
    first.publish(VARIABLE, "c0/e")
    family.settle()
    return family


def owned(family: Family) -> dict[str, int]:
    """Return the number of contracts that each broker owns."""
    counts = {name: node.broker.survey()["contracts"] for name, node in family.brokers.items()}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.feature("S1-3", "S0-3", "S0-6", "S0-57")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_in_every_shape_the_lowest_common_broker_owns_a_contract_and_all_its_routers_forward(
    shape: Shape,
) -> None:
    family = grown(shape)
    for cloud in shape.clouds[1:]:
        (outcome,) = ask(family, cloud, subscribe(VARIABLE, QosRequest(redundancy=2)))
        assert isinstance(outcome, GrantedOutcome), f"{cloud}: {outcome}"
        assert outcome.is_node_disjoint
        assert owned(family) == {shape.lowest_common("c0", cloud): 1}
        assert outcome.variable is not None
        for router in {router for path in outcome.paths for router in path.routers}:
            table = family.leaves[router.partition("/")[0]].routers[router].table
            carried = {order.variable_id for order in table.paths.values()}
            assert carried == {outcome.variable.variable_id}, router
        ask(family, cloud, Unsubscribe(subscription_ids=(outcome.subscription_id,)))
        assert residue(family) == []


@pytest.mark.feature("S0-76")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_in_every_shape_the_level_of_a_channel_is_that_of_the_lowest_broker_above_both_ends(
    shape: Shape,
) -> None:
    family = grown(shape)
    levels = {
        (router, order.to): order.level
        for leaf in family.leaves.values()
        for router, found in leaf.routers.items()
        for order in found.table.channels.values()
        if "/" in order.to and order.to.partition("/")[2] in {"e", "f"}
    }
    assert len(levels) == 2 * len(shape.clouds) + 4 * (len(shape.clouds) - 1)
    for (near, far), level in levels.items():
        one, other = near.partition("/")[0], far.partition("/")[0]
        common = one if one == other else shape.lowest_common(one, other)
        assert level == len(shape.above(common)) - 1, f"{near}→{far}"


@pytest.mark.feature("S1-3")
def test_a_request_within_a_cloud_never_leaves_its_broker() -> None:
    family = grown(stairs(4))
    leaf = family.leaves["c0"]
    leaf.send("c0/centre", "c0/e", subscribe(VARIABLE))
    assert not family.step(), "nobody else hears of it"
    family.settle()
    assert owned(family) == {}
    assert len(leaf.broker.registry.subscriptions) == 1


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_in_every_shape_each_broker_floods_its_own_scope_and_no_other(shape: Shape) -> None:
    family = grown(shape)
    number = family.leaves["c0"].broker.registry.publications[VARIABLE].variable.variable_id
    for broker in shape.above("c0"):
        depth = len(shape.above(broker)) - 1
        answer = family.operate(broker, SetFlooding(request_id=1, name=VARIABLE))
        assert answer.refused is None
        assert flooding(family, number) == {cloud: {depth} for cloud in shape.below(broker)}
        family.operate(broker, RemoveFlooding(request_id=2, name=VARIABLE))
        assert flooding(family, number) == {}


def flooding(family: Family, number: int) -> dict[str, set[int]]:
    """Return the levels at which the routers of each cloud flood the variable."""
    found: dict[str, set[int]] = {}
    for cloud, leaf in family.leaves.items():
        for router in leaf.routers.values():
            order = router.table.variables.get(number)
            for flood in order.floods if order else ():
                found.setdefault(cloud, set()).add(flood.level)
    return found
