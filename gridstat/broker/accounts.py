"""Accounts of channels and routers: what is promised on each, kept up to date by differences.

An account is a pure function of the divisors that are taken, so taking back what was added
restores the very numbers (S0-59), and a change costs the same however much else is promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.broker.bursts import Burst, phase_class
from gridstat.broker.charges import NOTHING, DivisorCounts, ModalSum, event_bytes, event_rate
from gridstat.model.latency_model import Hop
from gridstat.model.qos import BASELINE_MODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from gridstat.broker.bursts import PhaseClass
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.model.latency_model import LatencyModel
    from gridstat.model.status import StatusVariable

_STEP_US_MIN: Final = 10
_STEPS_PER_OCTAVE: Final = 8


@dataclass(slots=True)
class Stream:
    """One variable on one carriage: who takes it, and what that costs there."""

    variable: StatusVariable
    counts: DivisorCounts
    event_rate: Fraction
    event_bytes: int
    phase: PhaseClass
    rates: dict[int, Fraction]
    burst_modes: tuple[int, ...] = ()

    @staticmethod
    def of(variable: StatusVariable, channel: EventChannel | None) -> Stream:
        return Stream(
            variable=variable,
            counts=DivisorCounts(),
            event_rate=event_rate(variable),
            event_bytes=0 if channel is None else event_bytes(variable, channel.mtu_bytes),
            phase=phase_class(variable),
            rates={},
        )


class RouterAccount:
    """The events a second that a router is promised to take in and send out."""

    __slots__ = ("carriages", "events", "is_up", "latency_us", "router")

    def __init__(
        self, router: Router, model: LatencyModel, mode_sets: tuple[frozenset[int], ...]
    ) -> None:
        self.router = router
        self.events = ModalSum(mode_sets)
        self.carriages = 0
        self.is_up = True
        self.latency_us = self.predicted_us(model)

    def predicted_us(self, model: LatencyModel) -> int:
        return stepped_us(model.router_us(self.events.at_most()))

    @property
    def is_over(self) -> bool:
        return self.events.exceeds(self.router.events_per_s_max)

    def shortfall(self) -> Fraction:
        """Events a second that are missing, or not above 0 where there is room."""
        return self.events.value - self.router.events_per_s_max


class Carriage:
    """A one-way step that carries variables and loads one or two routers.

    An event channel is one; so are the step of a publisher into its edge and that of an edge to
    its subscriber, which have no bandwidth of their own but load the edge.
    """

    __slots__ = (
        "burst",
        "bytes",
        "channel",
        "is_back_pressured",
        "is_up",
        "latency_us",
        "routers",
        "streams",
    )

    def __init__(
        self,
        routers: tuple[RouterAccount, ...],
        mode_sets: tuple[frozenset[int], ...],
        channel: EventChannel | None = None,
    ) -> None:
        self.routers = routers
        self.channel = channel
        self.bytes = ModalSum(mode_sets)
        self.burst = Burst(mode_sets)
        self.streams: dict[int, Stream] = {}
        self.is_up = True
        self.is_back_pressured = False
        self.latency_us = 0 if channel is None else channel.latency_us

    def add(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """One more subscription takes the variable here; whether that changes any number."""
        stream = self.streams.get(variable.variable_id)
        if stream is None:
            stream = self.streams[variable.variable_id] = Stream.of(variable, self.channel)
        return stream.counts.add(everys) and self._charge(stream)

    def remove(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """Take back what was added; whether that changes any number."""
        stream = self.streams[variable.variable_id]
        if not stream.counts.remove(everys):
            return False
        self._charge(stream)
        if not stream.counts:
            del self.streams[variable.variable_id]
        return True

    def serves(self, variable_id: int, everys: Mapping[int, int]) -> bool:
        """Whether the variable could be taken here at these divisors without carrying more."""
        stream = self.streams.get(variable_id)
        return stream is not None and all(
            stream.counts.serves(mode, every) for mode, every in everys.items()
        )

    def has_ample_room(self, variable: StatusVariable, modes: int, margin: float) -> bool:
        """Whether the variable fits at full rate in so many modes, by a quick look from above."""
        events_per_s = modes * float(event_rate(variable))
        for account in self.routers:
            limit = margin * account.router.events_per_s_max
            if account.events.at_most() + events_per_s > limit:
                return False
        if self.channel is None or not self.channel.bandwidth_bytes_per_s:
            return True
        bytes_per_s = events_per_s * event_bytes(variable, self.channel.mtu_bytes)
        return (
            self.bytes.at_most() + bytes_per_s <= margin * self.channel.bandwidth_bytes_per_s
            and self.burst.events < self.channel.queue_events_max
        )

    def hop(self) -> Hop:
        """The channel's part of what the latency law asks."""
        assert self.channel is not None
        return Hop(
            burst_events=self.burst.events,
            burst_bytes=self.burst.bytes,
            bandwidth_bytes_per_s=self.channel.bandwidth_bytes_per_s,
            channel_latency_us=0,
        )

    def predicted_us(self, model: LatencyModel) -> int:
        if self.channel is None:
            return 0
        return self.channel.latency_us + stepped_us(model.channel_us(self.hop()))

    @property
    def is_over(self) -> bool:
        bandwidth = 0 if self.channel is None else self.channel.bandwidth_bytes_per_s
        return bandwidth > 0 and self.bytes.exceeds(bandwidth)

    @property
    def is_burst_over(self) -> bool:
        """A channel without a declared bandwidth has no queue that could overflow."""
        if self.channel is None or not self.channel.bandwidth_bytes_per_s:
            return False
        return self.burst.events > self.channel.queue_events_max

    def shortfall(self) -> Fraction:
        """Bytes a second that are missing, or not above 0 where there is room."""
        assert self.channel is not None
        return self.bytes.value - self.channel.bandwidth_bytes_per_s

    def _charge(self, stream: Stream) -> bool:
        old = stream.rates
        new = {
            mode: share * stream.event_rate for mode, share in stream.counts.shares.items() if share
        }
        stream.rates = new
        for mode in old.keys() | new.keys():
            before, after = old.get(mode, NOTHING), new.get(mode, NOTHING)
            if before != after:
                for router in self.routers:
                    router.events.replace(mode, before, after)
                if self.channel is not None:
                    self.bytes.replace(
                        mode, before * stream.event_bytes, after * stream.event_bytes
                    )
        if self.channel is not None:
            self._charge_burst(stream)
        return True

    def _charge_burst(self, stream: Stream) -> None:
        modes = burst_modes(stream.counts.modes())
        if modes == stream.burst_modes:
            return
        if modes:
            self.burst.add(stream.phase, stream.event_bytes, modes)
        if stream.burst_modes:
            self.burst.remove(stream.phase, stream.event_bytes, stream.burst_modes)
        stream.burst_modes = modes


def burst_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """In which modes a variable adds to a burst: one event each, the baseline's in all modes."""
    taken = tuple(modes)
    return (BASELINE_MODE,) if BASELINE_MODE in taken else taken


def stepped_us(us: int) -> int:
    """Rounded up to a step of at most an eighth, so that predictions move rarely.

    A prediction that moves has to be compared with every contract that rests on it.
    """
    step = max(_STEP_US_MIN, (1 << us.bit_length() >> 1) // _STEPS_PER_OCTAVE)
    return -(-us // step) * step
