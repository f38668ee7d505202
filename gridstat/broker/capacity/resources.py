"""Resources of a cloud: its routers and event channels, and the claims that are held on them.

Claims are added and removed in constant time. `admission.py` decides whether they fit, from the
elements that they have changed. The graph for the path search is kept here too; it is built anew
only when the topology has changed, or when a search needs fresh latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from gridstat.broker.capacity.accounts import HopAccount, RouterAccount, RowDivisors
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT
from gridstat.broker.capacity.latency_promises import Element, LatencyPromises, PathKey
from gridstat.broker.capacity.stream_costs import StreamCost
from gridstat.model.cloud import label_of_way
from gridstat.model.errors import LayoutError, NoSuchChannel, NoSuchRouter, StillInUse
from gridstat.model.latency_model import LATENCY_MODEL_DEFAULT, LatencyModel
from gridstat.model.path_label import named_channels
from gridstat.model.paths import Arc, PathGraph
from gridstat.model.probe_law import PROBES_DEFAULT
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.status import StatusVariable
from gridstat.model.wire_law import is_ipv6_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gridstat.broker.capacity.charges import Amount
    from gridstat.model.cloud import EventChannel, Router, Way
    from gridstat.model.probe_law import ProbeSettings

HOP_COST: Final = 1_000
"""Cost in the path search of a channel that does not carry the variable yet."""
ALL_SLOTS: Final[Mapping[int, int]] = MappingProxyType({BASELINE_MODE: 1})
"""Divisors of a claim on every event in all modes."""
UNCHARGED_END: Final = "within"
"""Name of an entry or delivery that loads no router, because the channel beyond is charged."""
_NONE: Final[frozenset[int]] = frozenset()


class Claim(Struct, frozen=True):
    """Load of one path: a variable from its publisher's edge to its subscriber's, by mode.

    A claim without routers has no ends and loads only its channels, as flooding does. The events of
    a claim with `entries` come from another cloud, and only as often as they are taken.
    """

    variable: StatusVariable
    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    everys: Mapping[int, int]
    takers: tuple[str, ...]
    entries: tuple[str, ...] = ()

    @property
    def arriving(self) -> Mapping[int, int]:
        """Divisors of the events that reach the first router; a publisher sends every event."""
        return self.everys if self.entries else ALL_SLOTS


class LoadChange(Struct, frozen=True):
    """Result of new claims: changed elements, paths made late, variables with many divisors."""

    elements: tuple[Element, ...]
    late: tuple[tuple[Element, PathKey], ...] = ()
    overfull_rows: tuple[str, ...] = ()


class Resources:
    """All totals and predictions; each depends only on the topology and the present claims."""

    def __init__(
        self,
        *,
        mode_sets: tuple[frozenset[int], ...] = MODE_SETS_DEFAULT,
        model: LatencyModel = LATENCY_MODEL_DEFAULT,
        probes: ProbeSettings = PROBES_DEFAULT,
    ) -> None:
        self.model = model
        self.probes = probes
        self.ends_us = model.predict(())
        self.promises = LatencyPromises()
        self.topology_version = 0
        self._mode_sets = mode_sets
        self._routers: dict[str, RouterAccount] = {}
        self._channels: dict[int, HopAccount] = {}
        self._on: dict[Way, int] = {}
        self._at_risk: dict[str, set[int]] = {}
        """Channels of each risk; those of a link are its two directions."""
        self._channels_at: dict[str, set[int]] = {}
        self._entries: dict[str, HopAccount] = {}
        self._border_entries: dict[tuple[str, str], HopAccount] = {}
        self._deliveries: dict[tuple[str, str], HopAccount] = {}
        self._carrying = CarryingChannels()
        self._rows = RowDivisors()
        self.stream_costs: dict[int, StreamCost] = {}
        self._unusable_channels: frozenset[int] | None = None
        self._unusable_routers: frozenset[str] | None = None
        self._graph: PathGraph | None = None
        self._is_graph_old = False

    @property
    def mode_sets(self) -> tuple[frozenset[int], ...]:
        """Sets of modes of which one each is active at a time."""
        return self._mode_sets

    # The topology.

    def add_router(self, router: Router) -> None:
        if router.name in self._routers:
            raise LayoutError(f"router {router.name} exists already")
        self._routers[router.name] = RouterAccount(router, self.model, self._mode_sets)
        self._entries[router.name] = HopAccount((self._routers[router.name],), self._mode_sets)
        self._channels_at[router.name] = set()
        self._topology_changed()

    def remove_router(self, name: str) -> None:
        account = self.router(name)
        if account.events or account.replays or self.promises.over(name):
            raise StillInUse(
                f"router {name} carries {self.variables_at(name)} variables "
                f"on {len(self.promises.over(name))} paths"
            )
        if self._channels_at[name]:
            raise StillInUse(
                f"router {name} still has {len(self._channels_at[name])} channels",
                hint="remove its channels first",
            )
        del self._routers[name], self._entries[name], self._channels_at[name]
        self._topology_changed()

    def add_channel(self, channel: EventChannel) -> None:
        ends = (channel.from_router, channel.to_router)
        if channel.channel_id in self._channels or channel.way in self._on:
            raise LayoutError(f"channel {channel.channel_id}, {channel.label}, exists already")
        routers = (self.router(channel.from_router), self.router(channel.to_router))
        hop = HopAccount(routers, self._mode_sets, channel, self.probes)
        hop.set_ip_version(is_ipv6=_is_ipv6(channel, is_ipv6=routers[-1].is_ipv6))
        self._channels[channel.channel_id] = hop
        self._on[channel.way] = channel.channel_id
        for risk in channel.risk_groups:
            self._at_risk.setdefault(risk, set()).add(channel.channel_id)
        for name in ends:
            self._channels_at[name].add(channel.channel_id)
        self._topology_changed()

    def remove_channel(self, channel_id: int) -> None:
        hop = self.channel(channel_id)
        assert hop.channel is not None
        if hop.streams:
            raise StillInUse(f"channel {hop.channel.label} carries {len(hop.streams)} variables")
        del self._channels[channel_id], self._on[hop.channel.way]
        for risk in hop.channel.risk_groups:
            self._at_risk[risk].discard(channel_id)
            if not self._at_risk[risk]:
                del self._at_risk[risk]
        for name in (hop.channel.from_router, hop.channel.to_router):
            self._channels_at[name].discard(channel_id)
        self._topology_changed()

    def set_ip_version(self, name: str, *, is_ipv6: bool) -> None:
        """Charge channels to a router by the headers of its address; existing claims stay."""
        self.router(name).is_ipv6 = is_ipv6
        changed = [
            number
            for number in sorted(self._channels_at[name])
            if self.ends_at(number, (name,))
            and (hop := self._channels[number]).channel is not None
            and hop.set_ip_version(is_ipv6=_is_ipv6(hop.channel, is_ipv6=is_ipv6))
        ]
        if changed:
            self._update_predictions(changed)
            self._topology_changed()

    def channel_between(self, from_router: str, to_router: str, name: str = "") -> int:
        way = (from_router, to_router, name)
        try:
            return self._on[way]
        except KeyError:
            raise NoSuchChannel(f"there is no channel {label_of_way(way)}") from None

    def with_shared_risks(self, channel_ids: Iterable[int]) -> frozenset[int]:
        """Return these channels, and all others that share a risk with one of them."""
        found: set[int] = set()
        for number in channel_ids:
            channel = self._channels[number].channel
            assert channel is not None
            found = found.union(*(self._at_risk[risk] for risk in channel.risk_groups))
        return frozenset(found)

    def channels_at(self, name: str) -> list[HopAccount]:
        """Return the channels to and from a router, in the order of their numbers."""
        return [self._channels[number] for number in sorted(self._channels_at[name])]

    def ends_at(self, channel_id: int, names: Collection[str]) -> bool:
        """Return whether a channel ends at one of these routers."""
        return self._channels[channel_id].routers[-1].router.name in names

    def router(self, name: str) -> RouterAccount:
        try:
            return self._routers[name]
        except KeyError:
            raise NoSuchRouter(f"there is no router {name}") from None

    def channel(self, channel_id: int) -> HopAccount:
        try:
            return self._channels[channel_id]
        except KeyError:
            raise NoSuchChannel(f"there is no channel {channel_id}") from None

    def channel_names(self, channel_ids: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the channels of a path; empty if none of them has a name."""
        hops = [self._channels[number].channel for number in channel_ids]
        return named_channels(["" if channel is None else channel.name for channel in hops])

    def delivery(self, router: str, subscriber: str) -> HopAccount | None:
        """Return the last hop from an edge to a subscriber, if any contract uses it."""
        return self._deliveries.get((router, subscriber))

    @property
    def routers(self) -> Mapping[str, RouterAccount]:
        return MappingProxyType(self._routers)

    @property
    def channels(self) -> Mapping[int, HopAccount]:
        return MappingProxyType(self._channels)

    # State: up or down, and back-pressure.

    def mark_router(self, name: str, *, is_up: bool) -> None:
        account = self.router(name)
        if account.is_up != is_up:
            account.is_up = is_up
            self._topology_changed(is_same_graph=True)

    def mark_channel(self, channel_id: int, *, is_up: bool) -> None:
        hop = self.channel(channel_id)
        if hop.is_up != is_up:
            hop.is_up = is_up
            self._topology_changed(is_same_graph=True)

    def mark_back_pressure(self, channel_id: int, *, is_on: bool) -> None:
        hop = self.channel(channel_id)
        if hop.is_back_pressured != is_on:
            hop.is_back_pressured = is_on
            self._topology_changed(is_same_graph=True)

    def down_channels(self) -> frozenset[int]:
        return frozenset(number for number, found in self._channels.items() if not found.is_up)

    def plain_channels(self) -> frozenset[int]:
        """Return the channels that are not sealed."""
        return frozenset(
            number
            for number, found in self._channels.items()
            if found.channel is not None and not found.channel.is_sealed
        )

    def down_routers(self) -> frozenset[str]:
        if self._unusable_routers is None:
            self._unusable_routers = frozenset(
                name for name, account in self._routers.items() if not account.is_up
            )
        return self._unusable_routers

    def unusable_channels(self) -> frozenset[int]:
        """Return the channels that are down, or back-pressured and admit nothing new."""
        if self._unusable_channels is None:
            self._unusable_channels = frozenset(
                number
                for number, found in self._channels.items()
                if not found.is_up or found.is_back_pressured
            )
        return self._unusable_channels

    # Claims.

    def take(self, claims: Iterable[Claim]) -> LoadChange:
        """Add claims, whether they fit or not; the result is for the admission checks."""
        touched: dict[Element, None] = {}
        for claim in claims:
            self._add_claim(claim, touched)
        return LoadChange(
            tuple(touched), tuple(self._update_predictions(touched)), self._rows.take_overfull()
        )

    def give_back(self, claims: Iterable[Claim]) -> None:
        """Undo `take` of the same claims exactly."""
        touched: dict[Element, None] = {}
        for claim in claims:
            self._remove_claim(claim, touched)
        self._update_predictions(touched)

    def publish(self, variable: StatusVariable, routers: Iterable[str]) -> None:
        """Charge a publisher's events at its edges, also if nobody subscribes.

        Subscriptions share this charge, so it matters only for publications without any.
        """
        touched: dict[Element, None] = {}
        for name in routers:
            self.router(name)
            is_changed = self._entries[name].add(self.stream_cost(variable), ALL_SLOTS)
            self._mark_touched(touched, name, is_changed=is_changed)
        self._update_predictions(touched)

    def unpublish(self, variable: StatusVariable, routers: Iterable[str]) -> None:
        touched: dict[Element, None] = {}
        for name in routers:
            is_changed = self._entries[name].remove(variable.variable_id, ALL_SLOTS)
            self._mark_touched(touched, name, is_changed=is_changed)
        if variable.variable_id not in self._carrying:
            self.stream_costs.pop(variable.variable_id, None)
        self._update_predictions(touched)

    def replace_router_load(self, name: str, old: Amount | None, new: Amount | None) -> LoadChange:
        """Charge `new` events a second instead of `old` at a router, to learn the consequences."""
        self.router(name).events.replace(BASELINE_MODE, old, new)
        return LoadChange((name,), tuple(self._update_predictions((name,))))

    def serving_channels(self, variable_id: int, everys: Mapping[int, int]) -> frozenset[int]:
        """Return the channels that would carry the variable at these divisors without more load."""
        found = self._carrying.serving(variable_id, everys)
        if found is None:
            found = frozenset(
                number
                for number in self._carrying.of(variable_id)
                if self._channels[number].serves(variable_id, everys)
            )
            self._carrying.remember(variable_id, everys, found)
        return found

    def carriers(self, variable_id: int) -> tuple[int, ...]:
        """Return the channels that carry a variable at present."""
        return tuple(sorted(self._carrying.of(variable_id)))

    def variables_at(self, name: str) -> int:
        """Return how many variables reach a router, from publishers or on its channels."""
        found = set(self._entries[name].streams)
        for number in self._channels_at[name]:
            found.update(self._channels[number].streams)
        return len(found)

    def path_us(self, routers: Iterable[str], channel_ids: Iterable[int]) -> int:
        """Return the latency that is predicted now for a path, from end-point to end-point."""
        total_us = self.ends_us
        for name in routers:
            total_us += self._routers[name].latency_us
        for number in channel_ids:
            total_us += self._channels[number].latency_us
        return total_us

    def stream_cost(self, variable: StatusVariable) -> StreamCost:
        """Return the cost of the variable; raises unless its rate is bounded."""
        known = self.stream_costs.get(variable.variable_id)
        if known is None:
            known = self.stream_costs[variable.variable_id] = StreamCost(variable)
        assert known.variable is variable or known.variable == variable, (
            f"variable {variable.variable_id} is charged with another period or type"
        )
        return known

    # The graph.

    def graph(self, *, is_fresh: bool = False) -> PathGraph:
        """Return the graph for the path search; with `is_fresh` its latencies are up to date."""
        if self._graph is None or (is_fresh and self._is_graph_old):
            arcs = tuple(
                Arc(
                    channel_id=number,
                    from_router=hop.channel.from_router,
                    to_router=hop.channel.to_router,
                    cost=HOP_COST,
                    latency_us=hop.latency_us,
                    risks=hop.channel.risk_groups,
                )
                for number, hop in sorted(self._channels.items())
                if hop.channel is not None
            )
            node_latency = {name: account.latency_us for name, account in self._routers.items()}
            self._graph = PathGraph(arcs, node_latency)
            self._is_graph_old = False
        return self._graph

    @property
    def is_graph_old(self) -> bool:
        """True if some prediction has changed since the graph was built."""
        return self._is_graph_old

    def _topology_changed(self, *, is_same_graph: bool = False) -> None:
        self.topology_version += 1
        self._unusable_channels = None
        self._unusable_routers = None
        if not is_same_graph:
            self._graph = None

    def _add_claim(self, claim: Claim, touched: dict[Element, None]) -> None:
        stream_cost = self.stream_cost(claim.variable)
        if claim.routers:
            for entry in self._entries_of(claim):
                is_changed = entry.add(stream_cost, claim.arriving)
                self._mark_touched(touched, claim.routers[0], is_changed=is_changed)
        self._carrying.add(claim.variable.variable_id, claim.channel_ids, claim.everys)
        for number in claim.channel_ids:
            hop = self._channels[number]
            if self._rows.add(hop, stream_cost, claim.everys):
                self._mark_channel_touched(touched, number, hop)
        if claim.routers:
            last = claim.routers[-1]
            for taker in claim.takers:
                delivery = self._hop(self._deliveries, last, taker)
                is_changed = self._rows.add(delivery, stream_cost, claim.everys)
                self._mark_touched(touched, last, is_changed=is_changed)

    def _remove_claim(self, claim: Claim, touched: dict[Element, None]) -> None:
        variable_id = claim.variable.variable_id
        removed: list[int] = []
        for number in claim.channel_ids:
            hop = self._channels[number]
            if self._rows.remove(hop, variable_id, claim.everys):
                self._mark_channel_touched(touched, number, hop)
            if variable_id not in hop.streams:
                removed.append(number)
        self._carrying.remove(variable_id, removed)
        is_entering = bool(claim.routers) and self._remove_ends(claim, touched)
        if variable_id not in self._carrying and not is_entering:
            self.stream_costs.pop(variable_id, None)

    def _remove_ends(self, claim: Claim, touched: dict[Element, None]) -> bool:
        """Release both ends of a claim; return whether its variable still enters there."""
        variable_id, first, last = claim.variable.variable_id, claim.routers[0], claim.routers[-1]
        entries = self._entries_of(claim)
        for entry in entries:
            is_changed = entry.remove(variable_id, claim.arriving)
            self._mark_touched(touched, first, is_changed=is_changed)
        for taker in claim.takers:
            delivery = self._deliveries[last, taker]
            is_changed = self._rows.remove(delivery, variable_id, claim.everys)
            self._mark_touched(touched, last, is_changed=is_changed)
            if not delivery.streams:
                del self._deliveries[last, taker]
        for name, entry in zip(claim.entries, entries, strict=False):
            if not entry.streams:
                self._border_entries.pop((first, name), None)
        return any(variable_id in entry.streams for entry in entries)

    def _entries_of(self, claim: Claim) -> list[HopAccount]:
        """Return the hops by which a claim's events reach its first router."""
        first = claim.routers[0]
        if not claim.entries:
            return [self._entries[first]]
        return [self._hop(self._border_entries, first, name) for name in claim.entries]

    def _hop(self, steps: dict[tuple[str, str], HopAccount], router: str, name: str) -> HopAccount:
        found = steps.get((router, name))
        if found is None:
            loaded = () if name == UNCHARGED_END else (self._routers[router],)
            found = steps[router, name] = HopAccount(loaded, self._mode_sets)
        return found

    @staticmethod
    def _mark_touched(touched: dict[Element, None], name: str, *, is_changed: bool) -> None:
        if is_changed:
            touched[name] = None

    @staticmethod
    def _mark_channel_touched(touched: dict[Element, None], number: int, hop: HopAccount) -> None:
        touched[number] = None
        for account in hop.routers:
            touched[account.router.name] = None

    def _update_predictions(self, touched: Iterable[Element]) -> list[tuple[Element, PathKey]]:
        """Update the predictions of the touched elements; return the paths that become late."""
        late: list[tuple[Element, PathKey]] = []
        for element in touched:
            account = (
                self._routers[element] if isinstance(element, str) else self._channels[element]
            )
            latency_us = account.predicted_us(self.model)
            if latency_us != account.latency_us:
                moved = self.promises.move(element, latency_us - account.latency_us)
                account.latency_us = latency_us
                self._is_graph_old = True
                late.extend((element, key) for key in moved)
        return late


