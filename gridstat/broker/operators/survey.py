"""Surveys of the cloud, and explanations of one variable, as plain facts for people and JSON."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from gridstat.broker.capacity.explanation import (
    channel_facts,
    contract_facts,
    router_facts,
    variable_channel_facts,
)
from gridstat.broker.capacity.negotiation import band_of
from gridstat.broker.operators.inter_cloud_survey import (
    asked_explained,
    asked_facts,
    foreign_publication,
    place_facts,
    segment_facts,
)
from gridstat.broker.operators.undefined_modes import UndefinedModes
from gridstat.broker.records.parent_state import contract_name
from gridstat.broker.requests.room_requests import cause_of
from gridstat.model.channel_security import NONE
from gridstat.model.errors import NoSuchVariable
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.parent_state import AskedContract
    from gridstat.broker.records.registry import EndPoint, Publication, Subscription
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.routers.router_sessions import RouterSessions
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.model.qos import ModalQos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry
    from gridstat.net.command.router_messages import ReportCounters

LISTED_MAX: Final = 1_000
"""Publications, and subscriptions, listed in one survey; totals count all of them."""

Facts = dict[str, Any]
ReportedLedger: TypeAlias = "tuple[int, str, str, LedgerEntry]"
"""Subscription, subscriber, variable, and the ledger that the subscriber reported."""


class Surveyor:
    """Reads the registry and changes nothing."""

    def __init__(
        self,
        context: BrokerContext,
        router_sessions: RouterSessions,
        health: RouterHealth,
        channel_plan: ChannelPlan,
    ) -> None:
        self._context = context
        self._router_sessions = router_sessions
        self._health = health
        self._channel_plan = channel_plan
        self.undefined_modes = UndefinedModes(context)

    def survey(self, *, started_ns: int) -> Facts:
        registry = self._context.registry
        segments = sum(len(held) for held in registry.tree.segments.values())
        return {
            "cloud": registry.cloud,
            **place_facts(registry, self._context.settings.parent),
            "term": registry.term,
            "highest_term_reported": max(self._router_sessions.terms.values(), default=0),
            "uptime_s": (self._context.now_ns - started_ns) / NS_PER_S,
            "routers": [self._router(name) for name in sorted(registry.routers)],
            "channels": [
                self._channel(number)
                for number in sorted(
                    registry.channels, key=lambda number: registry.channels[number].label
                )
            ],
            "end_points": [
                self._endpoint(found)
                for _, found in islice(sorted(registry.endpoints.items()), LISTED_MAX)
            ],
            "publications": [
                self._publication(found)
                for _, found in islice(sorted(registry.publications.items()), LISTED_MAX)
            ],
            "subscriptions": list(islice(self._subscriptions(), LISTED_MAX)),
            "segments": list(islice(self._segments(), LISTED_MAX)),
            "totals": {
                "routers": len(registry.routers),
                "channels": len(registry.channels),
                "end_points": len(registry.endpoints),
                "publications": len(registry.publications),
                "subscriptions": len(registry.subscriptions) - segments + len(registry.tree.asked),
                "segments": segments,
                "patterns": len(registry.patterns),
                "in_undefined_modes": self.undefined_modes.count(),
            },
            "journal": dict(self._context.outside.journal_figures()),
        }

    def counters(self) -> Mapping[str, ReportCounters]:
        """Return the last counters of each router."""
        return self._router_sessions.counters

    def ledgers(self) -> list[ReportedLedger]:
        """Return the ledger of every subscription that has reported one."""
        registry = self._context.registry
        inside = [
            (found.record.subscription_id, found.record.subscriber, found.record.name, found.ledger)
            for found in registry.subscriptions.values()
            if found.ledger is not None
        ]
        across = [
            (number, found.record.subscriber, found.record.name, found.ledger)
            for number, found in registry.tree.asked.items()
            if found.ledger is not None
        ]
        return [*inside, *across]

    def explain(self, name: str) -> Facts:
        """Return all facts of one variable; raise `NoSuchVariable`."""
        registry = self._context.registry
        publication = registry.publications.get(name) or foreign_publication(registry, name)
        asked = [found for found in registry.tree.asked.values() if found.record.name == name]
        if publication is None and not asked:
            raise NoSuchVariable(f"nobody publishes {name[:80]}")
        granted = next((found.granted for found in asked if found.granted is not None), None)
        variable = publication.variable if publication is not None else None
        variable = granted.variable if variable is None and granted is not None else variable
        publisher = registry.endpoints.get(publication.publisher) if publication else None
        numbers = () if publication is None else publication.subscriptions
        return {
            "name": name,
            "cloud": registry.cloud,
            "variable": None if variable is None else msgspec.to_builtins(variable),
            "publisher": "" if publication is None else publication.publisher,
            "is_dormant": publication is not None and publication.is_dormant,
            "edges": sorted(publisher.attachments) if publisher is not None else [],
            "subscriptions": [
                *(self._asked_explained(found) for found in asked),
                *(
                    self._explained(registry.subscriptions[number])
                    for number in islice(sorted(numbers), LISTED_MAX)
                ),
            ],
            "channels": [] if variable is None else self._carriers(variable.variable_id),
            "borders": self._borders(asked, numbers),
        }

    def _borders(self, asked: Iterable[AskedContract], numbers: Iterable[int]) -> list[Facts]:
        """Return the channels between clouds that these contracts use at routers of this cloud."""
        registry = self._context.registry
        granted = [found.granted.paths for found in asked if found.granted is not None]
        used = {
            number
            for paths in granted
            for path in paths
            for piece in path.pieces
            for number in piece.channel_ids
        }
        for number in islice(sorted(numbers), LISTED_MAX):
            record = registry.subscriptions[number].record
            used.update(channel_id for _, channel_id in (*record.entries, *record.exits))
        return [
            {
                "channel_id": number,
                "label": border.channel.label,
                "link": border.channel.link,
                "risks": list(border.channel.risks),
            }
            for number, border in sorted(registry.tree.borders.items())
            if number in used
        ]

    def _carriers(self, variable_id: int) -> list[Facts]:
        return variable_channel_facts(self._context.reservations.resources, variable_id)

    def _explained(self, found: Subscription) -> Facts:
        facts = contract_facts(self._context.reservations.allocator, found.record.subscription_id)
        refusals = [] if found.troubles else self._table_refusals(found)
        undefined = self.undefined_modes.remarks(found.record.granted)
        facts["degraded"] = [*facts["degraded"], *found.troubles, *refusals, *undefined]
        facts["state"] = self._state(found)
        facts["detection_ms"] = self._context.detection.on_paths(found.record.paths)
        facts["plain"] = self._plain_hops(found)
        facts["band"] = band_facts(found.record.qos, found.variable)
        facts |= self._lowering_facts(found.record)
        if found.record.contract:
            facts["segment"] = segment_facts(found.record)
        return facts | _with_ledger(found.ledger)

    def _lowering_facts(self, record: Subscribed) -> Facts:
        """Return for whom a contract was lowered, and which ones were lowered for it."""
        registry = self._context.registry
        cause = registry.subscriptions.get(record.lowered_for)
        found: Facts | None = None
        if record.lowered_for:
            found = {"subscription_id": record.lowered_for}
        if record.lowered_for_contract:
            found = {"contract": record.lowered_for_contract}
        return {
            "lowered_for": found if cause is None else _named(cause.record),
            "lowered": self._lowered_for(cause_of(registry.cloud, record), record.subscription_id),
        }

    def _lowered_for(self, cause: str, number: int = 0) -> list[Facts]:
        """Return the contracts, and segments, that were lowered for one; each contract once."""
        live = [found.record for found in self._context.registry.subscriptions.values()]
        lowered = {
            each.contract or each.subscription_id: each
            for each in live
            if each.lowered_for_contract == cause or (number and each.lowered_for == number)
        }
        return [_named(each) for each in islice(lowered.values(), LISTED_MAX)]

    def _asked_explained(self, found: AskedContract) -> Facts:
        facts = asked_explained(self._context.registry, found, self._context.detection)
        modes = () if found.granted is None else found.granted.granted
        facts["degraded"] = [*facts.get("degraded", ()), *self.undefined_modes.remarks(modes)]
        if found.granted is not None:
            facts["band"] = band_facts(found.record.qos, found.granted.variable)
            cause = found.granted.lowered_for
            facts["lowered_for"] = {"contract": cause} if cause else None
            cloud = self._context.registry.cloud
            facts["lowered"] = self._lowered_for(contract_name(cloud, found.record.number))
        return facts | _with_ledger(found.ledger)

    def _plain_hops(self, found: Subscription) -> list[str]:
        """Return the hops of a contract's paths that are not sealed, those of end-points too."""
        registry = self._context.registry
        channels = {number for path in found.record.paths for number in path.channel_ids}
        plain = [
            f"channel {registry.channels[number].label}"
            for number in sorted(channels & registry.channels.keys())
            if not registry.channels[number].is_sealed
        ]
        publication = registry.publication_of(found.record)
        ends = [found.record.subscriber, "" if publication is None else publication.publisher]
        for name in filter(None, ends):
            endpoint = registry.endpoints.get(name)
            attachments = {} if endpoint is None else endpoint.attachments
            plain += [
                f"{name} at {edge}"
                for edge, each in sorted(attachments.items())
                if each.security == NONE
            ]
        return plain

    def _table_refusals(self, found: Subscription) -> list[str]:
        routers = {name for path in found.record.paths for name in path.routers}
        return [
            f"router {name} refuses its table: {self._context.tables[name].refusal}"
            for name in sorted(routers)
            if self._context.tables[name].refusal
        ]

    def _state(self, found: Subscription) -> str:
        if found.troubles:
            return "impaired"
        if found.retiring:
            return "moving"
        unconfirmed = [
            name
            for path in found.record.paths
            for name in path.routers
            if not self._context.tables[name].is_in_step
        ]
        return "waiting for routers" if unconfirmed else "granted"

    def _router(self, name: str) -> Facts:
        table = self._context.tables[name]
        counters = self._router_sessions.counters.get(name)
        report = self._context.registry.reports.get(name)
        return {
            **router_facts(self._context.reservations.resources, name),
            "is_up": report is not None and name not in self._health.down_routers,
            "is_connected": table.is_connected,
            "in_step": table.is_in_step,
            "refusal": table.refusal,
            "refusals": table.refusal_count,
            "refused_rows": len(table.refused),
            "digest": f"{table.wanted.digest:016x}",
            "confirmed_digest": f"{table.confirmed_digest:016x}",
            "variables": len(table.wanted.variables),
            "paths": len(table.wanted.paths),
            "counters": {} if counters is None else dict(counters.router),
        }

    def _channel(self, number: int) -> Facts:
        channel = self._context.registry.channels[number]
        sending = self._router_sessions.counters.get(channel.from_router)
        receiving = self._router_sessions.counters.get(channel.to_router)
        received = {} if receiving is None else receiving.sources.get(number, {})
        all_sent = received.get("datagrams", 0) + received.get("lost", 0)
        return {
            **channel_facts(self._context.reservations.resources, number),
            "is_up": number not in self._health.down_channels,
            "datagram_version": self._channel_plan.version(channel),
            "loss_ratio": received.get("lost", 0) / all_sent if all_sent else 0.0,
            "counters": {} if sending is None else dict(sending.channels.get(number, {})),
        }

    def _endpoint(self, found: EndPoint) -> Facts:
        return {
            "name": found.name,
            "is_up": found.is_up,
            "edges": sorted(found.attachments),
            "plain_edges": sorted(
                edge for edge, each in found.attachments.items() if each.security == NONE
            ),
            "publications": len(found.publications),
            "subscriptions": len(found.subscriptions),
        }

    def _publication(self, found: Publication) -> Facts:
        variable = found.variable
        return {
            "name": variable.name,
            "variable_id": variable.variable_id,
            "publisher": found.publisher,
            "period": None if variable.period is None else str(variable.period),
            "phase_ns": variable.phase_ns,
            "is_alert": variable.is_alert,
            "replay_speed": variable.replay_speed,
            "is_dormant": found.is_dormant,
            "subscriptions": len(found.subscriptions),
        }

    def _subscriptions(self) -> Iterator[Facts]:
        """Yield all contracts of our end-points, those with other clouds last."""
        registry = self._context.registry
        for found in registry.subscriptions.values():
            if not found.record.contract:
                yield self._subscription(found)
        for asked in registry.tree.asked.values():
            yield asked_facts(registry, asked, self._context.detection) | _with_ledger(asked.ledger)

    def _segments(self) -> Iterator[Facts]:
        subscriptions = self._context.registry.subscriptions
        for held in self._context.registry.tree.segments.values():
            for number in held.values():
                record = subscriptions[number].record
                paths = [list(path.routers) for path in record.paths]
                yield {"name": record.name, **segment_facts(record), "paths": paths}

    def _subscription(self, found: Subscription) -> Facts:
        record = found.record
        return {
            "subscription_id": record.subscription_id,
            "name": record.name,
            "subscriber": record.subscriber,
            "granted": msgspec.to_builtins(record.granted),
            "paths": [list(path.routers) for path in record.paths],
            "degraded": [*record.degraded, *found.troubles],
            "state": self._state(found),
            **_with_ledger(found.ledger),
        }


