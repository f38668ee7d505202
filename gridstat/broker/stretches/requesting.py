"""What a parent wants reserved, as a request to this cloud's own allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.contracts import AllocationRequest, Refusal, routers_at
from gridstat.broker.effects.contract_effects import uses_its_gates
from gridstat.broker.records.tree_state import contract_number
from gridstat.broker.requests.identifier_check import check_identifier
from gridstat.broker.requests.subscriptions import sources_of, targets_of
from gridstat.broker.sharing import same, same_qos
from gridstat.broker.tables.orders import TERMS_MAX, terms_of
from gridstat.model.errors import (
    LayoutError,
    NoSuchChannel,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    RedundancyNotSatisfiable,
)
from gridstat.model.qos import (
    LATENCY_US_MAX,
    PRIORITY_MAX,
    REDUNDANCY_MAX,
    ModalQos,
    Qos,
    QosRequest,
    check_modes_defined,
)

if TYPE_CHECKING:
    from gridstat.broker.desk import Desk
    from gridstat.broker.records.operations import Subscribed
    from gridstat.net.command.stretch_messages import Gate, Reserve


class Requesting:
    """Nothing is changed here; what is not as the parent believes is said."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def request(self, word: Reserve) -> AllocationRequest:
        """Raises what stands against it."""
        registry = self._desk.registry
        self._check_modes(word)
        counts = {len(gates) for gates in (word.entries, word.exits) if gates}
        if len(counts) != 1 or not 1 <= max(counts) <= REDUNDANCY_MAX:
            raise LayoutError("a stretch enters or leaves by 1 to 4 gates, by as many as it has")
        entries = self._gates(word.entries, is_entry=True)
        exits = self._gates(word.exits, is_entry=False)
        if entries:
            check_identifier(registry, self._desk.reservations.resources, word.variable)
            sources = routers_at(entries)
        else:
            publication = registry.publications.get(word.variable.name)
            if publication is None or publication.variable != word.variable:
                raise NoSuchVariable(f"nobody publishes {word.variable.name} as it was")
            sources = sources_of(registry, publication)
        targets = routers_at(exits) if exits else self._targets(word)
        return AllocationRequest(
            subscription_id=registry.subscription_id_last + 1,
            variable=word.variable,
            sources=same(sources),
            targets=same(targets),
            qos=self._quality(word.granted, max(counts)),
            subscriber="" if exits else word.subscriber,
            entries=entries,
            exits=exits,
        )

    def _check_modes(self, word: Reserve) -> None:
        """Refuse undefined modes, but for a contract of an older release that is planned anew.

        The replaced generation tells its modes. Where this cloud holds nothing of it, its owner is
        believed.
        """
        modes = set(word.granted)
        if word.replaces >= 0:
            registry = self._desk.registry
            number = registry.tree.stretch(word.contract, word.replaces)
            held = registry.subscriptions.get(number)
            modes = set() if held is None else modes - held.record.granted.keys()
        check_modes_defined(modes, self._desk.settings.modes_defined)

    def is_met(self, record: Subscribed, word: Reserve) -> bool:
        """Whether a stretch that is held is what is asked; the parent may be in another life."""
        counts = max(len(word.entries), len(word.exits))
        return (
            record.name == word.variable.name
            and record.foreign in {None, word.variable}
            and record.subscriber == ("" if word.exits else word.subscriber)
            and record.qos == self._quality(word.granted, counts)
            and set(record.entries) == {(gate.router, gate.channel_id) for gate in word.entries}
            and set(record.exits) == {(gate.router, gate.channel_id) for gate in word.exits}
        )

    def _gates(self, gates: tuple[Gate, ...], *, is_entry: bool) -> tuple[tuple[str, int], ...]:
        if len({gate.channel_id for gate in gates}) < len(gates):
            raise LayoutError("a stretch enters and leaves by each gate once")
        for gate in gates:
            border = self._desk.registry.tree.borders.get(gate.channel_id)
            end = "" if border is None else border.channel.from_router
            if border is not None and is_entry:
                end = border.channel.to_router
            if end != gate.router or gate.router not in self._desk.registry.routers:
                raise NoSuchChannel(f"no channel {gate.channel_id} is open at {gate.router}")
        return same(tuple((gate.router, gate.channel_id) for gate in gates))

    def _targets(self, word: Reserve) -> tuple[str, ...]:
        registry = self._desk.registry
        number = contract_number(registry.cloud, word.contract)
        asked = registry.tree.asked.get(number)
        if asked is None or asked.is_ending or asked.record.subscriber != word.subscriber:
            raise NoSuchSubscription(f"{word.subscriber} does not wait for {word.contract}")
        endpoint = registry.endpoints.get(word.subscriber)
        if endpoint is None:
            raise NotAttached(f"{word.subscriber} is not attached to cloud {registry.cloud}")
        return targets_of(endpoint)

    def _quality(self, granted: dict[int, Qos], paths: int) -> ModalQos:
        """One definite quality, with what end-points take added to its latency.

        All modes use all paths: which of them is the first is not the same in every cloud.
        """
        ends_us = self._desk.reservations.resources.ends_us
        asked = ModalQos(
            {
                mode: QosRequest(
                    every=qos.every,
                    latency_us=min(qos.latency_us + ends_us, LATENCY_US_MAX),
                    redundancy=paths,
                    priority=min(qos.priority, PRIORITY_MAX),
                )
                for mode, qos in granted.items()
            }
        )
        return same_qos(asked)


def unfit(record: Subscribed) -> Refusal | None:
    """Why paths that were found cannot be a stretch."""
    if not uses_its_gates(record):
        return Refusal.of(
            RedundancyNotSatisfiable,
            "no disjoint ways lead from each of the entries and to each of the exits",
        )
    if len(terms_of(record.granted, 0)) > TERMS_MAX:
        words = f"over its modes a subscription has at most {TERMS_MAX} qualities"
        return Refusal(LayoutError.code, words)
    return None
