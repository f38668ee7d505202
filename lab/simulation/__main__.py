"""`python -m lab.simulation`: seeds of one cloud."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lab.simulation.campaign import ONE_CLOUD
from lab.simulation.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if everything held, or enough planted bugs were found."""
    return run_command(ONE_CLOUD, argv)


if __name__ == "__main__":
    sys.exit(main())
