"""The two measurements of every experiment: streaming and pacing through one hop."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.plan import (
    EVENT_BYTES,
    MICROSECOND,
    WIDE_EVENT_BYTES,
    Exit,
    Group,
    Keep,
    RouterPlan,
    fitting_period,
)
from benchmarks.rig import LOOPBACK, Place, Rig, Subscriber, run_watched, warm_up_s
from benchmarks.roles.pacing import reached
from benchmarks.statistics import NS_PER_S

OUT = 1_000
"""First identifier of outgoing channels; those of publishers start at 1."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Closed loop at full speed; `per_datagram` 0 packs events up to the MTU."""

    variables: int = 1_000
    event_bytes: int = WIDE_EVENT_BYTES
    per_datagram: int = 1
    in_flight_max: int = 8_192
    receivers: int = 1
    is_counted_by_sink: bool = False
    period: tuple[int, int] = MICROSECOND

    def group(self, exits: tuple[Exit, ...]) -> Group:
        """Return the stream's variables as rows of a router."""
        return Group(first_id=1, count=self.variables, period=self.period, exits=exits)


@dataclass(frozen=True, slots=True)
class Pace:
    """Events at a steady tick: one `send_many` (burst) or `per_tick` separate sends."""

    is_burst: bool = False
    variables: int = 1_000
    per_tick: int = 1
    tick_s: float = 1e-3
    senders: int = 1
    event_bytes: int = WIDE_EVENT_BYTES

    @property
    def period(self) -> tuple[int, int]:
        """Return a period that fits the time until the ticks return to a variable."""
        return fitting_period(self.tick_s * self.variables / self.per_tick)


@dataclass(frozen=True, slots=True)
class Streamed:
    """Throughput through one hop and the hop's CPU time per event delivered."""

    events_per_s: float
    cpu_us: float
    publisher_cpu_us: float
    subscriber_cpu_us: float
    lost: int
    policed: int


@dataclass(frozen=True, slots=True)
class Paced:
    """Latency through one hop at a given rate, and the hop's CPU share of one processor."""

    p50_us: float
    p99_us: float
    mean_us: float
    max_us: float
    cpu_percent: float
    lost: int
    policed: int


def stream_once(
    kind: str,
    stream: Stream,
    seconds: float,
    *,
    ends: Place = Place(LOOPBACK),  # noqa: B008 (a frozen value)
    hops: Place = Place(LOOPBACK),  # noqa: B008
    seal: str = "",
) -> Streamed:
    """Run one closed loop through a new hop of the given kind; `seal` names the library of sealed
    channels."""
    channels = tuple(OUT + index for index in range(stream.receivers))
    exits = tuple(Exit(channel_id) for channel_id in channels)
    group = stream.group(exits)
    with Rig(ends=ends, hops=hops) as rig:
        rig.prepare(kind)
        if stream.is_counted_by_sink:
            subscriber = rig.sink(stream.receivers, event_bytes=stream.event_bytes)
        else:
            keep: tuple[Keep, ...] = ("count",)
            subscriber = rig.subscriber(
                [group], keep * stream.receivers, seal=seal, channels=channels
            )
        outlets = tuple(
            subscriber.outlet(channel_id, index) for index, channel_id in enumerate(channels)
        )
        hop = rig.forwarder(kind, RouterPlan(outlets=outlets, groups=(group,), seal=seal))
        publisher = rig.publisher(hop, subscriber, seal=seal)
        warm_up = warm_up_s(kind, seconds)
        answer, window = run_watched(
            publisher,
            flood_question(stream, seconds + warm_up),
            watched=[hop.process, publisher, subscriber.process],
            pages=[subscriber.pages],
            warm_up=warm_up,
        )
        cpu_us = [1e6 * cpu_s / max(1, window.delivered) for cpu_s in window.cpu_s]
        return Streamed(
            events_per_s=window.delivered / window.seconds,
            cpu_us=cpu_us[0],
            publisher_cpu_us=cpu_us[1],
            subscriber_cpu_us=cpu_us[2],
            lost=int(answer["lost"]),
            policed=hop.policed(),
        )


