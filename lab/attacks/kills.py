"""`python -m lab.attacks.kills`: routers and end-points killed again and again, under load.

Every datagram is captured. In the end no channel may have sent two contents under one epoch and
counter, no counter may have begun anew in the same epoch, nothing may have been sent unsealed, and
the capture must have missed nothing and have seen the senders that were started again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.attacks.attacked_grid import MALLORY, MIRROR, PUBLISHER, SUBSCRIBER, AttackedGrid
from lab.attacks.capture import Capture, Finding
from lab.errors import LabError
from lab.load import LoadPlan

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS: Final = 1_000
FOLDER: Final = Path("build/lab/kills")
ROUTERS: Final = ("e0", "e1", "e2", "e3")
SETS: Final = (("e0", "e3", PUBLISHER), ("e1", "e2", SUBSCRIBER))
"""Victims of one round, so that the other way, or the other end, goes on meanwhile."""
LIVES_S_MAX: Final = 1.0
READY_S_MAX: Final = 90.0
TRIES_MAX: Final = 20
EPOCH_S: Final = 3.0
LOAD: Final = LoadPlan(variables=4, redundancy=1, idle=(MALLORY, MIRROR))
"""One way is enough for a contract, so that an end-point that starts beside a dead router gets
one; probes are sealed on all channels."""


def run(folder: Path, kills: int, seed: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Kill so many processes; return the counts, and whether the run is passed."""
    chance, done, began_s = random.Random(seed), {name: 0 for names in SETS for name in names}, 0.0
    shutil.rmtree(folder, ignore_errors=True)
    with AttackedGrid(folder, load=LOAD, epoch_s=EPOCH_S) as attacked, ExitStack() as stack:
        captures = [
            stack.enter_context(Capture(attacked.grid.namespaces[name], folder / f"{name}.capture"))
            for name in ROUTERS
        ]
        began_s = time.monotonic()
        told, total = 0, 0
        while total < kills:
            _revive(attacked)
            victims = chance.choice(SETS)
            _kill_all(attacked, victims, chance)
            for name in victims:
                done[name] += 1
            total += len(victims)
            if total - told >= max(1, kills // 20):
                told = total
                tell(f"{total} of {kills} kills, {time.monotonic() - began_s:.0f} s")
        _revive(attacked)
        attacked.await_whole(within_s=READY_S_MAX)
        finding = sum((capture.end() for capture in captures), Finding())
    routers = sum(done[name] for name in ROUTERS)
    facts = {
        "seed": seed,
        "kills": total,
        "kills_of_routers": routers,
        "kills_of_end_points": total - routers,
        **{name: getattr(finding, name) for name in Finding.__slots__},
        "took_s": round(time.monotonic() - began_s, 1),
    }
    return facts | {"is_passed": is_passed(finding, kills=total) and total >= kills}


def is_passed(finding: Finding, *, kills: int) -> bool:
    """Return whether the capture shows so many restarts, and no key that two processes had."""
    faults = finding.two_contents, finding.starts_in_epoch, finding.plain, finding.dropped
    return not any(faults) and finding.starts >= kills


def _kill_all(attacked: AttackedGrid, victims: tuple[str, ...], chance: random.Random) -> None:
    daemons = [attacked.grid.daemons[name] for name in victims]
    for daemon in daemons:
        daemon.kill()
    for daemon in daemons:
        daemon.start()
    deadline_s = time.monotonic() + READY_S_MAX
    for daemon in daemons:
        try:
            daemon.wait_ready(within_s=max(1.0, deadline_s - time.monotonic()))
        except LabError:
            if daemon.is_running:
                raise
    time.sleep(chance.random() * LIVES_S_MAX)


def _revive(attacked: AttackedGrid) -> None:
    """Start the end-points again that gave up while a router on their only way was dead."""
    for name in (PUBLISHER, SUBSCRIBER):
        daemon = attacked.grid.daemons[name]
        for _ in range(TRIES_MAX):
            if daemon.is_running:
                break
            daemon.start()
            with contextlib.suppress(LabError):
                daemon.wait_ready(within_s=READY_S_MAX)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.attacks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="how many processes")
    parser.add_argument("--seed", type=int, help="of an earlier run; else a new one")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for files and logs")
    asked = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    tell(f"seed {seed}, {asked.kills} kills, files in {asked.folder}")
    facts = run(asked.folder, asked.kills, seed, tell)
    tell(json.dumps(facts))
    return 0 if facts["is_passed"] else 1


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
