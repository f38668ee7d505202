"""A kill after any write of a life across clouds: whoever speaks again finds the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.tables.router_orders import path_orders
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractRefused,
    EndContract,
    Reserved,
    SegmentsHeld,
)
from tests.unit.broker.segments.family import ENTRIES, EXITS, FAR, Family, family
from tests.unit.broker.segments.test_remote_contracts import NO
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from fractions import Fraction

    from gridstat.broker.leaf_broker import LeafBroker

CHANGED = ModalQos({0: QosRequest(redundancy=2)})


class Killed(Exception):  # noqa: N818 — no error of ours.
    """The broker is gone."""


class Mortal(Family):
    """Its broker is killed at the n-th write, just after it or just before."""

    dies_at = -1
    is_written = True
    writes = 0

    def write(self, count_max: int | None = None) -> None:
        if not self.is_journal_held:
            self.writes += 1
            if self.writes == self.dies_at:
                if self.is_written:
                    self.journal.extend(self.held_persists[0].operations)
                raise Killed
        super().write(count_max)


# The script: each step may be repeated from its beginning, as its sender would.


def cross(cloud: Family) -> None:
    cloud.reserve("c9#1", entries=ENTRIES, exits=EXITS)


def commit(cloud: Family) -> None:
    cloud.commit("c9#1")


def begin(cloud: Family) -> None:
    publication = cloud.broker.registry.publications[VOLTAGE]
    cloud.reserve("c2#4", variable=publication.variable, exits=EXITS)
    cloud.commit("c2#4")


def ask(cloud: Family) -> None:
    names = FAR.name, VOLTAGE, "c2/other/x"
    cloud.ask(CENTRE, "c1/e2", subscribe(*names), request_id=1_000_000)


def answer(cloud: Family) -> None:
    asked = {word.name: word for word in cloud.heard(AskContract) if not word.generation}
    other = asked["c2/other/x"].contract
    cloud.say(ContractRefused(term=7, contract=other, generation=0, refused=NO))
    cloud.grant(asked[FAR.name])


def change(cloud: Family) -> None:
    (number,) = cloud.broker.registry.tree.asked
    command = ChangeSubscription(subscription_id=number, qos=CHANGED)
    cloud.ask(CENTRE, "c1/e2", command, request_id=2_000_000)


def answer_change(cloud: Family) -> None:
    asked = next(word for word in cloud.heard(AskContract) if word.generation)
    cloud.grant(asked, paths=2)
    cloud.release(asked.contract, 0)


def release(cloud: Family) -> None:
    cloud.release("c9#1")


def withdraw(cloud: Family) -> None:
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)), request_id=3_000_000)
    cloud.release("c2#4")


def end(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(), request_id=4_000_000)


def confirm_end(cloud: Family) -> None:
    contract = cloud.last(EndContract).contract
    cloud.say(ContractEnded(term=7, contract=contract))


LIFE: tuple[Callable[[Family], None], ...] = (
    cross,
    commit,
    begin,
    ask,
    answer,
    change,
    answer_change,
    release,
    withdraw,
    end,
    confirm_end,
)


def born() -> Mortal:
    cloud = Mortal()
    cloud.start()
    cloud.join()
    cloud.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    cloud.attach(CENTRE, "c1/e2", "c1/e3")
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.writes = 0
    return cloud


def state(cloud: Family) -> dict[str, Any]:
    """Return the state without numbers that a kill may skip and paths that it may change."""
    check(cloud)
    registry = cloud.broker.registry
    held = {
        (contract, generation, registry.subscriptions[number].record.is_reserved)
        for contract, generations in registry.tree.segments.items()
        for generation, number in generations.items()
    }
    return {
        "segments": {
            (("mine" if contract.startswith("c1#") else contract), generation, is_reserved)
            for contract, generation, is_reserved in held
        },
        "asked": sorted(
            (found.record.name, found.record.qos.modes[0].redundancy, found.is_ending)
            for found in registry.tree.asked.values()
        ),
        "foreign": set(registry.foreign),
        "begun": set(registry.tree.begun),
        "borders": set(registry.tree.borders),
        "local": sorted(
            found.record.name
            for found in registry.subscriptions.values()
            if not found.record.contract
        ),
    }


def check(cloud: Family) -> None:
    """Charged is what the contracts take, and ordered is what they need, no more and no less."""
    assert cloud.differing() == []
    fresh = cloud.new_broker()
    fresh.restore(cloud.broker.snapshot())
    assert loads(fresh) == loads(cloud.broker)
    registry = cloud.broker.registry
    expected: dict[str, set[int]] = {name: set() for name in cloud.routers}
    for found in registry.subscriptions.values():
        record = found.record
        if not record.is_reserved:
            endpoint = registry.endpoints.get(record.subscriber)
            for router, order in path_orders(record, endpoint.attachments if endpoint else {}):
                expected[router].add(order.path_id)
    assert {name: set(router.table.paths) for name, router in cloud.routers.items()} == expected


def loads(broker: LeafBroker) -> dict[str | int, Fraction]:
    resources = broker.reservations.resources
    return {
        **{name: found.events.value for name, found in resources.routers.items()},
        **{number: found.bytes.value for number, found in resources.channels.items()},
    }


def live(cloud: Mortal, until: Callable[[Family], None]) -> Iterator[None]:
    """Step by step; a step in which the broker is killed is done once more."""
    for step in LIFE:
        try:
            step(cloud)
        except Killed:
            cloud.kill_broker()
            cloud.start()
            cloud.join()
            yield
            step(cloud)
        if step is until:
            cloud.advance(cloud.settings.confirm_within_ns)
            return


def writes_until(step: Callable[[Family], None]) -> int:
    cloud = born()
    list(live(cloud, step))
    return cloud.writes


@pytest.mark.parametrize("step", LIFE, ids=lambda step: step.__name__)
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
def test_a_kill_at_any_write_of_a_step_leads_to_the_same_state(
    step: Callable[[Family], None], *, is_written: bool
) -> None:
    whole = born()
    list(live(whole, step))
    expected = state(whole)
    at = LIFE.index(step)
    first = writes_until(LIFE[at - 1]) if at else 0
    writes = range(first + 1, whole.writes + 1)
    assert writes
    for number in writes:
        cloud = born()
        cloud.dies_at, cloud.is_written = number, is_written
        assert len(list(live(cloud, step))) == 1, f"write {number} was never made"
        assert state(cloud) == expected, f"killed at write {number}"


def test_a_snapshot_at_any_step_restores_the_same_state() -> None:
    for step in LIFE:
        cloud = born()
        list(live(cloud, step))
        expected = state(cloud)
        cloud.journal[:] = cloud.broker.snapshot()
        cloud.kill_broker()
        cloud.start()
        cloud.join()
        cloud.advance(cloud.settings.confirm_within_ns)
        assert state(cloud) == expected, step.__name__


def test_after_a_join_the_parent_hears_all_that_is_held() -> None:
    cloud = family()
    cloud.reserve("c9#1", entries=ENTRIES, exits=EXITS)
    cloud.reserve("c9#2", entries=ENTRIES, exits=EXITS)
    cloud.commit("c9#1")
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    (word,) = cloud.heard(SegmentsHeld)[1:]
    held = {(one.contract, one.generation): one.is_committed for one in word.held}
    assert held == {("c9#1", 0): True, ("c9#2", 0): False}
    assert len(cloud.heard(Reserved)) == 2
