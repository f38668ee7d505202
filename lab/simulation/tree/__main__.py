"""`python -m lab.simulation.tree`: seeds of trees of clouds, and a kill at every failpoint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from lab.simulation.campaign import Simulation
from lab.simulation.command import obey, parser, print_line
from lab.simulation.tree.bugs import BUGS
from lab.simulation.tree.failpoints import OPERATIONS, failpoints, kill_at
from lab.simulation.tree.run import run_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

TREES: Final = Simulation("lab.simulation.tree", run_seed, BUGS)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if everything held, or enough planted bugs were found."""
    known = parser(TREES)
    known.add_argument(
        "--failpoints", action="store_true", help="kill each broker at every persist and send"
    )
    options = known.parse_args(argv)
    return _kill_everywhere(options.bug) if options.failpoints else obey(TREES, options)


def _kill_everywhere(bug: str) -> int:
    failed = 0
    for operation in OPERATIONS:
        points = failpoints(operation)
        complaints = [found for point in points if (found := kill_at(point, bug=bug))]
        failed += len(complaints)
        print_line(f"{operation}: {len(points)} failpoints, {len(complaints)} failures")
        for complaint in complaints:
            print_line(f"  {complaint}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
