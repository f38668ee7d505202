"""A group subscription: several variables read as one consistent set (S0 §3.3, A26)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, overload

from gridstat.endpoint.group_sets import GroupTerms
from gridstat.endpoint.options import (
    EventHandlers,
    QosOptions,
    SubscriptionSpec,
    check_callback,
    check_modes,
    qos,
    qos_from,
)
from gridstat.model.call_options import checked_call, checked_calls
from gridstat.model.errors import GridStatError, GroupMismatch, Misuse, NoSuchVariable
from gridstat.model.group_law import Member
from gridstat.model.qos import BASELINE_MODE, ModalQos, preset
from gridstat.model.short_text import counted, short_repr
from gridstat.model.status import TimeQuality

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.deliverer import Deliverer
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.group_sets import GroupSet, GroupSets
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.model.qos import QosRequest
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable

NS_PER_US: Final = 1_000
QUALITY_HINT: Final = 'grid.group("angles", interval=Period(1, 10), latency_ms=100)'
INTERVAL_OPTIONS: Final = frozenset(
    {"rate", "interval", "every", "rate_worst", "interval_worst", "every_worst"}
)


class GroupKeeper(Protocol):
    """Owner of groups: the connection."""

    def find(self, pattern: str) -> list[StatusVariable]:
        """Return the published variables of a name."""
        ...

    def subscribe_specs(
        self, specs: Sequence[SubscriptionSpec]
    ) -> list[Subscription | GridStatError]:
        """Request contracts for the members."""
        ...

    def forget_group(self, name: str) -> None:
        """Free the name of a group."""
        ...


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Quality requested for all members in each mode; `modes` returns the mask of the active
    ones."""

    qos: ModalQos
    modes: Callable[[], int]

    def of_member(self, options: QosOptions) -> ModalQos:
        """Return the quality of a member with its own options."""
        return ModalQos(
            {mode: _with_options(asked, options) for mode, asked in self.qos.modes.items()}
        )


def group_qos(
    interval: Period | None, latency_ms: float | None, modes: Mapping[int, QosRequest] | None
) -> ModalQos:
    """Return the quality that a group requests in each mode: the same in all, or as `modes`
    says."""
    if modes is not None:
        if interval is not None or latency_ms is not None:
            raise Misuse("say either modes, or interval and latency_ms", hint=QUALITY_HINT)
        return check_modes(modes)
    if interval is None or latency_ms is None:
        raise Misuse("a group needs interval and latency_ms, or modes", hint=QUALITY_HINT)
    return ModalQos({BASELINE_MODE: qos(interval=interval, latency_ms=latency_ms)})


def group_terms(asked: ModalQos) -> dict[int, GroupTerms]:
    """Return the interval and latency of a group's sets in each mode; raise unless each mode has
    one interval."""
    for mode, wanted in asked.modes.items():
        if wanted.interval is None or wanted.interval_worst or wanted.every_worst:
            raise Misuse(
                f"in mode {mode} a group has no interval of its own, or more than one",
                hint="qos(interval=Period(1, 10), latency_ms=100), without a worst interval",
            )
    return {
        mode: GroupTerms(wanted.interval, wanted.latency_us * NS_PER_US)
        for mode, wanted in asked.modes.items()
        if wanted.interval is not None
    }


