"""`python -m benchmarks.roles ROLE`: the roles by name."""

from __future__ import annotations

import importlib
import sys

from benchmarks.roles.conversation import converse

ROLES = {
    "router": "RouterRole",
    "reference": "ReferenceRole",
    "publisher": "PublisherRole",
    "subscriber": "SubscriberRole",
    "end_points": "EndPointsRole",
    "flooder": "FlooderRole",
}
"""Modules of `benchmarks.roles` and their classes; loaded by name, since a run starts many."""


def main() -> int:
    """Run the role named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        sys.stderr.write(f"usage: python -m benchmarks.roles {'|'.join(ROLES)}\n")
        return 2
    module = importlib.import_module(f"benchmarks.roles.{sys.argv[1]}")
    return converse(getattr(module, ROLES[sys.argv[1]]).from_json)


if __name__ == "__main__":
    sys.exit(main())
