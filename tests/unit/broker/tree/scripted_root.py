"""A root whose messages a test sends one by one, above a broker with two clouds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.model.qos import Qos
from gridstat.net.command.machine import Received
from gridstat.net.command.segment_messages import Gate, Reserve, Reserved
from gridstat.net.command.tree_messages import JoinTree, TreeJoined, WantBorders
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE

if TYPE_CHECKING:
    from gridstat.net.command.machine import Event
    from gridstat.net.command.messages import Message


@dataclass
class ScriptedRoot:
    """Root with the one child west; `heard` are west's answers to Reserve."""

    name: str = "root"
    parent: str = "west"
    heard: list[Message] = field(default_factory=list)
    segments: dict[tuple[str, int], Message] = field(default_factory=dict)
    is_silent: bool = False

    def handle(self, event: Event) -> list[Message]:
        match event:
            case Received(message=JoinTree()) if not self.is_silent:
                return [
                    TreeJoined(term=1, depth=1, above=("root",)),
                    WantBorders(term=1, routers=("c2/r0",)),
                ]
            case Received(message=Reserved() as word):
                self.heard.append(word)
        return []


def below_scripted_root(*, is_silent: bool = False) -> tuple[TreeWorld, ScriptedRoot]:
    root = ScriptedRoot(is_silent=is_silent)
    channels = [*both_ways("c1/w0", "c2/w0"), *both_ways("c1/w1", "c2/w1")]
    clouds = [CloudStandIn("c1", "west"), CloudStandIn("c2", "west"), root]
    world = TreeWorld({"west": ("root", ("c1", "c2"), channels)}, clouds)  # type: ignore[arg-type]
    world.start()
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return world, root


def ask(world: TreeWorld, contract: str, every: int = 1, question: int = 0) -> None:
    """Request, as the root, a way from c1 out by its channel at c2."""
    world.post(
        "root",
        "west",
        Reserve(
            term=1,
            contract=contract,
            generation=0,
            variable=variable(VOLTAGE, 1),
            granted={0: Qos(every=every, latency_us=1_000_000, redundancy=1, priority=3)},
            exits=(Gate(router="c2/r0", channel_id=1 << 31 | 1),),
            round=question,
        ),
    )


def hold_up(world: TreeWorld, cloud: str) -> None:
    """Run until a Reserve is sent to a cloud, which does not receive it."""
    for _ in range(10_000):
        world.step()
        if any(isinstance(word, Reserve) and to == cloud for _, to, word in world.queue):
            world.clouds[cloud].is_silent = True
            world.settle()
            return
    raise AssertionError("no Reserve")


def let_go(world: TreeWorld, cloud: str) -> None:
    world.clouds[cloud].is_silent = False
    world.disconnect(cloud)
    world.settle()