@checked_calls()
class Group:
    """Members at one common interval, in each mode its own; made by `grid.group`.

        angles = grid.group("angles", interval=Period(1, 10), history=5, latency_ms=100)
        angles.add("c1/north/pmu-1/angle")
        angles.add("c1/south/pmu-2/angle")
        print(angles.latest().values)

    A set is shown when it is complete: one event of each member, all of the same instant. One that
    is not complete within the latency is counted in `incomplete` and never shown.
    """

    def __init__(
        self,
        keeper: GroupKeeper,
        deliverer: Deliverer,
        name: str,
        sets: GroupSets,
        options: GroupOptions,
    ) -> None:
        self._keeper = keeper
        self._deliverer = deliverer
        self._sets = sets
        self._options = options
        self._members: dict[str, Subscription] = {}
        self._callbacks: tuple[Callable[[GroupSet], object], ...] = ()
        self._lock = threading.Lock()
        self._is_over = False
        self.name = name
        deliverer.watch(self)

    def __repr__(self) -> str:
        counts = f"{self.completed} complete, {self.incomplete} incomplete"
        facts = "closed" if self._is_over else counted(len(self._members), "member")
        return short_repr(self, self.name, facts, f"every {self.interval}", counts)

    @property
    def interval(self) -> Period:
        """Interval of the sets: `angles.interval`."""
        return self._sets.interval

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members: `angles.members`."""
        return tuple(sorted(self._members))

    @property
    def completed(self) -> int:
        """Number of complete sets: `angles.completed`."""
        return self._sets.completed

    @property
    def incomplete(self) -> int:
        """Number of sets that were not completed in time: `angles.incomplete`."""
        return self._sets.incomplete

    def member(self, name: str) -> Subscription:
        """The subscription behind a member: `angles.member(name).ledger()`."""
        try:
            return self._members[name]
        except KeyError:
            raise Misuse(
                f"{name} is no member of {self.name}", hint=f"members are {', '.join(self.members)}"
            ) from None

    @checked_call(options=QosOptions)
    def add(self, name: str, **options: Unpack[QosOptions]) -> None:
        """Add a member: `angles.add("c1/north/pmu-1/angle", redundancy=2)`.

        Its period must divide the group's interval, and its phase be the group's: else it is
        refused with `GroupMismatch` and a proposal.
        """
        self._check_open()
        if INTERVAL_OPTIONS.intersection(options):
            raise Misuse("interval is the group's own option", hint="leave rate and the like out")
        if name in self._members:
            raise GroupMismatch(f"{name} is a member of {self.name} already")
        variable = self._variable(name)
        spec = SubscriptionSpec(
            name=name,
            qos=self._options.of_member(options),
            value_type=variable.value_type,
            handlers=EventHandlers(hook=partial(self._hook, name)),
        )
        (found,) = self._keeper.subscribe_specs([spec])
        if isinstance(found, GridStatError):
            raise found
        try:
            with self._lock:
                # Only now: a set that began before could never have been complete.
                self._sets.add(_member(found.variable or variable))
        except GroupMismatch:
            found.unsubscribe()  # Its period has changed since we looked.
            raise
        self._members[name] = found

    def remove(self, name: str) -> None:
        """Remove a member and end its subscription: `angles.remove("c1/north/pmu-1/angle")`."""
        subscription = self.member(name)
        del self._members[name]
        self._drop(name)
        subscription.unsubscribe()

    @overload
    def latest(self) -> GroupSet | None: ...
    @overload
    def latest(self, sets: int) -> tuple[GroupSet, ...]: ...

    def latest(self, sets: int | None = None) -> GroupSet | tuple[GroupSet, ...] | None:
        """Return the newest complete set, or the newest few, newest first.

        `angles.latest().values["c1/north/pmu-1/angle"]`, `angles.latest(3)`
        """
        complete = self._sets.complete
        if sets is not None:
            return tuple(each.copy() for each in complete[:sets])
        return complete[0].copy() if complete else None

    def on_complete(self, callback: Callable[[GroupSet], object]) -> None:
        """Call back with every complete set: `angles.on_complete(lambda found: print(found))`."""
        check_callback("on_complete", callback)
        self._callbacks = (*self._callbacks, callback)

    def close(self) -> None:
        """End the group and the subscriptions of all members: `angles.close()`."""
        if self._is_over:
            return
        members = tuple(self._members.values())
        self.end()
        self._keeper.forget_group(self.name)
        for member in members:
            member.unsubscribe()

    def end(self) -> None:
        """End the group; called by the connection when the members have ended."""
        self._is_over = True
        self._deliverer.unwatch(self)
        self._members.clear()

    # On the delivering thread.

    @property
    def next_due_ns(self) -> int | None:
        """Time at which the next open set is dropped."""
        with self._lock:
            return self._sets.next_due_ns

    def fire(self, arrival: Arrival) -> None:
        """Drop overdue sets."""
        with self._lock:
            self._sets.expire(arrival.steady_ns)

    def _hook(self, name: str, delivery: Delivery, arrival: Arrival) -> None:
        is_good = delivery.time_quality is TimeQuality.GOOD
        age_ns = arrival.age_ns(delivery.created_ns, delivery.received_ns) if is_good else 0
        self._follow(name)
        with self._lock:
            self._sets.set_modes(self._options.modes())
            found = self._sets.take(
                name, delivery, arrival.arrived_ns(delivery.received_ns), age_ns
            )
        self._deliverer.reschedule(self)
        if found is not None:
            self._complete(found)

    def _follow(self, name: str) -> None:
        """Use the new period of a member, or set its error code if the group cannot."""
        subscription = self._members.get(name)
        variable = None if subscription is None else subscription.variable
        if subscription is None or variable is None or variable.period is None:
            return
        with self._lock:
            if self._sets.has(_member(variable)):
                return
            try:
                self._sets.add(_member(variable))
            except GroupMismatch as problem:
                subscription.incoming.holder.set_error_code(problem.code)

    def _complete(self, found: GroupSet) -> None:
        for callback in self._callbacks:
            try:
                callback(found.copy())
            except Exception:
                self._deliverer.failures.report(callback, "on_complete_failed group=%s", self.name)

    def _drop(self, name: str) -> None:
        with self._lock:
            done = self._sets.remove(name)
        for found in done:
            self._deliverer.post(partial(self._complete, found))

    def _variable(self, name: str) -> StatusVariable:
        found = [each for each in self._keeper.find(name) if each.name == name]
        if not found:
            raise NoSuchVariable(f"nobody publishes {name}")
        if found[0].period is None:
            raise GroupMismatch(
                f"{name} is aperiodic, and a group needs a common interval",
                hint="subscribe to it on its own",
            )
        if found[0].is_replay:
            raise GroupMismatch(
                f"{name} is replayed, and the sets of a group have deadlines of the present",
                hint="subscribe to it on its own",
            )
        with self._lock:
            self._sets.check(_member(found[0]))
        return found[0]

    def _check_open(self) -> None:
        if self._is_over:
            raise Misuse(f"the group {self.name} is closed", hint="make another one")


def _with_options(asked: QosRequest, options: QosOptions) -> QosRequest:
    if "preset" in options:
        base = preset(options["preset"])
        asked = replace(base, interval=asked.interval, latency_us=asked.latency_us)
    return qos_from(asked, options)


def _member(variable: StatusVariable) -> Member:
    assert variable.period is not None, "only periodic variables are members"
    return Member(variable.name, variable.period, variable.phase_ns)
