"""Random operations and failures in a tree: in any order, all brokers agree in the end."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.model.rate_law import NS_PER_S
from lab.simulation.tree.properties.records import check_readable
from tests.unit.broker.tree.worlds import deep_tree, inconsistencies, residue

if TYPE_CHECKING:
    from tests.unit.broker.tree.cloud_stand_in import CloudStandIn

STEPS = 40
PAUSE_SHARE = 0.2


class Life:
    """A tree, chance, and what its subscribers want at present."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = deep_tree(bandwidth_bytes_per_s=12_000)
        self.wanted: dict[str, int] = {}
        self.number = 0
        self.down: set[tuple[str, int]] = set()

    def step(self) -> None:
        happen = self.random.choice(
            [self.subscribe] * 4
            + [self.change, self.end, self.kill, self.cut, self.heal, self.silence, self.speak]
        )
        happen()
        for _ in range(self.random.choice([0, 1, 3, 10, 100])):
            self.world.step()
        if self.random.random() < PAUSE_SHARE:
            self.world.advance(self.random.choice([NS_PER_S // 10, 3 * NS_PER_S]))

    def subscribe(self) -> None:
        one, other = self.random.sample(sorted(self.world.clouds), 2)
        self.number += 1
        redundancy = self.random.choice([1, 2])
        contract = self.world.subscribe(
            f"{one}/d{self.number % 3}", f"{other}/pmu/v", self.number, redundancy=redundancy
        )
        self.wanted[contract] = 0

    def change(self) -> None:
        ready = [
            contract
            for contract in self.wanted
            if contract in self.cloud(contract).granted
            and contract not in self.cloud(contract).asked
        ]
        if ready:
            contract = self.random.choice(ready)
            known = self.cloud(contract).granted[contract]
            self.wanted[contract] = known.generation + 1
            number = int(contract.partition("#")[2])
            self.world.subscribe(
                f"{self.cloud(contract).name}/d{number % 3}",
                known.variable.name,
                number,
                known.generation + 1,
                redundancy=self.random.choice([1, 2]),
            )

    def end(self) -> None:
        if self.wanted:
            contract = self.random.choice(sorted(self.wanted))
            del self.wanted[contract]
            self.world.end(contract)

    def kill(self) -> None:
        self.world.kill(self.random.choice(sorted({*self.world.brokers, *self.world.clouds})))

    def cut(self) -> None:
        child = self.random.choice(sorted(self.world.parents.keys() - {"root"}))
        self.world.cut.add(child)
        self.world.disconnect(child)

    def heal(self) -> None:
        self.world.cut.clear()

    def silence(self) -> None:
        cloud = self.world.clouds[self.random.choice(sorted(self.world.clouds))]
        if cloud.open_channels:
            number = self.random.choice(sorted(cloud.open_channels))
            self.down.add((cloud.name, number))
            cloud.tell_channel(number, is_up=False)
            self.world.say(cloud.name)

    def speak(self) -> None:
        for name, number in self.down:
            self.world.clouds[name].tell_channel(number, is_up=True)
            self.world.say(name)
        self.down.clear()

    def cloud(self, contract: str) -> CloudStandIn:
        return self.world.clouds[contract.partition("#")[0]]

    def come_to_rest(self) -> None:
        self.heal()
        self.world.rest()
        self.speak()
        self.world.rest()


@pytest.mark.parametrize("seed", [*range(12), 81])
def test_random_operations_end_in_a_state_that_all_agree_on(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.come_to_rest()
    world = life.world
    assert world.closed == []
    assert inconsistencies(world) == []
    for contract in life.wanted:
        cloud = life.cloud(contract)
        assert contract not in cloud.asked, f"{contract} is unanswered"
        assert contract in cloud.granted or contract in cloud.refused, contract
    for name, process in world.brokers.items():
        check_readable(name, process.machine, process.written)
        check_readable(name, process.machine, process.machine.snapshot())
    held = {key[0] for cloud in world.clouds.values() for key in cloud.segments}
    granted = {contract for cloud in world.clouds.values() for contract in cloud.granted}
    assert held == granted
    assert granted <= set(life.wanted)
    for contract in granted:
        world.end(contract)
    world.rest()
    assert residue(world) == []
