"""`python -m lab.simulation.tree.disjoint`: contracts of random trees against the wires' own flow.

The exit code is 1 if any contract has another number or kind of paths than the wires allow, or was
refused or lowered for a reason that is not true; or if too many are refused without a verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from lab.simulation.command import print_line
from lab.simulation.tree.disjoint.contracts import UNDECIDED_SHARE_MAX, judged_tree

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if every answer is what the wires allow."""
    known = argparse.ArgumentParser(prog="python -m lab.simulation.tree.disjoint")
    known.add_argument("--first", type=int, default=0, help="seed of the first tree")
    known.add_argument("--trees", type=int, default=60, help="number of trees")
    known.add_argument("--contracts", type=int, default=10, help="number of contracts a tree")
    known.add_argument("--verbose", action="store_true", help="print every contract")
    options = known.parse_args(argv)
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.trees):
        for verdict in judged_tree(seed, options.contracts):
            counts["contracts"] += 1
            counts["faults"] += bool(verdict.fault)
            counts["undecided"] += verdict.is_undecided
            counts[
                "node-disjoint"
                if _is_node(verdict.paths, verdict.allowed.node_disjoint)
                else "link-disjoint"
                if verdict.paths > 1
                else "one path"
                if verdict.paths
                else "refused"
            ] += 1
            if verdict.fault or options.verbose:
                print_line(str(verdict))
    print_line(", ".join(f"{what} {count}" for what, count in counts.items()))
    is_slow = counts["undecided"] > UNDECIDED_SHARE_MAX * counts["contracts"]
    return 1 if counts["faults"] or is_slow else 0


def _is_node(paths: int, node_disjoint: int) -> bool:
    return 1 < paths <= node_disjoint


if __name__ == "__main__":
    sys.exit(main())
