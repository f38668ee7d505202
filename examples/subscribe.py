"""Receive a status variable and print every value with the time it took to get here.

    python examples/subscribe.py --data-port 4000 --urgent-port 4001 --count 10

The first line says which ports were taken (0: any free ones), for whoever publishes to them.
"""

from __future__ import annotations

import argparse

import numpy as np

from gridstat.endpoint import Receiver
from gridstat.model.rate_law import Period


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Receive status events and print them.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (%(default)s)")
    parser.add_argument("--data-port", type=int, default=0, help="0: any free port")
    parser.add_argument("--urgent-port", type=int, default=0, help="0: any free port")
    parser.add_argument("--variable", type=int, default=1, help="variable id (%(default)s)")
    parser.add_argument("--per-second", type=int, default=30, help="events a second (%(default)s)")
    parser.add_argument("--count", type=int, default=300, help="end after so many (%(default)s)")
    parser.add_argument("--timeout", type=float, default=10.0, help="or such silence, s")
    return parser.parse_args()


def subscribe(options: argparse.Namespace) -> int:
    """Print until `count` events have come, or nothing came for `timeout` seconds."""
    got = 0
    host, data_port, urgent_port = options.host, options.data_port, options.urgent_port
    with Receiver(host=host, data_port=data_port, urgent_port=urgent_port) as receiver:
        receiver.expect(options.variable, Period(1, options.per_second))
        receiver.start()
        print(
            "listening on {} data port {} urgent port {}".format(host, *receiver.ports), flush=True
        )
        while got < options.count:
            batch = receiver.read(timeout_s=options.timeout)
            if not len(batch):
                break
            taken_ns = batch["received_ns"].astype(np.int64) - batch["created_ns"].astype(np.int64)
            for frequency_hz, ns in zip(batch["value"].view(np.float64), taken_ns, strict=True):
                print(f"{frequency_hz:.4f} Hz after {ns / 1_000:.0f} µs")
            got += len(batch)
    return got


if __name__ == "__main__":
    chosen = arguments()
    print(f"received {subscribe(chosen)} events of variable {chosen.variable}")
