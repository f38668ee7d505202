"""Cost of a contract at a root: work that does not grow with the clouds, and little memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

from gridstat.model.rate_law import NS_PER_S
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import Process, TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import two_clouds

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from gridstat.net.command.machine import Event, Instruction

    Handle = Callable[[Event, int], list[Instruction]]

CONTRACT_BYTES_MAX = 1_500
GROWTH_MAX = 1.15


def _ring(count: int) -> TreeWorld:
    """Every cloud has channels to the next and to the seventh after it."""
    names = [f"c{at}" for at in range(count)]
    channels = [
        found
        for at, name in enumerate(names)
        for index, step in enumerate((1, 7))
        for found in both_ways(f"{name}/o{index}", f"{names[(at + step) % count]}/i{index}")
    ]
    clouds = [CloudStandIn(name, "root") for name in names]
    for number, cloud in enumerate(clouds, start=1):
        cloud.variables[f"{cloud.name}/pmu/v"] = variable(f"{cloud.name}/pmu/v", number)
    world = TreeWorld({"root": ("", names, channels)}, clouds).start()
    world.advance(3 * NS_PER_S)
    return world


class _Steps:
    """Counts what the interpreter executes: every turn of a loop, of a comprehension too."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += 1
        return self.trace

    def counted(self, handle: Handle) -> Handle:
        """The same function, whose steps are counted."""

        def call(event: Event, now_ns: int) -> list[Instruction]:
            before = sys.gettrace()
            sys.settrace(self.trace)
            try:
                return handle(event, now_ns)
            finally:
                sys.settrace(before)

        return call


def _steps_per_contract(clouds: int, also: Callable[[TreeWorld], None] | None = None) -> float:
    """Return the executed steps of a root; `also` runs beside every event."""
    world = _ring(clouds)
    pairs = [(at, (at + 2) % clouds) for at in range(0, 20, 2)]
    steps = _Steps()
    machine = world.brokers["root"].machine
    plain = machine.handle

    def handle(event: Event, now_ns: int) -> list[Instruction]:
        if also is not None:
            also(world)
        return plain(event, now_ns)

    counted = steps.counted(handle)
    for number in range(1, 4):
        if number > 1:  # The first time each pair of clouds is looked at.
            machine.handle = counted  # type: ignore[method-assign, assignment]
        for publisher, subscriber in pairs:
            world.subscribe(f"c{subscriber}/d", f"c{publisher}/pmu/v", number, redundancy=2)
            world.settle()
            assert f"c{subscriber}#{number}" in world.clouds[f"c{subscriber}"].granted
    return steps.count / (2 * len(pairs))


def test_the_work_for_a_contract_does_not_grow_with_the_number_of_clouds() -> None:
    few, many = _steps_per_contract(24), _steps_per_contract(192)
    assert many < GROWTH_MAX * few


def test_a_comprehension_over_all_clouds_would_be_seen() -> None:
    def look_at_all(world: TreeWorld) -> None:
        found = [name for name in world.clouds if not name]
        assert not found

    few, many = (_steps_per_contract(clouds, look_at_all) for clouds in (24, 192))
    assert many > GROWTH_MAX * few


def test_a_root_holds_a_contract_in_little_memory() -> None:
    world = two_clouds()
    count = 400
    for number in range(1, count + 1):
        name = f"c1/pmu/v{number}"
        world.clouds["c1"].variables[name] = variable(name, 1_000 + number)
        world.subscribe(f"c2/d{number % 20}", name, number, redundancy=2)
        world.settle()
    assert len(world.clouds["c2"].granted) == count
    root = world.brokers["root"]
    process = Process(root.settings, root.children, root.channels)
    gc.collect()
    tracemalloc.start()
    try:
        process.machine.restore(root.written)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count < CONTRACT_BYTES_MAX
