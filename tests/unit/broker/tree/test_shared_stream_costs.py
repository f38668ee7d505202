"""Charges of a channel between clouds on which an identifier has several periods."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.accounts import HopAccount
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT
from gridstat.broker.capacity.stream_costs import StreamCost
from gridstat.broker.tree.shared_stream_costs import SharedHopAccount
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, channel, variable
from tests.unit.broker.tree.worlds import VOLTAGE, is_charged, residue

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.model.status import StatusVariable

CHANNEL = channel("c1/a", "c2/b", bandwidth_bytes_per_s=1_000_000)
PLAIN = variable("c1/v", 1)
KINDS = (
    PLAIN,
    replace(PLAIN, period=Period(1, 1_000)),
    replace(PLAIN, period=Period(1, 50), phase_ns=7_000_000),
    replace(PLAIN, period=None, interval_ns_min=20_000_000),
    replace(PLAIN, period=Period(1, 50), replay_speed=4),
)
EVERYS = ({0: 1}, {0: 5}, {0: 6, 2: 2}, {1: 1, 3: 4})

Charge: TypeAlias = tuple[int, int, int]
"""An identifier, and which of the kinds and of the divisors."""

CHARGES = st.tuples(
    st.integers(1, 3), st.integers(0, len(KINDS) - 1), st.integers(0, len(EVERYS) - 1)
)


def of(charge: Charge) -> tuple[StatusVariable, dict[int, int]]:
    number, kind, everys = charge
    return replace(KINDS[kind], variable_id=VariableId(number)), EVERYS[everys]


def counted_anew(charges: Counter[Charge], *, is_ipv6: bool = False) -> HopAccount:
    """Return an account in which every kind of every identifier is a separate variable."""
    found = HopAccount((), MODE_SETS_DEFAULT, CHANNEL)
    found.set_ip_version(is_ipv6=is_ipv6)
    for charge in charges.elements():
        one, everys = of(charge)
        number = VariableId(one.variable_id * len(KINDS) + charge[1])
        found.add(StreamCost(replace(one, variable_id=number)), everys)
    return found


def amounts(carriage: HopAccount) -> tuple[Fraction, dict[int, Fraction], tuple[int, int]]:
    of_modes = {mode: carriage.bytes.of_mode(mode) for mode in carriage.bytes.modes()}
    return carriage.bytes.value, of_modes, carriage.burst.worst()


@given(st.lists(st.one_of(CHARGES, st.booleans()), max_size=40))
def test_another_version_of_ip_charges_everything_anew_and_ends_at_nothing(
    steps: list[Charge | bool],
) -> None:
    """A channel between clouds and one inside a cloud are charged alike."""
    shared, own = SharedHopAccount(CHANNEL), HopAccount((), MODE_SETS_DEFAULT, CHANNEL)
    charges, is_ipv6 = Counter[Charge](), False
    for step in steps:
        if isinstance(step, bool):
            is_ipv6 = step
            for hop in (shared, own):
                hop.set_ip_version(is_ipv6=is_ipv6)
        else:
            shared.take(*of(step))
            one, everys = of(step)
            number = VariableId(one.variable_id * len(KINDS) + step[1])
            own.add(StreamCost(replace(one, variable_id=number)), everys)
            charges[step] += 1
        expected = counted_anew(charges, is_ipv6=is_ipv6)
        for hop in (shared, own):
            assert amounts(hop) == amounts(expected)
            assert hop.charged() == expected.charged()
    for charge in sorted(charges.elements()):
        shared.give_back(*of(charge))
    assert amounts(shared) == amounts(HopAccount((), MODE_SETS_DEFAULT, CHANNEL))
    assert not shared.bytes


@given(st.lists(st.tuples(CHARGES, st.booleans()), max_size=40))
def test_charges_of_several_kinds_are_those_counted_anew_and_end_at_nothing(
    steps: list[tuple[Charge, bool]],
) -> None:
    carriage, charges = SharedHopAccount(CHANNEL), Counter[Charge]()
    for charge, is_taken in steps:
        if is_taken:
            carriage.take(*of(charge))
            charges[charge] += 1
        elif charges[charge]:
            carriage.give_back(*of(charge))
            charges[charge] -= 1
        assert amounts(carriage) == amounts(counted_anew(charges))
        assert set(carriage.streams) == {number for number, _, _ in charges.elements()}
    for charge in sorted(charges.elements()):
        carriage.give_back(*of(charge))
    assert not is_charged(carriage)
    assert amounts(carriage) == amounts(HopAccount((), MODE_SETS_DEFAULT, CHANNEL))


def test_a_divisor_counts_as_often_as_it_is_taken() -> None:
    carriage = SharedHopAccount(CHANNEL)
    for everys in ({0: 2}, {0: 1}, {0: 2}):
        carriage.take(PLAIN, everys)
    assert carriage.streams[PLAIN.variable_id].counts.every_one(0) == (1, 2, 2)
    carriage.give_back(PLAIN, {0: 2})
    assert carriage.streams[PLAIN.variable_id].counts.every_one(0) == (1, 2)


def row_of_three() -> TreeWorld:
    facts = {"bandwidth_bytes_per_s": 100_000}
    channels = [*both_ways("c1/o", "c2/i", **facts), *both_ways("c2/o", "c3/i", **facts)]
    names = ("c1", "c2", "c3")
    clouds = [CloudStandIn(name, "root") for name in names]
    world = TreeWorld({"root": ("", names, channels)}, clouds)
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1, 1_000)
    world.start()
    world.rest()
    return world


def end_while_its_cloud_goes(world: TreeWorld, contract: str, cloud: str) -> None:
    """Let the root receive the end of the contract, and then lose the cloud."""
    world.end(contract)
    world.step()
    world.cut.add(cloud)
    world.disconnect(cloud)
    world.rest()


def promised(world: TreeWorld) -> Fraction:
    accounts = world.brokers["root"].machine.state.channels.accounts.values()
    (found,) = (account for account in accounts if account.channel.from_router == "c1/o")
    return found.carriage.bytes.value


def test_a_period_that_changes_while_a_contract_leaves_is_charged_and_given_back_exactly() -> None:
    world = row_of_three()
    leaving = world.subscribe("c3/d", VOLTAGE, 1, every=5)
    world.rest()
    before = promised(world)
    end_while_its_cloud_goes(world, leaving, "c3")
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1, 50)
    present = world.subscribe("c2/d", VOLTAGE, 1)
    world.rest()
    assert present in world.clouds["c2"].granted
    assert promised(world) == before + 50 * 68
    world.cut.clear()
    world.rest()
    assert promised(world) == 50 * 68
    world.end(present)
    world.rest()
    assert promised(world) == 0
    assert residue(world) == []
