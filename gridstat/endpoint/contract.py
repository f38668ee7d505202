"""A contract as its subscriber sees it, and the terms that hold in the active modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.violation import Terms
from gridstat.model.qos import BASELINE_MODE, MODES_MAX
from gridstat.model.short_text import counted, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.model.qos import Qos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import GrantedOutcome, GrantedPath

NS_PER_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract: the promised quality by mode, and the paths.

    `latency_us` is the prediction for the slowest path. With `shares_edge` all paths meet in one
    edge router, whose failure no redundancy can mask. `degraded` lists where the contract is below
    the request. `detection_ms` is the longest time until a dead channel on the paths is detected: 0
    without a channel between routers, None where a broker on the path does not report it.
    `paths_down` has the names of the paths that do not work now; None: unknown since the grant, or
    the broker is of an earlier release.
    """

    subscription_id: int
    variable: StatusVariable | None
    granted: Mapping[int, Qos]
    paths: tuple[GrantedPath, ...] = ()
    is_node_disjoint: bool = True
    shares_edge: bool = False
    degraded: tuple[str, ...] = ()
    detection_ms: int | None = None
    paths_down: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return short_repr(
            self,
            "a pattern" if self.variable is None else self.variable.name,
            f"number {self.subscription_id}",
            counted(len(self.paths), "path"),
            f"{self.latency_us} µs predicted" if self.paths else "",
            "" if self.detection_ms is None else f"detection_ms={self.detection_ms}",
            f"{len(self.paths_down)} down" if self.paths_down else "",
            f"degraded in {len(self.degraded)}" if self.degraded else "",
        )

    @property
    def latency_us(self) -> int:
        """The predicted latency of the slowest path, 0 while there is none."""
        return max((path.latency_us for path in self.paths), default=0)


def contract_of(outcome: GrantedOutcome) -> Contract:
    """Return the contract that an answer states."""
    return Contract(
        subscription_id=outcome.subscription_id,
        variable=outcome.variable,
        granted=dict(outcome.granted),
        paths=outcome.paths,
        is_node_disjoint=outcome.is_node_disjoint,
        shares_edge=outcome.shares_edge,
        degraded=outcome.degraded,
        detection_ms=outcome.detection_ms,
        paths_down=outcome.paths_down,
    )


def terms_in(contract: Contract, modes: int) -> Terms | None:
    """Return the terms of a periodic variable in these modes; None if nothing is due in them.

    A replayed variable has no terms: its slots come at another speed, if at all. Of several modes
    at once the fastest counts: the divisors of one subscription form a chain.
    """
    variable = contract.variable
    active = _active(contract, modes)
    if variable is None or variable.period is None or variable.is_replay or not active:
        return None
    every, latency_us = min(active)
    return Terms(variable.period, variable.phase_ns, every, latency_us * NS_PER_US)


def latency_ns_in(contract: Contract, modes: int) -> int:
    """Return the promised latency in these modes, periodic or not; 0: none is promised."""
    if contract.variable is not None and contract.variable.is_replay:
        return 0
    _, latency_us = min(_active(contract, modes), default=(0, 0))
    return latency_us * NS_PER_US


def _active(contract: Contract, modes: int) -> list[tuple[int, int]]:
    return [
        (qos.every, qos.latency_us)
        for mode, qos in contract.granted.items()
        if mode == BASELINE_MODE or modes >> mode & 1
    ]


def mode_numbers(modes: int) -> frozenset[int]:
    """Return the numbers of the modes in a mask; the baseline is always among them."""
    return frozenset(
        mode for mode in range(MODES_MAX) if mode == BASELINE_MODE or modes >> mode & 1
    )
