"""Terms of brokers: a broker that knows a newer term never returns to an older one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from lab.simulation.tree.grid import TreeGrid

RULE: Final = "terms only grow"


class Terms:
    """Highest term of each broker that every other broker was seen to know."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], int] = {}

    def journal_lost(self, name: str) -> None:
        """Forget what a broker knew of others; its own term grows still."""
        for who, whom in [key for key in self._highest if key[0] == name]:
            if whom != "itself":
                del self._highest[who, whom]

    def check(self, grid: TreeGrid) -> None:
        """Check brokers whose journals are written; unwritten terms may be forgotten."""
        settled = {name for name, node in grid.brokers.items() if node.journal.is_idle}
        for name, leaf in grid.leaves().items():
            if name not in settled:
                continue
            parent = grid.brokers[name].plan.parent
            self._see(name, _parent(parent), leaf.registry.tree.term_of(parent))
            self._see(name, "itself", leaf.registry.term)
        for name, broker in grid.qos_brokers().items():
            state = broker.state
            if name not in settled:
                continue
            self._see(name, "itself", state.term)
            if state.placed is not None:
                self._see(name, _parent(grid.brokers[name].plan.parent), state.placed.term)
            for child, found in state.families.children.items():
                self._see(name, child, found.term)

    def _see(self, who: str, whom: str, term: int) -> None:
        before = self._highest.get((who, whom), 0)
        if term < before:
            raise PropertyBroken(RULE, f"{who} takes {whom} for {term} after {before}")
        self._highest[who, whom] = term


def _parent(name: str) -> str:
    """Return the key of a broker's parent, which counts its own terms."""
    return f"its parent {name}"
