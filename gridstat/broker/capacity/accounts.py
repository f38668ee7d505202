"""Accounts of the load that is reserved on each hop and router, updated by differences.

An account is a pure function of the divisors that are taken, so removing what was added restores
exactly the same numbers (S0-59). The cost of a change does not depend on what else is reserved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.broker.capacity.bursts import Burst
from gridstat.broker.capacity.charges import ZERO, Amount, DivisorCounts, ModalSum
from gridstat.model.probe_law import PROBES_DEFAULT
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.rate_law import MODAL_DIVISORS_MAX, modal_divisors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from gridstat.broker.capacity.charges import Divisors
    from gridstat.broker.capacity.stream_costs import StreamCost
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.model.latency_model import LatencyModel
    from gridstat.model.probe_law import ProbeSettings

_STEP_US_MIN: Final = 10
_STEPS_PER_OCTAVE: Final = 8
_BASELINE: Final = (BASELINE_MODE,)
REPLAY_SHARE: Final = 4
"""Replayed variables may use a fourth of a router's capacity, in addition to the reserved load.

No live subscription is refused because of replay, so replay must fit into the router's reserve.
"""
EveryCounts: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a divisor and the number of channels and deliveries that keep it, ascending."""


class Stream:
    """One variable on one hop: the divisors at which it is taken, and the present charge."""

    __slots__ = ("burst_modes", "counts", "event_bytes", "stream_cost", "taken")

    def __init__(self, stream_cost: StreamCost, event_bytes: int) -> None:
        self.stream_cost = stream_cost
        self.event_bytes = event_bytes
        self.counts = DivisorCounts()
        self.taken: Divisors = ()
        self.burst_modes: tuple[int, ...] = ()

    @property
    def events_per_s(self) -> dict[int, Fraction]:
        """Events a second that the hop carries of the variable, by mode."""
        amounts = self.stream_cost.price.events_per_s(self.taken)
        return {mode: amount.value for mode, amount in sorted(amounts.items())}


class RouterAccount:
    """Events a second that are reserved on a router, in and out, and separately those of replay.

    Replay is counted apart: it delays no contract and uses none of the reserved capacity.
    """

    __slots__ = ("carriages", "events", "is_ipv6", "is_up", "latency_us", "replays", "router")

    def __init__(
        self, router: Router, model: LatencyModel, mode_sets: tuple[frozenset[int], ...]
    ) -> None:
        self.router = router
        self.events = ModalSum(mode_sets)
        self.replays = ModalSum(mode_sets)
        self.carriages = 0
        self.is_up = True
        self.is_ipv6 = False
        """Whether it receives by IPv6, as it has reported; nothing is sent to it before."""
        self.latency_us = self.predicted_us(model)

    def predicted_us(self, model: LatencyModel) -> int:
        return stepped_us(model.router_us(self.events.upper_bound()))

    @property
    def is_overloaded(self) -> bool:
        return self.events.exceeds(self.router.events_per_s_max)

    @property
    def replays_max(self) -> int:
        """Events a second of replay that the router accepts."""
        return self.router.events_per_s_max // REPLAY_SHARE

    @property
    def exceeds_replay(self) -> bool:
        return self.replays.exceeds(self.replays_max)

    def shortfall(self) -> Fraction:
        """Return the missing events a second; 0 or less if the load fits."""
        return self.events.value - self.router.events_per_s_max


