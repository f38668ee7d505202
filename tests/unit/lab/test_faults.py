"""The schedule of faults: complete, fixed by its seed, and spread over the publications' phase."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from lab.faults import JITTER_MS, LOSS, STOPS_A_ROUND, Fault, FaultKind, schedule
from lab.grid_plan import link_name, two_ways

PLAN = two_ways()
ROUTERS = {router.name for router in PLAN.routers}
WIRES = {link_name(*wire) for wire in PLAN.wires}
A_ROUND = len(ROUTERS) + STOPS_A_ROUND + 4 * len(WIRES)


def faults(count: int, *, seed: int = 1) -> list[Fault]:
    return list(islice(schedule(PLAN, seed), count))


def targets(kind: FaultKind, among: list[Fault]) -> Counter[str]:
    return Counter(fault.target for fault in among if fault.kind is kind)


def test_a_round_kills_each_router_and_cuts_each_wire_in_each_way() -> None:
    one_round = faults(A_ROUND)
    assert targets(FaultKind.KILL, one_round) == Counter(ROUTERS)
    for kind in (FaultKind.CUT, FaultKind.CUT_FORWARD, FaultKind.CUT_BACKWARD, FaultKind.LOSS):
        assert targets(kind, one_round) == Counter(WIRES)


def test_rounds_take_turns_in_whom_they_stop() -> None:
    several = faults(A_ROUND * len(ROUTERS) // STOPS_A_ROUND)
    assert targets(FaultKind.STOP, several) == Counter(ROUTERS)
    assert {fault.hold_s for fault in several if fault.kind is FaultKind.STOP} == {10.0}


def test_the_seed_fixes_everything() -> None:
    assert faults(100, seed=7) == faults(100, seed=7)
    assert faults(100, seed=7) != faults(100, seed=8)


def test_kinds_can_be_chosen() -> None:
    chosen = list(islice(schedule(PLAN, 1, kinds=[FaultKind.KILL]), 20))
    assert {fault.kind for fault in chosen} == {FaultKind.KILL}
    assert set(targets(FaultKind.KILL, chosen)) == ROUTERS


def test_faults_fall_anywhere_between_two_publications() -> None:
    phases = [fault.phase_s % (1 / 60) for fault in faults(300)]
    quarters = Counter(int(phase * 240) for phase in phases)
    assert set(quarters) == {0, 1, 2, 3}


def test_a_lossy_wire_has_the_loss_and_jitter_asked_and_a_seed_of_its_own() -> None:
    lossy = [fault.link_faults for fault in faults(200) if fault.kind is FaultKind.LOSS]
    assert {(faults.loss, faults.jitter_ms) for faults in lossy} == {(LOSS, JITTER_MS)}
    assert len({faults.seed for faults in lossy}) == len(lossy)
