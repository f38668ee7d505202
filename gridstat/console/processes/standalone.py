"""One router in the foreground, for a service manager: `gridstat router FILE NAME`.

SIGTERM and SIGINT drain and end, SIGHUP reads the file again and changes what differs. Readiness
is printed, and told to systemd where NOTIFY_SOCKET names its socket.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from gridstat.console.compose import fixed_addresses
from gridstat.console.grid import router_key
from gridstat.console.processes.router_process import RouterProcess
from gridstat.console.processes.work_loop import stop_signals, wait_for
from gridstat.console.static_plan import static_plan
from gridstat.model.errors import GridStatError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.console.grid import Grid, Router
    from gridstat.console.processes.lines import Address, Line
    from gridstat.console.static_plan import RouterPlan


def run_router(
    name: str,
    load: Callable[[], Grid],
    *,
    on_ready: Callable[[Line], None],
    tell: Callable[[str], None],
) -> Line:
    """Route until a signal; the answer is the last report. `load` reads the file, also anew."""
    router, plan, addresses = _planned(load(), name)
    process = RouterProcess(plan, router.endpoint)
    try:
        with stop_signals() as stopped:
            process.connect(plan, addresses)
            on_ready({"state": "ready", "router": name, "address": process.address})
            notify("READY=1")
            while not stopped.asked:
                wait_for([stopped.fileno], process.wait_s())
                process.work()
                if stopped.take_reload():
                    tell(_reload(process, name, load))
            notify("STOPPING=1")
            process.drain()
            return process.report()
    finally:
        process.close()


def notify(state: str) -> None:
    """Tell the service manager, if there is one; see sd_notify(3)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)


def _planned(grid: Grid, name: str) -> tuple[Router, RouterPlan, dict[str, Address]]:
    router = grid.router(name)
    if router is None:
        known = ", ".join(router.name for router in grid.routers)
        raise UnknownName(f'{grid.source} has no router "{name}"', hint=f"it has {known}")
    plan = static_plan(grid).routers[name]
    needed = {router_key(name), *(channel.to_key for channel in plan.channels)}
    return router, plan, fixed_addresses(grid, needed=needed)


def _reload(process: RouterProcess, name: str, load: Callable[[], Grid]) -> str:
    """Take the changed file; a bad one changes nothing, and the router goes on."""
    try:
        router, plan, addresses = _planned(load(), name)
    except GridStatError as error:
        return f"not reloaded, going on as before: {error}"
    if router.endpoint.address != process.address:
        return "not reloaded: the router's own address changed, which needs a restart"
    process.connect(plan, addresses)
    return f"reloaded: {len(plan.variables)} variables, {len(plan.channels)} channels"
