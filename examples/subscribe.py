"""Subscribe to a variable under a contract, and print every value with the time it took.

    python examples/subscribe.py c1/north/pmu-1/voltage --edge c1/e0@127.0.0.1:7101 --rate 10

Two edges and `--redundancy 2` survive the loss of any one router or channel.
"""

from __future__ import annotations

import argparse
import queue

import gridstat


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Subscribe to a variable and print its values.")
    parser.add_argument("variable", help="its full name")
    parser.add_argument(
        "--edge", action="append", required=True, help="name@host:port; twice for two"
    )
    parser.add_argument("--name", default="c1/reader", help="who we are (%(default)s)")
    parser.add_argument("--certificates", default="certificates", help="folder (%(default)s)")
    parser.add_argument("--rate", type=int, default=10, help="events a second (%(default)s)")
    parser.add_argument("--latency-ms", type=float, default=100.0, help="at most (%(default)s)")
    parser.add_argument("--redundancy", type=int, default=1, help="disjoint paths (%(default)s)")
    parser.add_argument("--count", type=int, default=100, help="end after so many (%(default)s)")
    parser.add_argument("--timeout", type=float, default=10.0, help="or such silence, s")
    return parser.parse_args()


def show(contract: gridstat.Contract) -> None:
    """Print the granted quality and the paths."""
    for mode, quality in sorted(contract.granted.items()):
        print(f"mode {mode}: every {quality.every}. slot within {quality.latency_us} µs")
    for path in contract.paths:
        print(f"path {' → '.join(path.routers)}, {path.latency_us} µs predicted", flush=True)


def main() -> None:
    options = arguments()
    quality = gridstat.qos(
        rate=options.rate, latency_ms=options.latency_ms, redundancy=options.redundancy
    )
    arrived: queue.Queue[gridstat.Delivery] = queue.Queue()
    with gridstat.connect(
        options.edge, name=options.name, certificates=options.certificates
    ) as grid:
        found = grid.subscribe(
            options.variable, qos=quality, derived=["average_10"], on_event=arrived.put
        )
        show(found.contract)
        got = 0
        try:
            while got < options.count:
                event = arrived.get(timeout=options.timeout)
                average = event.derived.get("average_10", float("nan"))
                print(f"{event.value:.4f} (average {average:.4f}) after {event.latency_us:.0f} µs")
                got += 1
        except queue.Empty:
            print(f"nothing came for {options.timeout} s")
        print(f"received {got} events of {found.name}; {found.ledger()}")


if __name__ == "__main__":
    main()
