"""Routers that paths of a variable avoid, as their tables had no room for it."""

from __future__ import annotations


class AvoidedRouters:
    """Routers, by variable, whose cores cannot hold the variable's row; paths avoid them.

    A router stays listed for a while after the refused row was removed.
    """

    def __init__(self) -> None:
        self._routers: dict[int, set[str]] = {}
        self.counts: dict[tuple[str, int], int] = {}
        """Number of times that a refused row was removed from a router; entries expire."""

    def of(self, variable_id: int) -> frozenset[str]:
        return frozenset(self._routers.get(variable_id, ()))

    def mark(self, router: str, variable_id: int) -> bool:
        """List a router; return whether it was not listed before."""
        found = self._routers.setdefault(variable_id, set())
        is_new = router not in found
        found.add(router)
        return is_new

    def clear(self, router: str, variable_id: int) -> bool:
        """Remove a router; return whether it was listed."""
        found = self._routers.get(variable_id, set())
        is_new = router in found
        found.discard(router)
        if not found:
            self._routers.pop(variable_id, None)
        return is_new

    def clear_router(self, router: str) -> None:
        """Remove a router that has a new core, or none."""
        for variable_id in list(self._routers):
            self.clear(router, variable_id)
        self.counts = {key: count for key, count in self.counts.items() if key[0] != router}
