"""Quality of service: requested in each mode between desired and worst, and granted.

Every attribute has a desired and a worst acceptable value (S0 §6.3 `QoSInfo`); a broker grants the
best that fits and reports it. The presets name the application classes of S3 §2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gridstat.model.call_options import checked_calls
from gridstat.model.channel_security import HOP, NONE, Security, check_security
from gridstat.model.errors import LayoutError, ModeNotDefined
from gridstat.model.identifiers import ModeId
from gridstat.model.rate_law import EVERY_MAX, Period, every_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PRIORITY_MIN: Final = 1
PRIORITY_MAX: Final = 6
PRIORITY_DEFAULT: Final = 3
PRIORITY_REPLAY: Final = 8
"""Priority of replayed variables only; below all requestable ones, and below content."""
REDUNDANCY_MAX: Final = 4
PATH_ROUTERS_MAX: Final = 256
"""Routers on one path of a contract when it is granted, those of all clouds together."""
LATENCY_US_MAX: Final = 3_600_000_000
MODES_MAX: Final = 64
BASELINE_MODE: Final = ModeId(0)


@dataclass(frozen=True, slots=True)
class Qos:
    """A granted quality: every n-th slot, a latency bound, and a number of disjoint paths."""

    every: int
    latency_us: int
    redundancy: int
    priority: int


@checked_calls()
@dataclass(frozen=True, slots=True)
class QosRequest:
    """Desired quality in one mode, and the worst acceptable one; None means "as desired".

    The rate is given either as `every` (n-th slot) or as `interval`, which is rounded down to a
    multiple of the publishing period (S0 A7). Priority 1 is the most urgent, 6 the least.
    """

    every: int = 1
    interval: Period | None = None
    latency_us: int = 2_000_000
    redundancy: int = 1
    priority: int = PRIORITY_DEFAULT
    every_worst: int | None = None
    interval_worst: Period | None = None
    latency_us_worst: int | None = None
    redundancy_worst: int | None = None
    priority_worst: int | None = None
    security: Security = NONE
    """Least security of every channel on every path, those of the end-points included."""

    def __post_init__(self) -> None:
        _bounded("every", self.every, 1, EVERY_MAX)
        _bounded("latency_us", self.latency_us, 1, LATENCY_US_MAX)
        _bounded("redundancy", self.redundancy, 1, REDUNDANCY_MAX)
        _bounded("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX)
        check_security(self.security, of="qos")
        _check_interval("interval", self.interval)
        _check_interval("interval_worst", self.interval_worst)
        if self.interval is not None and self.every != 1:
            raise LayoutError("say either every or interval, not both")
        if self.every_worst is not None:
            _bounded("every_worst", self.every_worst, self.every, EVERY_MAX)
        if self.latency_us_worst is not None:
            _bounded("latency_us_worst", self.latency_us_worst, self.latency_us, LATENCY_US_MAX)
        if self.redundancy_worst is not None:
            _bounded("redundancy_worst", self.redundancy_worst, 1, self.redundancy)
        if self.priority_worst is not None:
            _bounded("priority_worst", self.priority_worst, self.priority, PRIORITY_MAX)

    def __repr__(self) -> str:
        given = [
            f"{each.name}={value!r}"
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        ]
        return f"QosRequest({', '.join(given)})"

    def desired(self, period: Period | None) -> Qos:
        """Return the desired quality for a period; raise if that period is too long."""
        return Qos(
            every=_every(self.every, self.interval, period),
            latency_us=self.latency_us,
            redundancy=self.redundancy,
            priority=self.priority,
        )

    def worst(self, period: Period | None) -> Qos:
        """Return the worst acceptable quality; raise like `desired`."""
        desired = self.desired(period)
        every = _every(self.every_worst or desired.every, None, period)
        if self.interval_worst is not None:
            every = _every(1, self.interval_worst, period)
        return Qos(
            every=max(every, desired.every),
            latency_us=self.latency_us_worst or self.latency_us,
            redundancy=self.redundancy_worst or self.redundancy,
            priority=self.priority_worst or self.priority,
        )


@dataclass(frozen=True, slots=True)
class ModalQos:
    """Requested quality in each mode; a subscription without modes is active in all of them.

    The baseline (mode 0) stands for all modes: it is always active.
    """

    modes: dict[int, QosRequest] = field(default_factory=lambda: {BASELINE_MODE: QosRequest()})

    def __post_init__(self) -> None:
        if not self.modes or not all(
            _is_whole(mode) and 0 <= mode < MODES_MAX for mode in self.modes
        ):
            raise LayoutError(f"modes are numbers from 0 to {MODES_MAX - 1}, at least one of them")


def demands_sealing(qos: ModalQos) -> bool:
    """Return whether a contract must go over sealed channels alone."""
    return any(request.security == HOP for request in qos.modes.values())


def undefined_modes(modes: Iterable[int], defined: Collection[int]) -> list[int]:
    """Return the modes that are neither the baseline nor defined, in order."""
    return sorted(mode for mode in modes if mode != BASELINE_MODE and mode not in defined)


def check_modes_defined(modes: Iterable[int], defined: Collection[int]) -> None:
    """Raise `ModeNotDefined` for undefined modes, whose reservations would never be used."""
    unknown = undefined_modes(modes, defined)
    if not unknown:
        return
    names = ", ".join(map(str, unknown))
    raise ModeNotDefined(
        f"mode {names} is not defined" if len(unknown) == 1 else f"modes {names} are not defined",
        hint=f"defined: {', '.join(map(str, sorted(defined)))}; name those, or leave `modes` out"
        if defined
        else "defined: none yet besides the baseline; leave `modes` out",
    )


def _every(every: int, interval: Period | None, period: Period | None) -> int:
    if period is None:
        return 1
    return every if interval is None else every_for(interval, period)


def _is_whole(value: object) -> bool:
    """Check at run time, for callers without mypy: the broker would refuse `nan` only later."""
    return isinstance(value, int)


def _check_interval(name: str, interval: Period | None) -> None:
    if interval is not None and not isinstance(interval, Period):
        raise LayoutError(
            f"{name} is {interval!r}, and must be a Period",
            hint="every tenth of a second is Period(1, 10), every five seconds Period(5, 1)",
        )


def _bounded(name: str, value: int, low: int, high: int) -> None:
    if not _is_whole(value) or not low <= value <= high:
        raise LayoutError(f"{name} is {value}, and must be a whole number from {low} to {high}")


PRESETS: Final[Mapping[str, QosRequest]] = MappingProxyType(
    {
        "protection": QosRequest(latency_us=4_000, redundancy=2, priority=1),
        "wide-area": QosRequest(latency_us=12_000, redundancy=2, priority=2),
        "stabilisation": QosRequest(latency_us=50_000, priority=3),
        "control-centre": QosRequest(latency_us=2_000_000, priority=5),
    }
)
"""The classes of applications: milliseconds, tens of milliseconds, seconds (S3 §2.1)."""


def preset(name: str) -> QosRequest:
    """Return the quality of an application class by its name."""
    try:
        return PRESETS[name]
    except (KeyError, TypeError):  # A list is no key.
        raise LayoutError(
            f"there is no preset {name!r}", hint=f"the presets are {', '.join(PRESETS)}"
        ) from None
