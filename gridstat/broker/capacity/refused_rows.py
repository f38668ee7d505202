"""Which routers' cores cannot hold the row of a variable: its paths go round them if they can."""

from __future__ import annotations


class RefusedRows:
    """A router stands here while it refuses a row, and for a while after the row has gone."""

    def __init__(self) -> None:
        self._routers: dict[int, set[str]] = {}
        self.counts: dict[tuple[str, int], int] = {}
        """How often a row has gone from a router that refused it; forgotten after a good while."""

    def of(self, variable_id: int) -> frozenset[str]:
        return frozenset(self._routers.get(variable_id, ()))

    def mark(self, router: str, variable_id: int) -> bool:
        """Whether that was news."""
        found = self._routers.setdefault(variable_id, set())
        is_new = router not in found
        found.add(router)
        return is_new

    def clear(self, router: str, variable_id: int) -> bool:
        """Whether that was news."""
        found = self._routers.get(variable_id, set())
        is_new = router in found
        found.discard(router)
        if not found:
            self._routers.pop(variable_id, None)
        return is_new

    def clear_router(self, router: str) -> None:
        """The router has another core, or none."""
        for variable_id in list(self._routers):
            self.clear(router, variable_id)
        self.counts = {key: count for key, count in self.counts.items() if key[0] != router}
