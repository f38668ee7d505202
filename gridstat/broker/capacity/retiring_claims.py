"""Claims of replaced paths that the routers still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Claim, Resources

UNASSIGNED: Final = -1
"""Generation of claims whose change is decided, but has no generation number yet."""


class RetiringClaims:
    """Claims of replaced paths, charged until the routers have torn those paths down.

    Changes may overlap: a second change comes while the old paths of the first are still up, or a
    path fails during a change of period. Claims are therefore kept by the generation that retires
    them.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._claims: dict[int, dict[int, list[Claim]]] = {}

    def charge(
        self, subscription_id: int, claims: tuple[Claim, ...], generation: int = UNASSIGNED
    ) -> None:
        """Charge the claims of paths that are still on the routers, until `release`."""
        self._resources.take(claims)
        found = self._claims.setdefault(subscription_id, {})
        found.setdefault(generation, []).extend(claims)

    def assign(self, subscription_id: int, generation: int) -> None:
        """Assign the claims of the latest changes to the generation that retires them."""
        found = self._claims.get(subscription_id, {})
        claims = found.pop(UNASSIGNED, None)
        if claims is not None:
            found.setdefault(generation, []).extend(claims)

    def release(self, subscription_id: int, *generations: int) -> bool:
        """Release the claims that these generations retire, or all claims if none is given.

        Return whether there were any.
        """
        found = self._claims.get(subscription_id, {})
        before = len(found)
        for generation in generations or tuple(found):
            self._resources.give_back(found.pop(generation, ()))
        if not found:
            self._claims.pop(subscription_id, None)
        return len(found) < before

    def of(self, subscription_id: int) -> dict[int, tuple[Claim, ...]]:
        """Return the retiring claims of a contract, by generation."""
        found = self._claims.get(subscription_id, {})
        return {generation: tuple(claims) for generation, claims in found.items()}
