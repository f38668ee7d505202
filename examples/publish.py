"""Publish a status variable: a frequency that wanders, so many times a second.

    python examples/subscribe.py --data-port 4000 --urgent-port 4001 &
    python examples/publish.py   --data-port 4000 --urgent-port 4001

The receiving end may be a subscriber, as here, or a status router that knows the channel.
"""

from __future__ import annotations

import argparse
import math
import time

from gridstat.endpoint import Sender
from gridstat.model.rate_law import NS_PER_S


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Publish a frequency as status events.")
    parser.add_argument("--host", default="127.0.0.1", help="where to send (%(default)s)")
    parser.add_argument("--data-port", type=int, required=True, help="its data port")
    parser.add_argument("--urgent-port", type=int, required=True, help="its urgent port")
    parser.add_argument("--channel", type=int, default=1, help="channel id (%(default)s)")
    parser.add_argument("--variable", type=int, default=1, help="variable id (%(default)s)")
    parser.add_argument("--per-second", type=int, default=30, help="events a second (%(default)s)")
    parser.add_argument("--count", type=int, default=300, help="how many events (%(default)s)")
    return parser.parse_args()


def publish(options: argparse.Namespace) -> int:
    """One event at each instant of the period; every instant is the middle of a slot."""
    sent = 0
    slot = time.time_ns() * options.per_second // NS_PER_S + 1
    with Sender(options.channel, (options.host, options.data_port, options.urgent_port)) as sender:
        for _ in range(options.count):
            created_ns = slot * NS_PER_S // options.per_second
            time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
            frequency_hz = 60.0 + 0.02 * math.sin(created_ns / NS_PER_S)
            sent += sender.send(options.variable, frequency_hz, created_ns=created_ns)
            slot += 1
    return sent


if __name__ == "__main__":
    chosen = arguments()
    print(f"published {publish(chosen)} of {chosen.count} events of variable {chosen.variable}")
