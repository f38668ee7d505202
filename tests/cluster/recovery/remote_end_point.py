"""An end-point that carries out commands in a separate process that can be killed.

A line of JSON on its input is an order, a line of JSON on its output the answer; what it was told
by the cloud when it attached is in its log, on standard error.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridstat.console.access import load_access
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.options import qos
from gridstat.model.errors import GridStatError
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.end_points.feeding import feeding

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.endpoint.violation import Violation

READY = {"is_ready": True}


class RemoteEndPoint:
    """Publishes and subscribes as ordered; publications are fed for as long as it lives."""

    def __init__(self, grid: Connection, feeds: ExitStack) -> None:
        self._grid = grid
        self._feeds = feeds
        self._published: dict[str, Publication] = {}
        self._said: dict[str, list[bool]] = {}
        self._subscribed: dict[str, Subscription] = {}
        self._violations: dict[str, list[Violation]] = {}

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        words = dict(order)
        try:
            return dict(getattr(self, f"do_{words.pop('do')}")(**words))
        except GridStatError as error:
            return {"refused": str(error), "code": error.code}

    def do_publish(self, name: str, rate: int = 60, period_s: int = 0) -> dict[str, Any]:
        """Fed at a rate; or, with a period of some seconds, sent by order."""
        period = Period(period_s, 1) if period_s else Period(1, rate)
        delay_ms = 10_000 if period_s else DELAY_MS
        made = self._grid.publish(name, BuiltinType.FLOAT64, period=period, delay_ms=delay_ms)
        self._published[made.name] = made
        if not period_s:
            self._said[made.name] = self._feeds.enter_context(feeding(made, rate))
        return {"name": made.name, "variable_id": made.variable.variable_id}

    def do_send(self, name: str, created_ns: int) -> dict[str, Any]:
        return {"is_sent": self._published[name].send(1.0, created_ns=created_ns)}

    def do_subscribe(
        self, name: str, redundancy: int = 1, latency_ms: float = 10_000.0
    ) -> dict[str, Any]:
        violations = self._violations.setdefault(name, [])
        wish = qos(redundancy=redundancy, latency_ms=latency_ms)
        made = self._grid.subscribe(name, qos=wish, on_violation=violations.append)
        self._subscribed[name] = made
        return {"subscription_id": made.contract.subscription_id}

    def do_unsubscribe(self, name: str) -> dict[str, Any]:
        self._subscribed.pop(name).unsubscribe()
        return {}

    def do_unsubscribe_all(self) -> dict[str, Any]:
        self._grid.unsubscribe_all()
        self._subscribed.clear()
        return {}

    def do_find(self, pattern: str) -> dict[str, Any]:
        return {"found": [variable.name for variable in self._grid.find(pattern)]}

    def do_facts(self) -> dict[str, Any]:
        return {
            "is_connected": self._grid.is_connected,
            "edges": list(self._grid.edges),
            "published": {
                name: {
                    "variable_id": made.variable.variable_id,
                    "sent": sum(self._said.get(name, ())),
                }
                for name, made in self._published.items()
            },
            "subscribed": {name: self._facts_of(made) for name, made in self._subscribed.items()},
        }

    def _facts_of(self, made: Subscription) -> dict[str, Any]:
        ledger = made.ledger()
        return {
            "subscription_id": made.contract.subscription_id,
            "created_ns": made.created_ns,
            "delivered": ledger.delivered,
            "lost": ledger.lost,
            "paths": [list(path.routers) for path in made.contract.paths],
            "path_ledgers": [asdict(path) for path in ledger.paths],
            "degraded": list(made.contract.degraded),
            "violations": len(self._violations[made.name]),
            "error_code": made.error_code,
            "is_over": made.is_over,
        }


def main(folder: Path, name: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    access = load_access(folder)
    edges = [f"{edge}@{host}:{port}" for edge, (host, port) in access.edges.items()]
    with (
        connect(
            edges,
            name,
            certificates=access.certificates.path,
            timeout_s=60.0,
            answer_within_s=40.0,
        ) as grid,
        ExitStack() as feeds,
    ):
        end_point = RemoteEndPoint(grid, feeds)
        say(READY)
        for line in sys.stdin:
            say(end_point.obey(json.loads(line)))


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
