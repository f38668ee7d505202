"""`python -m benchmarks.roles ROLE`: the roles by name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.roles.conversation import Question, Role, converse
from benchmarks.roles.publisher import PublisherRole
from benchmarks.roles.reference import ReferenceRole
from benchmarks.roles.router import RouterRole
from benchmarks.roles.subscriber import SubscriberRole

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES: dict[str, Callable[[Question], Role]] = {
    "router": RouterRole.from_json,
    "reference": ReferenceRole.from_json,
    "publisher": PublisherRole.from_json,
    "subscriber": SubscriberRole.from_json,
}


def main() -> int:
    """Run the role named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        sys.stderr.write(f"usage: python -m benchmarks.roles {'|'.join(ROLES)}\n")
        return 2
    return converse(ROLES[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
