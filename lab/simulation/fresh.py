"""Fresh seeds: every run of the tests looks at a few that no run has looked at before.

Fixed seeds find what comes back, and become blind to everything else. The first fresh seed is drawn
from the system's random source, or is the one in GRIDSTAT_FRESH_SEED, which repeats a run. All of
them are printed before they run; a failure says how to replay it.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from lab.simulation.campaign import ONE_CLOUD, explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.campaign import Simulation

VARIABLE: Final = "GRIDSTAT_FRESH_SEED"
FRESH_MIN: Final = 1_000_000
"""Seeds below are used by tests and in documents."""
FRESH_MAX: Final = 1 << 40
WITHIN_S: Final = 5.0
"""Processor time after which no further fresh seed begins, so that slow machines run fewer."""


def first_fresh_seed() -> int:
    """Return the first seed of this run."""
    named = os.environ.get(VARIABLE, "")
    return int(named) if named else FRESH_MIN + secrets.randbelow(FRESH_MAX)


def run_fresh(
    count: int, *, of: Simulation = ONE_CLOUD, say: Callable[[str], None] = print
) -> list[str]:
    """Run up to so many fresh seeds, at least one; return reports of the failures."""
    first = first_fresh_seed()
    say(f"fresh seeds {first} to {first + count - 1}; the same again: {VARIABLE}={first}")
    began_s = time.process_time()
    found = []
    for seed in range(first, first + count):
        if seed > first and time.process_time() - began_s > WITHIN_S:
            say(f"stopped before seed {seed}: {WITHIN_S:.0f} s are over")
            break
        verdict = of.run_seed(seed)
        if not verdict.is_good:
            say(f"replay: python -m {of.module} --seed {seed} --trace")
            found.append(explain(seed, of=of))
    return found
