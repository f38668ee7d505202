"""Get a callback when a contract is broken, and bridge the gap with extrapolated values.

    python examples/violations.py c1/north/pmu-1/voltage --edge c1/e0@127.0.0.1:7101

Stop the publisher and watch: one subscription calls back for every late or missing event, the
other extrapolates values along a line through the last four, each marked as such.
"""

from __future__ import annotations

import argparse
import queue
import threading

import gridstat


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Watch a contract for late and missing events.")
    parser.add_argument("variable", help="its full name")
    parser.add_argument(
        "--edge", action="append", required=True, help="name@host:port; twice for two"
    )
    parser.add_argument("--name", default="c1/reader", help="who we are (%(default)s)")
    parser.add_argument("--certificates", default="certificates", help="folder (%(default)s)")
    parser.add_argument("--rate", type=int, default=10, help="events a second (%(default)s)")
    parser.add_argument("--latency-ms", type=float, default=50.0, help="at most (%(default)s)")
    parser.add_argument("--count", type=int, default=10, help="end after so many (%(default)s)")
    parser.add_argument("--timeout", type=float, default=30.0, help="or such peace, s")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    quality = gridstat.qos(rate=options.rate, latency_ms=options.latency_ms)
    violations: queue.Queue[gridstat.Violation] = queue.Queue()
    with gridstat.connect(
        options.edge, name=options.name, certificates=options.certificates
    ) as grid:
        is_live = threading.Event()
        grid.subscribe(
            options.variable,
            qos=quality,
            on_event=lambda _: is_live.set(),
            on_violation=violations.put,
        )
        bridged = grid.subscribe(
            options.variable, qos=quality, extrapolate=gridstat.Polynomial(order=1, points=4)
        )
        # From the grant on every slot is due, whether or not the publisher has sent anything yet.
        is_live.wait(options.timeout)
        print(f"watching {options.variable}", flush=True)
        try:
            for _ in range(options.count):
                broken = violations.get(timeout=options.timeout)
                kind = "extrapolated" if bridged.is_extrapolated else "real"
                print(f"{broken.reason.value}: slot {broken.slot}; value {bridged.value} is {kind}")
        except queue.Empty:
            print(f"all was well for {options.timeout} s")
        print(f"extrapolated {bridged.ledger().extrapolated} values")


if __name__ == "__main__":
    main()
