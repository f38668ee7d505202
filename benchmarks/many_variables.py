"""`python -m benchmarks.many_variables`: an end-point that holds many variables until it is ended.

It publishes them, or subscribes to all of another end-point.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from gridstat.console.access import load_access
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType

ANSWER_S_MAX = 300.0
LATENCY_MS = 2_000.0


def main(verb: str, end_point: str, folder: str, publisher: str, count: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    access = load_access(Path(folder))
    edges = [f"{name}@{host}:{port}" for name, (host, port) in access.edges.items()]
    names = [f"{publisher}/held-{at}" for at in range(int(count))]
    with connect(
        edges,
        end_point,
        certificates=access.certificates.path,
        timeout_s=60.0,
        answer_within_s=ANSWER_S_MAX,
    ) as grid:
        if verb == "publish":
            grid.publish_many(names, BuiltinType.FLOAT64, rate=1)
        else:
            grid.subscribe_many(names, qos=qos(latency_ms=LATENCY_MS))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:6])
