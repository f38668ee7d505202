"""What a broker says to its children, watched from outside: commits, releases and rounds.

- A commit that is not confirmed is sent again, within the time of the broker's settings.
- A segment is asked for only when no release of the same key is open at that child: the answer to
  an earlier round closes nothing.
- A release that is not answered is sent again, or the child's list shows that nothing is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.net.command.segment_messages import (
    Commit,
    Release,
    Released,
    Reserve,
    SegmentBroken,
    SegmentsHeld,
    SegmentUp,
)
from lab.simulation.world import NS_PER_S, PropertyBroken

if TYPE_CHECKING:
    from lab.simulation.tree.broker_node import TreeBrokerNode
    from lab.simulation.tree.grid import TreeGrid

AGAIN: Final = "an unconfirmed commit is sent again"
ROUNDS: Final = "releases are closed by the answer to their own round"
RELEASED: Final = "an unanswered release is sent again"
LATE_NS: Final = NS_PER_S // 2
"""Time that a check may come after the moment it looks at."""
RETRIES_APART: Final = 32


class Key(NamedTuple):
    """A segment at a child."""

    child: str
    contract: str
    generation: int


class Told(NamedTuple):
    """A message that waits for its answer: when it was sent last, and its round."""

    at_ns: int
    round: int = 0
    first_ns: int = 0


class Talk:
    """Open commits and releases of one broker's process."""

    def __init__(self, node: TreeBrokerNode) -> None:
        self._node = node
        self._process = node.process
        self._commits: dict[Key, Told] = {}
        self._releases: dict[Key, Told] = {}

    def _begin(self) -> None:
        """Forget what another process has said."""
        if self._node.process != self._process:
            self._process = self._node.process
            self._commits.clear()
            self._releases.clear()

    def sent(self, peer: str, message: object) -> None:
        """Note a message to a child, and whether it may be sent."""
        self._begin()
        child, now_ns = peer.partition("/")[2], self._node.world.now_ns
        match message:
            case Commit(contract=contract, generation=generation):
                key = Key(child, contract, generation)
                self._commits[key] = Told(now_ns)
            case Release(contract=contract, generation=generation, round=round_):
                key = Key(child, contract, generation)
                self._commits.pop(key, None)
                before = self._releases.get(key)
                first_ns = now_ns if before is None else before.first_ns
                self._releases[key] = Told(now_ns, round_, first_ns)
            case Reserve(contract=contract, generation=generation):
                key = Key(child, contract, generation)
                if key in self._releases:
                    raise PropertyBroken(
                        ROUNDS, f"{self._node.name} asks {key} while it releases it"
                    )
            case _:
                pass

    def received(self, peer: str, message: object) -> None:
        """Note the answer of a child."""
        self._begin()
        child = peer.partition("/")[2]
        match message:
            case SegmentUp() | SegmentBroken():
                self._commits.pop(Key(child, message.contract, message.generation), None)
            case Released(contract=contract, generation=generation, round=round_):
                key = Key(child, contract, generation)
                told = self._releases.get(key)
                if told is not None and round_ in {0, told.round}:
                    del self._releases[key]
            case SegmentsHeld():
                self._forget(child)
            case _:
                pass

    def _forget(self, child: str) -> None:
        """Forget a child that has joined anew: whatever it lacks is told again."""
        for told in (self._commits, self._releases):
            for key in [key for key in told if key.child == child]:
                del told[key]

    def check(self) -> None:
        """Check that nothing has waited for too long, at children that have joined."""
        node = self._node
        self._begin()
        broker = node.broker
        if not isinstance(broker, QosBroker) or node.is_paused or not node.is_up:
            return
        settings = node.settings_above
        assert settings is not None
        within_ns = settings.up_within_ns * max(1, broker.state.families.height)
        now_ns = node.world.now_ns
        joined = broker.parts.context.joined
        for key, told in self._commits.items():
            if key.child not in joined:
                continue
            is_held = broker.state.holdings.find(key.contract, key.generation) is not None
            if is_held and now_ns - told.at_ns > within_ns + LATE_NS:
                raise PropertyBroken(
                    AGAIN, f"{node.name} has told {key} {(now_ns - told.at_ns) / NS_PER_S} s ago"
                )
        for key, told in self._releases.items():
            if key.child not in joined:
                continue
            waited_ns = told.at_ns - told.first_ns
            apart_ns = max(settings.retry_after_ns, 2 * waited_ns)
            longest_ns = min(apart_ns, RETRIES_APART * settings.retry_after_ns)
            if now_ns - told.at_ns > longest_ns + settings.retry_after_ns + LATE_NS:
                raise PropertyBroken(
                    RELEASED, f"{node.name} has told {key} {(now_ns - told.at_ns) / NS_PER_S} s ago"
                )


def check_talk(grid: TreeGrid) -> None:
    for node in grid.brokers.values():
        node.talk.check()
