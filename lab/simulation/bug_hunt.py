"""Hunt for every planted bug: which rule finds it, at which seed, and whether enough are found.

Every bug must be found that is not listed as missed. Of those that were written without a look at
the properties, in both simulations together, nine in ten must be found within a thousand seeds. The
missed ones are looked for last, and not for long: one that is found is to leave the list.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.simulation import unseen_bugs
from lab.simulation.campaign import campaign
from lab.simulation.tree import unseen_bugs as unseen_bugs_of_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.simulation.campaign import Simulation

UNSEEN: Final = frozenset(unseen_bugs.UNSEEN) | frozenset(unseen_bugs_of_trees.UNSEEN)
MISSED: Final = unseen_bugs.MISSED | unseen_bugs_of_trees.MISSED
UNSEEN_SEEDS: Final = 1_000
"""Seeds within which a bug that was written without the properties is to be found."""
MISSED_SEEDS: Final = 1_000
"""Seeds in which a bug is looked for that none is known to find."""
UNSEEN_FOUND_MIN: Final = 0.9


@dataclass(frozen=True, slots=True)
class Hunted:
    """One bug, and the rule and seed that found it; no rule if nothing did."""

    name: str
    rule: str = ""
    seed: int = 0
    seeds: int = 0
    """Seeds up to the one that found it, or all that were looked at."""

    @property
    def is_found(self) -> bool:
        return bool(self.rule)

    def row(self) -> str:
        """Return the row of the table for the documents."""
        by, seed = (self.rule, str(self.seed)) if self.is_found else ("nothing yet", "–")
        return f"| `{self.name}` | {by} | {seed} |"


def hunt(of: Simulation, seeds: range, jobs: int, tell: Callable[[str], None]) -> int:
    """Look for every bug of a simulation; return 0 if enough are found."""
    found = []
    for name in sorted(of.bugs, key=lambda name: name in MISSED):
        began_s = time.monotonic()
        one = look_for(of, name, seeds[:MISSED_SEEDS] if name in MISSED else seeds, jobs)
        found.append(one)
        tell(f"{told(one)}, {time.monotonic() - began_s:.1f} s; {of.bugs[name].description}")
    tell("\n| Bug | Found by | Seed |\n|---|---|---|")
    for one in sorted(found, key=lambda one: one.name):
        tell(one.row())
    lines, is_enough = judged(found)
    tell(f"\n{lines}")
    return 0 if is_enough else 1


def look_for(of: Simulation, bug: str, seeds: range, jobs: int) -> Hunted:
    """Return the first failure that the planted bug causes: without the bug the seed holds."""
    left = seeds
    while left:
        tally = campaign(left, jobs=jobs, bug=bug, failures_max=1, of=of)
        for verdict in tally.failures:
            if of.run_seed(verdict.seed).is_good:
                return Hunted(bug, verdict.rule, verdict.seed, verdict.seed - seeds[0] + 1)
        left = left[tally.failures[-1].seed - left[0] + 1 :] if tally.failures else left[:0]
    return Hunted(bug, seeds=len(seeds))


def told(one: Hunted) -> str:
    if not one.is_found:
        known = " (as is known)" if one.name in MISSED else ""
        return f"{one.name}: NOT FOUND{known} in {one.seeds:,} seeds"
    is_news = one.name in MISSED
    news = "; take it out of MISSED" if is_news else ""
    return f"{one.name}: found at seed {one.seed} ({one.rule}){news}"


def judged(found: Iterable[Hunted]) -> tuple[str, bool]:
    """Return what was found, of what, in words; and whether that is enough.

    Bugs of the other simulation count as its own hunt leaves them: all but the missed are found.
    """
    hunted = list(found)
    wanted = [one for one in hunted if one.name not in MISSED]
    lost = [one.name for one in wanted if not one.is_found]
    soon = {one.name for one in hunted if one.is_found and one.seeds <= UNSEEN_SEEDS}
    soon |= UNSEEN - MISSED - {one.name for one in hunted}
    share = len(UNSEEN & soon) / len(UNSEEN)
    lines = [
        f"{len(wanted) - len(lost)} of {len(wanted)} planted bugs found that are not in MISSED",
        f"{len(UNSEEN & soon)} of {len(UNSEEN)} bugs of both simulations that were written without "
        f"the properties found within {UNSEEN_SEEDS:,} seeds ({share:.0%}, at least "
        f"{UNSEEN_FOUND_MIN:.0%} wanted)",
        *([f"missing: {', '.join(lost)}"] if lost else []),
    ]
    return "\n".join(lines), not lost and share >= UNSEEN_FOUND_MIN
