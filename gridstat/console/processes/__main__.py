"""A process of `gridstat up`: `python -m gridstat.console.processes`, driven by its first line.

That line says which part to play and carries the whole topology file, so that a process that is
started again has the same table, whatever has become of the file.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid import Endpoint, router_key
from gridstat.console.processes.lines import Line, addresses_of, decoded, encoded
from gridstat.console.processes.pmu_process import PmuProcess
from gridstat.console.processes.router_process import RouterProcess
from gridstat.console.processes.subscriber_process import SubscriberProcess
from gridstat.console.processes.work_loop import serve, write_all
from gridstat.console.static_plan import static_plan
from gridstat.model.errors import GridStatError

if TYPE_CHECKING:
    from gridstat.console.processes.work_loop import Part


def main() -> int:
    commands, answers = sys.stdin.fileno(), sys.stdout.fileno()
    begin = _first_line(commands)
    if begin is None:
        return 0
    try:
        part, ready = _part_of(begin)
    except GridStatError as error:
        failed = {"is": "failed", "message": error.args[0], "hint": error.hint, "code": error.code}
        write_all(answers, encoded(failed))
        return 1
    try:
        write_all(answers, encoded(ready))
        serve(part, commands=commands, answers=answers)
    except BrokenPipeError:
        return 1  # The one that started us is gone; its end of the pipe says so.
    return 0


def _first_line(commands: int) -> Line | None:
    # Byte by byte, so that nothing of the second line is taken from `serve`.
    text = bytearray()
    while not text.endswith(b"\n"):
        received = os.read(commands, 1)
        if not received:
            return None
        text += received
    return decoded(bytes(text))


def _part_of(begin: Line) -> tuple[Part, Line]:
    grid = grid_from_text(begin["text"], file=begin["file"])
    plan = static_plan(grid)
    known = addresses_of(begin)
    match begin["role"], begin["name"]:
        case "router", name:
            router = grid.router(name)
            assert router is not None, "only routers of the file are started"
            host, data_port, urgent_port = known.get(router_key(name), router.endpoint.address)
            routing = RouterProcess(plan.routers[name], Endpoint(host, data_port, urgent_port))
            return routing, routing.ready()
        case "pmus", _:
            measuring = PmuProcess(grid, plan)
            return measuring, measuring.ready()
        case _:
            receiving = SubscriberProcess(grid, plan, known=known)
            return receiving, receiving.ready()


if __name__ == "__main__":
    sys.exit(main())