class HopAccount:
    """Account of a one-way hop that carries variables and loads one or two routers.

    A hop is an event channel, the step from a publisher to its edge, or the step from an edge to
    its subscriber. The last two have no bandwidth limit, but load the edge. `bytes` counts the
    variables; `probe_charge` is the bandwidth that the channel's probes use in addition. Both
    count headers of IPv6 where the receiver's address is one of IPv6.
    """

    __slots__ = (
        "burst",
        "bytes",
        "channel",
        "is_back_pressured",
        "is_ipv6",
        "is_up",
        "latency_us",
        "probe_charge",
        "probes",
        "routers",
        "streams",
    )

    def __init__(
        self,
        routers: tuple[RouterAccount, ...],
        mode_sets: tuple[frozenset[int], ...],
        channel: EventChannel | None = None,
        probes: ProbeSettings = PROBES_DEFAULT,
    ) -> None:
        self.routers = routers
        self.probes = probes
        self.is_ipv6 = False
        self.replace_channel(channel)
        self.bytes = ModalSum(mode_sets)
        self.burst = Burst(mode_sets)
        self.streams: dict[int, Stream] = {}
        self.is_up = True
        self.is_back_pressured = False
        self.latency_us = 0 if channel is None else channel.latency_us

    def replace_channel(self, channel: EventChannel | None) -> None:
        """Set new parameters of the channel, and derive its probe charge from its bandwidth."""
        self.channel = channel
        bandwidth = 0 if channel is None else channel.bandwidth_bytes_per_s
        self.probe_charge = (
            Amount(self.probes.bytes_per_s_of(bandwidth, is_ipv6=self.is_ipv6))
            if bandwidth
            else ZERO
        )

    def set_ip_version(self, *, is_ipv6: bool) -> bool:
        """Charge the headers of this version from now on; return whether that changes any total.

        What is held stays, and may then exceed the bandwidth.
        """
        if is_ipv6 == self.is_ipv6:
            return False
        self.is_ipv6 = is_ipv6
        self.replace_channel(self.channel)
        self._recharge_streams()
        return True

    def event_bytes(self, stream_cost: StreamCost) -> int:
        """Return the bytes of one event of a variable here; 0 on a hop that is no channel."""
        if self.channel is None:
            return 0
        return stream_cost.event_bytes(
            self.channel.mtu_bytes, is_ipv6=self.is_ipv6, is_sealed=self.channel.is_sealed
        )

    def add(self, stream_cost: StreamCost, everys: Mapping[int, int]) -> bool:
        """Add a subscription to the variable; return whether that changes any total."""
        number = stream_cost.variable.variable_id
        stream = self.streams.get(number)
        if stream is None:
            stream = self.streams[number] = Stream(stream_cost, self.event_bytes(stream_cost))
        return stream.counts.add(everys) and self._charge(stream)

    def remove(self, variable_id: int, everys: Mapping[int, int]) -> bool:
        """Remove a subscription that was added; return whether that changes any total."""
        stream = self.streams[variable_id]
        if not stream.counts.remove(everys):
            return False
        is_changed = self._charge(stream)
        if not stream.counts:
            del self.streams[variable_id]
        return is_changed

    def serves(self, variable_id: int, everys: Mapping[int, int]) -> bool:
        """Return whether one more subscription at these divisors would add no load here."""
        stream = self.streams.get(variable_id)
        return stream is not None and stream.counts.serves(everys)

    def surely_fits(self, stream_cost: StreamCost, modes: int, margin: float) -> bool:
        """Return whether the variable surely fits, by a quick estimate from above.

        The estimate charges the full rate once for each of so many `modes`.
        """
        events_per_s = modes * float(stream_cost.price.event_rate)
        for account in self.routers:
            limit = margin * account.router.events_per_s_max
            if account.events.upper_bound() + events_per_s > limit:
                return False
        if self.channel is None or not self.channel.bandwidth_bytes_per_s:
            return True
        bytes_per_s = events_per_s * self.event_bytes(stream_cost)
        bytes_per_s += self.charged_upper_bound()
        return (
            bytes_per_s <= margin * self.channel.bandwidth_bytes_per_s
            and self.burst.events < self.channel.queue_events_max
        )

    def predicted_us(self, model: LatencyModel) -> int:
        if self.channel is None:
            return 0
        burst_events, burst_bytes = self.burst.worst()
        return self.channel.latency_us + stepped_us(
            model.burst_us(burst_events, burst_bytes, self.channel.bandwidth_bytes_per_s)
        )

    @property
    def is_overloaded(self) -> bool:
        bandwidth = 0 if self.channel is None else self.channel.bandwidth_bytes_per_s
        return bandwidth > 0 and self.bytes.exceeds(bandwidth, self.probe_charge)

    @property
    def overflows_queue(self) -> bool:
        """True if the burst overflows the queue; without a declared bandwidth none can."""
        if self.channel is None or not self.channel.bandwidth_bytes_per_s:
            return False
        return self.burst.events > self.channel.queue_events_max

    def shortfall(self) -> Fraction:
        """Return the missing bytes a second; 0 or less if the load fits."""
        assert self.channel is not None
        return self.charged() - self.channel.bandwidth_bytes_per_s

    def charged(self) -> Fraction:
        """Return the bytes a second that variables and probes use together."""
        return self.bytes.value + self.probe_charge.value

    def charged_upper_bound(self) -> float:
        """Return a float that is equal to or slightly above `charged`."""
        return self.bytes.upper_bound() + self.probe_charge.upper_bound()

    def _charge(self, stream: Stream) -> bool:
        before, after = stream.taken, stream.counts.taken()
        stream.taken = after
        price, is_replay = stream.stream_cost.price, stream.stream_cost.is_replay
        changes = price.rate_changes(before, after)
        for mode, was, now in changes:
            for router in self.routers:
                (router.replays if is_replay else router.events).replace(mode, was, now)
        if self.channel is None or is_replay:
            return bool(changes)
        if changes:
            for mode, was, now in price.byte_changes(before, after, stream.event_bytes):
                self.bytes.replace(mode, was, now)
        return self._charge_burst(stream) or bool(changes)

    def _recharge_streams(self) -> None:
        """Charge all streams by the present size of their events."""
        for stream in self.streams.values():
            event_bytes = self.event_bytes(stream.stream_cost)
            self._replace_bytes(stream, event_bytes)
            stream.event_bytes = event_bytes

    def _replace_bytes(self, stream: Stream, event_bytes: int, count: int = 1) -> None:
        """Charge so many equal streams with another size of their events."""
        cost = stream.stream_cost
        if cost.is_replay:
            return
        new = cost.price.bytes_per_s(stream.taken, event_bytes)
        for mode, old in cost.price.bytes_per_s(stream.taken, stream.event_bytes).items():
            self.bytes.replace(mode, old.times(count), new[mode].times(count))
        if stream.burst_modes:
            more_bytes = count * (event_bytes - stream.event_bytes)
            self.burst.resize(cost.phase, more_bytes, stream.burst_modes)

    def _charge_burst(self, stream: Stream) -> bool:
        counts = stream.counts
        modes = _BASELINE if counts.has_baseline else burst_modes(counts.modes())
        if modes == stream.burst_modes:
            return False
        if modes:
            self.burst.add(stream.stream_cost.phase, stream.event_bytes, modes)
        if stream.burst_modes:
            self.burst.remove(stream.stream_cost.phase, stream.event_bytes, stream.burst_modes)
        stream.burst_modes = modes
        return True


