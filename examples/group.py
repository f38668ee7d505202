"""Read several variables as one consistent picture: an event of each, all of the same instant.

    python examples/group.py c1/north/pmu-1/voltage c1/south/pmu-2/voltage \\
        --edge c1/e0@127.0.0.1:7101 --rate 10

The rate must divide the members' own, and their phases must be equal; else the refusal
proposes a rate.
"""

from __future__ import annotations

import argparse
import queue

import gridstat


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Print complete sets of several variables.")
    parser.add_argument("variables", nargs="+", help="their full names")
    parser.add_argument(
        "--edge", action="append", required=True, help="name@host:port; twice for two"
    )
    parser.add_argument("--name", default="c1/reader", help="who we are (%(default)s)")
    parser.add_argument("--certificates", default="certificates", help="folder (%(default)s)")
    parser.add_argument("--rate", type=int, default=10, help="sets a second (%(default)s)")
    parser.add_argument("--latency-ms", type=float, default=200.0, help="at most (%(default)s)")
    parser.add_argument("--count", type=int, default=50, help="end after so many (%(default)s)")
    parser.add_argument("--timeout", type=float, default=10.0, help="or such silence, s")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    complete: queue.Queue[gridstat.GroupSet] = queue.Queue()
    with gridstat.connect(
        options.edge, name=options.name, certificates=options.certificates
    ) as grid:
        group = grid.group(
            "picture",
            interval=gridstat.Period(1, options.rate),
            latency_ms=options.latency_ms,
            history=5,
        )
        group.on_complete(complete.put)
        for name in options.variables:
            group.add(name)
        print(f"members: {', '.join(group.members)}", flush=True)
        try:
            for _ in range(options.count):
                found = complete.get(timeout=options.timeout)
                values = ", ".join(f"{name}={value}" for name, value in found.values.items())
                print(f"slot {found.slot}: {values}")
        except queue.Empty:
            print(f"no set was complete for {options.timeout} s")
        print(f"complete sets: {group.completed}; given up: {group.incomplete}")


if __name__ == "__main__":
    main()
