"""Compaction of a broker's journal: what it writes leads to the state that all before it led to.

Real journals are compacted after 100,000 operations. Here some processes are made to take theirs
for so long, and for some of all compactions two brokers are restored and compared: one from the
journal as it was, and one from the compacted one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from gridstat.broker.leaf_broker import LeafBroker
from lab.simulation.state_image import image
from lab.simulation.world import NS_PER_MS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gridstat.broker.tree.qos_broker import QosBroker

RULE: Final = "a compacted journal says what the one before it said"
OPERATIONS_MANY: Final = 1_000_000
TIMES_MAX: Final = 3
ANSWERS: Final = ".answer_cache."
VOLATILE: Final = frozenset(
    {
        "_capabilities",
        "_costs",
        "_interned_tuples",
        "_totals",
        "carriage",
        "costs",
        "generation",
        "layout_version",
        "size_bytes",
        "version",
    }
)
"""Fields that hold no durable state; the totals of `carriage` are compared apart.

A `generation` names a step of a move within one process; records have theirs apart from it.
"""


class Restorable(Protocol):
    """A broker that has not started yet."""

    def restore(self, written: Sequence[bytes]) -> None: ...


def draw_compactions(random: Random, chaos_ns: int) -> tuple[int, ...]:
    """Draw the times at which a journal is long enough to be compacted."""
    count = random.randint(1, TIMES_MAX)
    return tuple(sorted(random.randint(500 * NS_PER_MS, chaos_ns) for _ in range(count)))


def make_long(broker: Any) -> None:  # noqa: ANN401 — leaf brokers and others keep this count alike.
    """Let a broker take its journal for so long that its next event compacts it."""
    broker._context._since_snapshot = OPERATIONS_MANY  # noqa: SLF001 — no seed lives so long.


def check_compaction(
    name: str,
    make: Callable[[], Restorable],
    before: Sequence[bytes],
    compacted: Sequence[bytes],
) -> None:
    """Check that both journals restore the same broker."""
    images = []
    for written in (before, compacted):
        broker = make()
        broker.restore(written)
        images.append(image(_state(broker), without=VOLATILE))
    earlier, later = images
    if earlier == later:
        return
    for key in sorted(earlier.keys() | later.keys()):
        if ANSWERS in key and key not in earlier:
            continue  # Answers that need not survive a restart are kept where that is free.
        if key.endswith("_id_last") and int(earlier[key]) <= int(later[key]):
            continue  # A number that was tried, and then refused, need not be given again.
        if earlier.get(key) != later.get(key):
            raise PropertyBroken(
                RULE, f"{name}: {key} was {earlier.get(key)} and is {later.get(key)}"
            )


def _state(broker: Any) -> object:  # noqa: ANN401 — as above.
    if isinstance(broker, LeafBroker):
        return _state_of_a_leaf(broker)
    return _state_above_clouds(broker)


def _state_of_a_leaf(broker: LeafBroker) -> object:
    wanted = {name: broker.tables[name].wanted for name in broker.registry.routers}
    rules = list(broker.permissions.rules), broker.permissions.is_enforced
    resources = broker.reservations.resources
    loads = (
        {name: found.events.value for name, found in resources.routers.items()},
        {number: found.bytes.value for number, found in resources.channels.items()},
    )
    floods = dict(broker.floods.variables), dict(broker.floods.listeners)
    return broker.registry, floods, rules, loads, wanted


def _state_above_clouds(broker: QosBroker) -> object:
    accounts = broker.state.channels.accounts
    loaded = {number: account.carriage.bytes.value for number, account in accounts.items()}
    return broker.state, broker.parts.flooding.floods, loaded
