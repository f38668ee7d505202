"""Schedule of faults, one a trial: every router killed in turn, every wire cut, and so on.

The seed fixes the order, the phase against the publications, and what a faulty wire does to which
frame. Each fault alone leaves a whole way between end-points on two edges, so nothing may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from lab.grid_plan import GridPlan, link_name
from lab.relay import LinkFaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SEED_BITS: Final = 63
HOLD_S: Final = 1.0
STOP_S: Final = 10.0
STOPS_A_ROUND: Final = 2
"""Stops of a round: each takes ten seconds, so a round stops only some of the routers."""

LOSS: Final = 0.05
JITTER_MS: Final = 4.0


class FaultKind(Enum):
    """Kind of harm done to the target."""

    KILL = "kill -9, then restart"
    STOP = "SIGSTOP, then SIGCONT"
    CUT = "cut both ways"
    CUT_FORWARD = "cut forward"
    CUT_BACKWARD = "cut backward"
    LOSS = "loss and jitter"

    @property
    def is_of_a_router(self) -> bool:
        return self in {FaultKind.KILL, FaultKind.STOP}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; its target is the name of a router or of a wire."""

    number: int
    kind: FaultKind
    target: str
    phase_s: float
    hold_s: float
    seed: int

    @property
    def link_faults(self) -> LinkFaults:
        """Return the settings of a wire that is lossy while the fault lasts."""
        return LinkFaults(loss=LOSS, jitter_ms=JITTER_MS, seed=self.seed)

    def __str__(self) -> str:
        return f"trial {self.number}: {self.kind.value} {self.target} for {self.hold_s:g} s"


def schedule(
    plan: GridPlan, seed: int, *, kinds: Sequence[FaultKind] = tuple(FaultKind)
) -> Iterator[Fault]:
    """Yield endless rounds; each has every fault of every kind, in a random order."""
    random = Random(seed)
    routers = [router.name for router in plan.routers]
    wires = [link_name(near, far) for near, far in plan.wires]
    number = 0
    stopped = 0
    while True:
        stops = [routers[(stopped + at) % len(routers)] for at in range(STOPS_A_ROUND)]
        stopped += STOPS_A_ROUND
        targets = {kind: routers if kind.is_of_a_router else wires for kind in kinds}
        if FaultKind.STOP in targets:
            targets[FaultKind.STOP] = stops
        round_ = [(kind, target) for kind in kinds for target in targets[kind]]
        random.shuffle(round_)
        for kind, target in round_:
            number += 1
            yield Fault(
                number=number,
                kind=kind,
                target=target,
                phase_s=random.random() / 10,
                hold_s=STOP_S if kind is FaultKind.STOP else HOLD_S + random.random(),
                seed=random.getrandbits(SEED_BITS),
            )
