"""Publish a voltage that wanders, so many times a second, with its moving average and its rate.

    python examples/publish.py --edge c1/e0@127.0.0.1:7101 --name c1/north/pmu-1

`gridstat up` starts a cloud to publish to; `gridstat certificates issue endpoint/c1/north/pmu-1`
makes the certificate that proves the name.
"""

from __future__ import annotations

import argparse
import math
import time

import gridstat

NS_PER_S = 1_000_000_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Publish a voltage to the grid.")
    parser.add_argument(
        "--edge", action="append", required=True, help="name@host:port; twice for two"
    )
    parser.add_argument("--name", default="c1/north/pmu-1", help="who we are (%(default)s)")
    parser.add_argument("--certificates", default="certificates", help="folder (%(default)s)")
    parser.add_argument("--quantity", default="voltage", help="what we publish (%(default)s)")
    parser.add_argument("--rate", type=int, default=30, help="events a second (%(default)s)")
    parser.add_argument("--count", type=int, default=300, help="how many events (%(default)s)")
    return parser.parse_args()


def publish(voltage: gridstat.Publication, rate: int, count: int) -> int:
    """Send one event at each instant of the period; every instant is the middle of a slot."""
    sent = 0
    slot = time.time_ns() * rate // NS_PER_S + 1
    for _ in range(count):
        created_ns = -(-slot * NS_PER_S // rate)
        time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
        sent += voltage.send(230.0 + math.sin(created_ns / NS_PER_S), created_ns=created_ns)
        slot += 1
    return sent


def main() -> None:
    options = arguments()
    with gridstat.connect(
        options.edge, name=options.name, certificates=options.certificates
    ) as grid:
        voltage = grid.publish(
            options.quantity,
            gridstat.FLOAT64,
            rate=options.rate,
            derived=[gridstat.MovingAverage(10), gridstat.RateOfChange()],
        )
        print(f"publishing {voltage.name} by {' and '.join(grid.edges)}", flush=True)
        sent = publish(voltage, options.rate, options.count)
        print(f"published {sent} of {options.count} events of {voltage.name}")


if __name__ == "__main__":
    main()