class RowDivisors:
    """Counts, by variable, of the divisors that are kept on all channels and deliveries.

    A core's row of a variable holds 64 divisors over all its channels. A router rounds further
    divisors down to common ones, and then forwards more than is charged. Counting over the whole
    cloud ensures that no router's row has too many.
    """

    def __init__(self) -> None:
        self._counts: dict[int, EveryCounts] = {}
        self._overfull: dict[str, None] = {}

    def add(self, hop: HopAccount, stream_cost: StreamCost, everys: Mapping[int, int]) -> bool:
        """Add a subscription on this hop; return whether that changes any total."""
        number = stream_cost.variable.variable_id
        before = _taken(hop, number)
        is_changed = hop.add(stream_cost, everys)
        after = hop.streams[number].taken
        if after is not before:
            held = self.count(number)
            if self._replace(number, before, after) > max(held, MODAL_DIVISORS_MAX):
                self._overfull[stream_cost.variable.name] = None
        return is_changed

    def remove(self, hop: HopAccount, variable_id: int, everys: Mapping[int, int]) -> bool:
        """Remove a subscription from this hop; return whether that changes any total."""
        before = _taken(hop, variable_id)
        is_changed = hop.remove(variable_id, everys)
        after = _taken(hop, variable_id)
        if after is not before:
            self._replace(variable_id, before, after)
        return is_changed

    def take_overfull(self) -> tuple[str, ...]:
        """Return the variables that got more divisors than a row holds since the last call."""
        found, self._overfull = tuple(self._overfull), {}
        return found

    def count(self, variable_id: int) -> int:
        return len(self._counts.get(variable_id, ()))

    def _replace(self, variable_id: int, before: Divisors, after: Divisors) -> int:
        """Replace the divisors of one hop; return how many different ones the variable has."""
        counts = _replaced(self._counts.get(variable_id, ()), before, after)
        if counts:
            self._counts[variable_id] = counts
        else:
            self._counts.pop(variable_id, None)
        return len(counts)


def burst_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """Return the modes in which a variable adds one event to a burst; the baseline covers all."""
    taken = tuple(modes)
    return _BASELINE if BASELINE_MODE in taken else taken


def stepped_us(us: int) -> int:
    """Return a latency rounded up by at most an eighth, so that predictions rarely change.

    Each change of a prediction has to be compared with every contract that depends on it.
    """
    step = max(_STEP_US_MIN, (1 << us.bit_length() >> 1) // _STEPS_PER_OCTAVE)
    return -(-us // step) * step


@lru_cache(maxsize=4_096)
def _replaced(counts: EveryCounts, before: Divisors, after: Divisors) -> EveryCounts:
    """Return the counts after a change; the cache lets variables with equal counts share them."""
    found = dict(counts)
    more, less = _difference(before, after)
    for every in more:
        found[every] = found.get(every, 0) + 1
    for every in less:
        found[every] -= 1
    return tuple((every, count) for every, count in sorted(found.items()) if count)


@lru_cache(maxsize=4_096)
def _difference(before: Divisors, after: Divisors) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the divisors that a router starts to keep, and those that it drops."""
    was, now = kept_divisors(before), kept_divisors(after)
    return tuple(now - was), tuple(was - now)


@lru_cache(maxsize=4_096)
def kept_divisors(taken: Divisors) -> frozenset[int]:
    """Return the divisors that a router keeps for one channel, over all modes."""
    return frozenset(every for own in modal_divisors(dict(taken)).values() for every in own)


def _taken(hop: HopAccount, variable_id: int) -> Divisors:
    stream = hop.streams.get(variable_id)
    return () if stream is None else stream.taken
