"""Small clouds to admit subscriptions to, and an account of them by brute force."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations
from math import lcm
from typing import TYPE_CHECKING

from gridstat.broker.capacity.allocation import Allocation, AllocationRequest, Refusal
from gridstat.broker.capacity.resources import Resources
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.probe_law import PROBES_DEFAULT
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocator import Allocator
    from gridstat.broker.capacity.resources import Claim

EVENT_BYTES = 28 + 16 + 24
"""An event without options, alone in its datagram."""


def wide_enough(bytes_per_s: int) -> int:
    """The least bandwidth of a channel that can promise so much beside its probes."""
    bandwidth = bytes_per_s
    while bandwidth - PROBES_DEFAULT.bytes_per_s_of(bandwidth) < bytes_per_s:
        bandwidth += 1
    return bandwidth


def cloud(
    links: Iterable[tuple[str, str]],
    *,
    bandwidth: int = 0,
    events_per_s_max: int = 1_000_000,
    latency_us: int = 100,
    queue_events_max: int = 1_024,
    mode_sets: tuple[frozenset[int], ...] | None = None,
) -> Resources:
    """Routers as the links name them, with a channel each way between linked ones."""
    resources = Resources() if mode_sets is None else Resources(mode_sets=mode_sets)
    pairs = list(links)
    for name in sorted({name for pair in pairs for name in pair}):
        resources.add_router(Router(name, events_per_s_max=events_per_s_max))
    ends = [end for a, b in pairs for end in ((a, b), (b, a))]
    for number, (near, far) in enumerate(ends, start=1):
        resources.add_channel(
            EventChannel(
                ChannelId(number),
                near,
                far,
                bandwidth_bytes_per_s=bandwidth,
                latency_us=latency_us,
                queue_events_max=queue_events_max,
                security="none",
            )
        )
    return resources


LINE = (("a", "b"), ("b", "c"))
"""a – b – c."""
DIAMOND = (("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"))
"""Two ways from a to d, over b and over c."""
LADDER = (
    ("e0", "i0"),
    ("e1", "i1"),
    ("i0", "i2"),
    ("i1", "i3"),
    ("i0", "i1"),
    ("i2", "i3"),
    ("i2", "e2"),
    ("i3", "e3"),
)
"""Edges e0 and e1 on the left, e2 and e3 on the right, and two rails between them."""


def variable(number: int = 1, hertz: int = 30, *, phase_ns: int = 0) -> StatusVariable:
    return StatusVariable(
        VariableId(number),
        f"c1/pmu/v{number}",
        BuiltinType.FLOAT64,
        Period(1, hertz),
        phase_ns=phase_ns,
    )


def ask(
    number: int,
    taken: StatusVariable,
    ends: tuple[str, str],
    qos: QosRequest | dict[int, QosRequest] | None = None,
    *,
    subscriber: str = "",
) -> AllocationRequest:
    """A request between edges; several edges of one end are written with blanks between them."""
    modes = qos if isinstance(qos, dict) else {0: qos or QosRequest()}
    sources, targets = ends
    return AllocationRequest(
        number,
        taken,
        tuple(sources.split()),
        tuple(targets.split()),
        ModalQos(modes),
        subscriber,
    )


def grant(allocator: Allocator, request: AllocationRequest) -> Allocation:
    answer = allocator.allocate(request)
    assert isinstance(answer, Allocation), answer
    return answer


def refuse(allocator: Allocator, request: AllocationRequest) -> Refusal:
    answer = allocator.allocate(request)
    assert isinstance(answer, Refusal), answer
    return answer


def numbers(resources: Resources) -> dict[str, object]:
    """Return all promised amounts, for a comparison before and after."""
    return {
        "routers": {
            name: (account.events.value, account.latency_us)
            for name, account in resources.routers.items()
        },
        "channels": {
            number: (
                carriage.bytes.value,
                carriage.burst.worst(),
                carriage.latency_us,
                {
                    stream: [(mode, found.counts.divisors(mode)) for mode in found.counts.modes()]
                    for stream, found in carriage.streams.items()
                },
            )
            for number, carriage in resources.channels.items()
        },
        "promises": sorted(resources.promises.keys()),
        "carriers": {
            number: resources.carriers(number)
            for carriage in resources.channels.values()
            for number in carriage.streams
        },
    }


class Recount:
    """Plain recount of the claims, variable by variable and mode by mode."""

    def __init__(self, claims: Iterable[Claim], mode_sets: tuple[frozenset[int], ...]) -> None:
        self._mode_sets = mode_sets
        self._taken: dict[object, dict[int, dict[int, set[int]]]] = {}
        self._variables: dict[int, StatusVariable] = {}
        self._steps: dict[str, list[object]] = {}
        for claim in claims:
            number = claim.variable.variable_id
            self._variables[number] = claim.variable
            self._take(("in", claim.routers[0]), number, {0: 1}, claim.routers[:1])
            for at, channel_id in enumerate(claim.channel_ids):
                self._take(channel_id, number, dict(claim.everys), claim.routers[at : at + 2])
            for taker in claim.takers:
                out = ("out", claim.routers[-1], taker)
                self._take(out, number, dict(claim.everys), claim.routers[-1:])

    def bytes_per_s(self, channel_id: int) -> Fraction:
        return EVENT_BYTES * self._total([channel_id])

    def events_per_s(self, router: str) -> Fraction:
        return self._total(self._steps.get(router, []))

    def _take(
        self, step: object, number: int, everys: dict[int, int], routers: tuple[str, ...]
    ) -> None:
        modes = self._taken.setdefault(step, {}).setdefault(number, {})
        for mode, every in everys.items():
            modes.setdefault(mode, set()).add(every)
        for router in routers:
            steps = self._steps.setdefault(router, [])
            if step not in steps:
                steps.append(step)

    def _total(self, steps: list[object]) -> Fraction:
        def in_mode(mode: int) -> Fraction:
            return sum(
                (
                    self._rate(number, modes, mode)
                    for step in steps
                    for number, modes in self._taken.get(step, {}).items()
                ),
                Fraction(0),
            )

        always = in_mode(0)
        used = {
            mode for step in steps for modes in self._taken.get(step, {}).values() for mode in modes
        }
        return always + sum(
            (
                max((in_mode(mode) - always for mode in modes & used), default=Fraction(0))
                for modes in self._mode_sets
            ),
            Fraction(0),
        )

    def _rate(self, number: int, modes: dict[int, set[int]], mode: int) -> Fraction:
        """Events a second of one variable on one step while this mode is active."""
        due = share_due(frozenset(modes.get(0, set()) | modes.get(mode, set())))
        period = self._variables[number].period
        assert period is not None
        return due * Fraction(period.per_seconds, period.seconds)


@cache
def share_due(divisors: frozenset[int]) -> Fraction:
    """The share of all slots that any of these divisors takes, by inclusion and exclusion."""
    return sum(
        (
            Fraction((-1) ** (count + 1), lcm(*chosen))
            for count in range(1, len(divisors) + 1)
            for chosen in combinations(sorted(divisors), count)
        ),
        Fraction(0),
    )
