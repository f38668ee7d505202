"""The process of one status router, as `gridstat up` and `gridstat router` run it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from gridstat.console.compose import Address, build_router, connect_router
from gridstat.console.grid import router_key
from gridstat.console.processes.lines import addresses_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridstat.console.grid import Endpoint
    from gridstat.console.processes.lines import Line
    from gridstat.console.static_plan import RouterPlan

DRAIN_S_MAX: Final = 2.0
DRAIN_STEP_S: Final = 0.005


class RouterProcess:
    """Listens from the start; forwards from `connect` on, when its neighbours are known."""

    def __init__(self, plan: RouterPlan, endpoint: Endpoint) -> None:
        self._plan = plan
        self._router = build_router(plan.name)
        self._is_started = False
        try:
            data_port, urgent_port = self._router.listen(
                endpoint.host, data_port=endpoint.data_port, urgent_port=endpoint.urgent_port
            )
        except BaseException:
            self._router.close()
            raise
        self.address: Address = (endpoint.host, data_port, urgent_port)

    def ready(self) -> Line:
        return {"is": "ready", "addresses": {router_key(self._plan.name): self.address}}

    def handle(self, line: Line) -> Line | None:
        match line["do"]:
            case "connect":
                self.connect(self._plan, addresses_of(line))
                return {"is": "connected"}
            case "report":
                return {"is": "report", **self.report()}
            case _:
                return None

    def connect(self, plan: RouterPlan, addresses: Mapping[str, Address]) -> None:
        """Take a plan, the first one or a changed one, and forward by it."""
        self._plan = plan
        connect_router(self._router, plan, addresses=addresses)
        if not self._is_started:
            self._router.start()
            self._is_started = True

    def report(self) -> Line:
        return {
            "counters": self._router.counters(),
            "channels": self._router.channel_counters(),
            "latency": self._router.latency_histogram(),
        }

    def wait_s(self) -> float | None:
        return self._router.wait_s()

    def filenos(self) -> Sequence[int]:
        return ()

    def work(self) -> None:
        self._router.commit_due()

    def drain(self) -> None:
        """Nothing new comes in, and what is queued goes out, within a bound."""
        self._router.refuse_new()
        deadline_s = time.monotonic() + DRAIN_S_MAX
        while self._router.queued_events() and time.monotonic() < deadline_s:
            time.sleep(DRAIN_STEP_S)

    def close(self) -> None:
        if self._is_started:
            self.drain()
        self._router.close()
