"""What changes of contracts have left behind: on the routers until it is retired, and so charged.

Changes may overlap: a second one comes while the first's old paths are still up, or a path fails
during a change of period. So claims leave by the generation that retires them, each in its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gridstat.broker.capacity.claims import Claim
    from gridstat.broker.capacity.resources import Resources

UNNAMED: Final = -1
"""Stands for the generation of a change that is decided, and has none yet."""


class Leaving:
    """Every claim in here is taken from the resources, and given back when it goes."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._claims: dict[int, dict[int, list[Claim]]] = {}

    def charge(
        self, subscription_id: int, claims: tuple[Claim, ...], generation: int = UNNAMED
    ) -> None:
        """Charge what is still on the routers, until it is settled."""
        self._resources.take(claims)
        found = self._claims.setdefault(subscription_id, {})
        found.setdefault(generation, []).extend(claims)

    def name(self, subscription_id: int, generation: int) -> None:
        """What the last decisions left behind goes when this generation retires it."""
        found = self._claims.get(subscription_id, {})
        claims = found.pop(UNNAMED, None)
        if claims is not None:
            found.setdefault(generation, []).extend(claims)

    def settle(self, subscription_id: int, *generations: int) -> None:
        """Give back what these generations retire, or everything if none is named."""
        found = self._claims.get(subscription_id, {})
        for generation in generations or tuple(found):
            self._resources.give_back(found.pop(generation, ()))
        if not found:
            self._claims.pop(subscription_id, None)

    def of(self, subscription_id: int) -> dict[int, tuple[Claim, ...]]:
        """What is charged beside a contract, by generation."""
        found = self._claims.get(subscription_id, {})
        return {generation: tuple(claims) for generation, claims in found.items()}
