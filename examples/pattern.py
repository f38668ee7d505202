"""Subscribe to every variable that matches a pattern, also to those published later.

    python examples/pattern.py "c1/*/*/voltage" --edge c1/e0@127.0.0.1:7101

`*` matches one part of a name, `**` at the end all parts below.
"""

from __future__ import annotations

import argparse
import time

import gridstat


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Catch variables by a pattern of their names.")
    parser.add_argument("pattern", help="such as c1/*/*/voltage or c1/**")
    parser.add_argument(
        "--edge", action="append", required=True, help="name@host:port; twice for two"
    )
    parser.add_argument("--name", default="c1/reader", help="who we are (%(default)s)")
    parser.add_argument("--certificates", default="certificates", help="folder (%(default)s)")
    parser.add_argument("--preset", default="control-centre", help="quality (%(default)s)")
    parser.add_argument("--count", type=int, default=10, help="print so often (%(default)s)")
    parser.add_argument("--every-s", type=float, default=1.0, help="pause between (%(default)s)")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with gridstat.connect(
        options.edge, name=options.name, certificates=options.certificates
    ) as grid:
        pattern = grid.subscribe_pattern(
            options.pattern,
            on_match=lambda found: print(f"caught {found.name}", flush=True),
            preset=options.preset,
        )
        for reason in pattern.missed:
            print(reason)
        for _ in range(options.count):
            time.sleep(options.every_s)
            if not pattern.matched:
                print("no variable matches yet, waiting", flush=True)
                continue
            values = ", ".join(f"{found.name}={found.value}" for found in pattern.matches)
            print(f"{pattern.matched} variables: {values}", flush=True)


if __name__ == "__main__":
    main()
