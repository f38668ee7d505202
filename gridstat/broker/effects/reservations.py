"""Reservations of the registry's contracts: held, moved and released as operations demand.

A live decision reserves before its operation is applied; a replay reserves when the operation is
applied. Both result in the same claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.path_cache import ALL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.capacity.allocation import (
        AllocatedPath,
        Allocation,
        AllocationRequest,
        Refusal,
    )
    from gridstat.broker.capacity.allocator import Allocator
    from gridstat.broker.capacity.band_planning import Room
    from gridstat.broker.capacity.identity_shares import IdentityShares
    from gridstat.broker.capacity.resources import Claim, LoadChange, Resources
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.model.status import StatusVariable


class Reservations:
    """Reservations of exactly the live subscriptions, held by the allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    @property
    def resources(self) -> Resources:
        return self.allocator.resources

    # Topology and publications.

    def add_router(self, router: Router) -> None:
        self.resources.add_router(router)

    def remove_router(self, name: str) -> None:
        self.resources.remove_router(name)

    def add_channel(self, channel: EventChannel) -> None:
        self.resources.add_channel(channel)

    def remove_channel(self, channel_id: int) -> None:
        self.resources.remove_channel(channel_id)

    def set_ip_version(self, router: str, *, is_ipv6: bool) -> None:
        self.resources.set_ip_version(router, is_ipv6=is_ipv6)

    def publish(self, variable: StatusVariable, edges: Iterable[str]) -> None:
        self.resources.publish(variable, self._known(edges))

    def unpublish(self, variable: StatusVariable, edges: Iterable[str]) -> None:
        self.resources.unpublish(variable, self._known(edges))
        self.allocator.version += 1

    def is_loaded(self, element: int | str) -> bool:
        """Return whether anything is charged to a channel or router, also retiring claims."""
        if isinstance(element, str):
            return bool(self.resources.router(element).events)
        return bool(self.resources.channel(element).streams)

    # Claims that belong to no contract.

    def take(self, claims: Iterable[Claim]) -> LoadChange:
        """Charge the claims, whether they fit or not."""
        return self.resources.take(claims)

    def give_back(self, claims: Iterable[Claim]) -> None:
        self.resources.give_back(claims)
        self.allocator.version += 1

    # Contracts.

    def begin_turn(self, left_s: float = ALL_S) -> None:
        """Bound the time of all path searches until `end_turn`, of however many contracts."""
        self.allocator.begin_turn(left_s)

    def end_turn(self) -> int:
        """Return how many nanoseconds the path searches took since `begin_turn`."""
        return self.allocator.end_turn()

    def allocate(
        self, request: AllocationRequest, *, replaces: int = 0, is_kept: bool = False
    ) -> Allocation | Refusal:
        return self.allocator.allocate(request, replaces=replaces, is_kept=is_kept)

    def change(self, request: AllocationRequest, *, is_kept: bool = False) -> Allocation | Refusal:
        return self.allocator.change(request, is_kept=is_kept)

    def make_room(
        self, request: AllocationRequest, may_lower: Callable[[int], bool], *, replaces: int = 0
    ) -> Room | None:
        return self.allocator.make_room(request, may_lower, replaces=replaces)

    @property
    def shares(self) -> IdentityShares:
        """Return the books of what identities use of the channels."""
        return self.allocator.shares

    def replace_path(
        self, request: AllocationRequest, index: int, avoiding_routers: Iterable[str] = ()
    ) -> Allocation | Refusal:
        return self.allocator.replace_path(
            request.subscription_id,
            index,
            avoiding_routers=avoiding_routers,
            ends=(request.sources, request.targets),
        )

    def has_elements_of(self, paths: Iterable[AllocatedPath]) -> bool:
        """Return whether the cloud has all routers and channels of these paths."""
        routers, channels = self.resources.routers.keys(), self.resources.channels.keys()
        return all(
            routers >= set(path.routers) and channels >= set(path.channel_ids) for path in paths
        )

    def holds(self, subscription_id: int) -> bool:
        """Return whether a decision has reserved the contract already; a replay has not."""
        return subscription_id in self.allocator.contracts

    def adopt(self, contract: Allocation) -> None:
        """Hold a contract, unless the decision that granted it holds it already."""
        if not self.holds(contract.subscription_id):
            self.allocator.restore(contract)

    def move(self, contract: Allocation, generation: int, *, is_in_place: bool = False) -> None:
        """Hold this contract instead of the previous one, unless a decision has done so.

        The claims of the previous paths are charged until this generation is retired, unless the
        rate was changed in place.
        """
        held = self.allocator.contracts.get(contract.subscription_id)
        if held is None or _differs(held, contract):
            self.allocator.supersede(contract, is_in_place=is_in_place)
        self.allocator.retiring.assign(contract.subscription_id, generation)

    def revert_change(self, contract: Allocation, generation: int) -> None:
        """Revert a move to this generation that failed, and hold the previous contract."""
        self.allocator.revert_change(contract, generation)

    def release_retired(self, subscription_id: int, generation: int) -> None:
        """Release the claims that this generation has replaced, which no router holds any more."""
        self.allocator.release_retired(subscription_id, generation)

    def retiring_claims(self, subscription_id: int) -> dict[int, tuple[Claim, ...]]:
        return self.allocator.retiring.of(subscription_id)

    def restore_released(
        self, contract: Allocation, retiring: dict[int, tuple[Claim, ...]]
    ) -> None:
        """Revert a release that failed: hold the contract and its retiring claims again."""
        self.adopt(contract)
        for generation, claims in retiring.items():
            self.allocator.retiring.charge(contract.subscription_id, claims, generation)

    def release(self, subscription_id: int) -> None:
        if subscription_id in self.allocator.contracts:
            self.allocator.release(subscription_id)

    def _known(self, edges: Iterable[str]) -> list[str]:
        return [edge for edge in edges if edge in self.resources.routers]


def _differs(held: Allocation, contract: Allocation) -> bool:
    """Return whether a contract has other paths, or was asked for in another way.

    A change of the band alone keeps paths and grant, and what is planned later needs the new band.
    """
    before, after = held.request, contract.request
    return (
        held.paths != contract.paths
        or held.granted != contract.granted
        or before.variable != after.variable
        or before.qos != after.qos
        or before.sources != after.sources
        or before.targets != after.targets
    )