def _is_ipv6(channel: EventChannel, *, is_ipv6: bool) -> bool:
    """Return whether a channel leads to an IPv6 address, given whether its receiver reports one."""
    return is_ipv6_address(channel.to_host) if channel.to_host else is_ipv6


class CarryingChannels:
    """Index of the channels that carry each variable, and of those that serve some divisors.

    Every subscription asks for the serving channels, usually with the divisors of the previous
    one. The last answer is therefore cached, extended by equal claims, and dropped on any other
    change. A variable is listed exactly while some channel carries it.
    """

    def __init__(self) -> None:
        self._channels: dict[int, frozenset[int]] = {}
        self._serving: dict[int, tuple[Mapping[int, int], frozenset[int]]] = {}

    def __contains__(self, variable_id: int) -> bool:
        return variable_id in self._channels

    def of(self, variable_id: int) -> frozenset[int]:
        return self._channels.get(variable_id, _NONE)

    def add(
        self, variable_id: int, channel_ids: tuple[int, ...], everys: Mapping[int, int]
    ) -> None:
        """Record that these channels now also carry the variable at these divisors."""
        if not channel_ids:
            return
        self._channels[variable_id] = _joined(self.of(variable_id), channel_ids)
        known = self._serving.pop(variable_id, None)
        if known is not None and known[0] == everys:
            # Channels that carry the variable at these divisors serve equal subscriptions too.
            self._serving[variable_id] = (everys, _joined(known[1], channel_ids))

    def remove(self, variable_id: int, removed: Iterable[int]) -> None:
        """Record the release of a claim, after which these channels do not carry the variable."""
        self._serving.pop(variable_id, None)
        left = self._channels.get(variable_id)
        if left is not None:
            left = left.difference(removed)
            if left:
                self._channels[variable_id] = left
            else:
                del self._channels[variable_id]

    def serving(self, variable_id: int, everys: Mapping[int, int]) -> frozenset[int] | None:
        """Return the cached channels that serve these divisors, or None."""
        known = self._serving.get(variable_id)
        return known[1] if known is not None and known[0] == everys else None

    def remember(self, variable_id: int, everys: Mapping[int, int], found: frozenset[int]) -> None:
        """Cache the serving channels of a variable that is carried."""
        if variable_id in self._channels:
            self._serving[variable_id] = (everys, found)


@lru_cache(maxsize=16_384)
def _joined(some: frozenset[int], others: tuple[int, ...]) -> frozenset[int]:
    """Return the union; the cache lets variables on the same paths share one set."""
    return some.union(others)