def pace_once(kind: str, pace: Pace, seconds: float) -> Paced:
    """Run one paced stream through a new hop of the given kind."""
    group = Group(
        first_id=1,
        count=pace.variables,
        period=pace.period,
        sources=pace.senders,
        exits=(Exit(OUT),),
    )
    warm_up = warm_up_s(kind, seconds)
    expected = int(pace.per_tick * (seconds + warm_up) / pace.tick_s)
    with Rig() as rig:
        rig.prepare(kind)
        subscriber = rig.subscriber([group], ["ring"], ring_events=_power_of_two(expected))
        publishers = tuple(range(1, 1 + pace.senders))
        plan = RouterPlan(outlets=(subscriber.outlet(OUT),), groups=(group,), publishers=publishers)
        hop = rig.forwarder(kind, plan)
        publisher = rig.publisher(hop, subscriber, senders=pace.senders)
        answer, window = run_watched(
            publisher,
            {
                "do": "burst" if pace.is_burst else "single",
                "first_id": 1,
                "count": pace.variables,
                "per_tick": pace.per_tick,
                "tick_s": pace.tick_s,
                "event_bytes": pace.event_bytes,
                "period_ns": period_ns(pace.period),
                "seconds": seconds + warm_up,
            },
            watched=[hop.process],
            pages=[],
            warm_up=warm_up,
        )
        let_arrive(subscriber, int(answer["sent"]))
        policed = hop.policed()
        taken = subscriber.take(warm_up_s=warm_up)
    summary = taken["summary"]
    return Paced(
        p50_us=summary["p50_us"],
        p99_us=summary["p99_us"],
        mean_us=summary["mean_us"],
        max_us=summary["max_us"],
        cpu_percent=100.0 * window.cpu_s[0] / window.seconds,
        lost=int(answer["sent"]) - int(taken["taken"]),
        policed=policed,
    )


def let_arrive(subscriber: Subscriber, sent: int) -> None:
    """Wait for the last events, which may be in transit when their publisher is done."""
    reached(lambda: sum(subscriber.pages.delivered()), sent)


def flood_question(stream: Stream, seconds: float) -> dict[str, object]:
    """Return the question to a publisher for a closed loop over variables 1 and up."""
    return {
        "do": "flood",
        "first_id": 1,
        "count": stream.variables,
        "event_bytes": stream.event_bytes,
        "period_ns": period_ns(stream.period),
        "per_datagram": stream.per_datagram,
        "in_flight_max": stream.in_flight_max,
        "chunk_max": max(1, stream.in_flight_max // 2),
        "seconds": seconds,
    }


def period_ns(period: tuple[int, int]) -> int:
    """Return the period in whole nanoseconds, rounded up."""
    return -(-period[0] * NS_PER_S // period[1])


def _power_of_two(events: int) -> int:
    return max(1_024, 1 << (events + events // 4).bit_length())


PACKED = Stream(event_bytes=EVENT_BYTES, per_datagram=0, in_flight_max=65_536)
PACKED_100K = Stream(
    variables=100_000,
    event_bytes=EVENT_BYTES,
    per_datagram=0,
    in_flight_max=65_536,
    period=fitting_period(10e-3),
)
SINGLE = Stream(variables=100)
FAN_OUT = Stream(variables=20, in_flight_max=1_024, receivers=50, is_counted_by_sink=True)
REFERENCE_STREAM = Stream(variables=100, in_flight_max=128, period=fitting_period(2e-3))
LONE = Pace()
PMU_BURST = Pace(is_burst=True, per_tick=30)
PMU_SEPARATE = Pace(per_tick=30, senders=100)
PMU_ALIGNED = Pace(is_burst=True, per_tick=1_000, tick_s=1 / 30)