def band_facts(qos: ModalQos, variable: StatusVariable) -> dict[int, list[int]]:
    """Return the desired divisor and the worst acceptable one of each mode that has a band."""
    band = band_of(qos, variable.period)
    return {
        mode: [qos.every, band.worst[mode].every]
        for mode, qos in sorted(band.desired.items())
        if band.worst[mode].every > qos.every
    }


def _named(record: Subscribed) -> Facts:
    """Return what identifies a contract for people."""
    contract = {"contract": record.contract} if record.contract else {}
    return contract | {
        "subscription_id": record.subscription_id,
        "name": record.name,
        "subscriber": record.subscriber or record.reader,
        "priority": min(qos.priority for qos in record.granted.values()),
        "every": min(qos.every for qos in record.granted.values()),
    }


def _with_ledger(ledger: LedgerEntry | None) -> Facts:
    return {"ledger": None if ledger is None else ledger_facts(ledger)}


def ledger_facts(ledger: LedgerEntry) -> Facts:
    """Return a subscriber's ledger as plain values."""
    facts = {name: getattr(ledger, name) for name in ledger.__struct_fields__}
    facts["paths"] = [path_facts(path) for path in ledger.paths]
    return facts


def path_facts(path: PathEntry) -> Facts:
    """Return the ledger of one path as plain values."""
    return {name: getattr(path, name) for name in path.__struct_fields__}
