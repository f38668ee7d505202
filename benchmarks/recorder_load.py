"""The load of `recorder_rate.py`: all variables at each slot, as an edge router would send them.

python -m benchmarks.recorder_load DATA_PORT URGENT_PORT VARIABLES RATE SECONDS
"""

from __future__ import annotations

import sys
import time
from typing import Final

import numpy as np

from gridstat.core import _ends

NS_PER_S: Final = 1_000_000_000


def send(ports: tuple[int, int], variables: int, rate: int, seconds: float) -> tuple[int, float]:
    """Send the load; return the number of events and the start; a late slot is sent at once."""
    ids = np.arange(1, variables + 1, dtype=np.uint32)
    values = np.random.default_rng(7).normal(50.0, 0.02, variables)
    stamps = np.empty(variables, np.uint64)
    sent = 0
    began_s = time.monotonic()
    slot = time.time_ns() * rate // NS_PER_S + 1
    last = slot + round(rate * seconds)
    with _ends.Sender(1, ("127.0.0.1", *ports)) as sender:
        while slot < last:
            created_ns = slot * NS_PER_S // rate
            early_ns = created_ns - time.time_ns()
            if early_ns > 0:
                time.sleep(early_ns / NS_PER_S)
            stamps[:] = created_ns
            sent += sender.send_many(ids, values, stamps)
            slot += 1
    return sent, began_s


if __name__ == "__main__":
    data_port, urgent_port, variables, rate = map(int, sys.argv[1:5])
    offered, began_s = send((data_port, urgent_port), variables, rate, float(sys.argv[5]))
    sys.stdout.write(f"{offered} {began_s}\n")
    sys.stdout.flush()
