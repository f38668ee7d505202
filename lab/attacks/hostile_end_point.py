"""An end-point with a certificate of its own and bad intentions, in a process of its own.

A line of JSON on its input is an order, a line of JSON on its output the answer. It may announce
the address of somebody else as the place where it receives events.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gridstat.console.access import load_access
from gridstat.endpoint import cloud_link
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.session_events import EndPoint
from gridstat.model.errors import GridStatError
from lab.errors import LabError

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from lab.grid import Grid

CONNECT_S_MAX: Final = 20.0
ENDING_S_MAX: Final = 10.0


class HostileEndPoint:
    """The end-point's process in its namespace; it is killed at the end of the `with` block."""

    def __init__(self, grid: Grid, name: str) -> None:
        self._process = grid.namespaces[name].start(
            [
                *(sys.executable, "-m", "lab.attacks.hostile_end_point"),
                *(grid.plan.full_name(name), grid.files.folder(name)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()

    def ask(self, do: str, **words: object) -> dict[str, Any]:
        """Give an order and return its answer; with `refused` if the grid refuses it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LabError("the hostile end-point has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """End the process without a chance to say so to anybody."""
        self._process.kill()
        self._process.wait(ENDING_S_MAX)


class _Orders:
    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self._name = name
        self._access = load_access(folder)
        self._stack = stack
        self._grid: Connection | None = None

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        words = dict(order)
        try:
            return dict(getattr(self, f"do_{words.pop('do')}")(**words))
        except GridStatError as error:
            return {"refused": str(error), "code": error.code}

    def do_attach(self, edge: str, host: str = "", port: int = 0) -> dict[str, Any]:
        """Attach to an edge; with a host, events shall go there instead of here."""

        def announced(**words: Any) -> EndPoint:  # noqa: ANN401
            ports = {"data_port": port, "urgent_port": port + 1}
            return EndPoint(**{**words, "hosts": (host,), **ports})

        if host:
            setattr(cloud_link, "EndPoint", announced)  # noqa: B010 - mypy holds modules constant.
        name, (at, command_port) = next(
            each for each in self._access.edges.items() if each[0].endswith(f"/{edge}")
        )
        self._grid = self._stack.enter_context(
            connect(
                [f"{name}@{at}:{command_port}"],
                self._name,
                certificates=self._access.certificates.path,
                timeout_s=CONNECT_S_MAX,
            )
        )
        return {"edges": list(self._grid.edges)}

    def do_subscribe(self, name: str) -> dict[str, Any]:
        assert self._grid is not None
        made = self._grid.subscribe(name)
        return {"name": made.name}

    def do_find(self, pattern: str) -> dict[str, Any]:
        assert self._grid is not None
        return {"found": [found.name for found in self._grid.find(pattern)]}

    def do_catch(self, pattern: str, seconds: float) -> dict[str, Any]:
        """Subscribe to a pattern, and return what it has caught after this time."""
        assert self._grid is not None
        caught: list[str] = []
        self._grid.subscribe_pattern(pattern, lambda match: caught.append(match.name))
        time.sleep(seconds)
        return {"caught": caught}


def main(name: str, folder: Path) -> None:
    with ExitStack() as stack:
        orders = _Orders(name, folder, stack)
        for line in sys.stdin:
            sys.stdout.write(json.dumps(orders.obey(json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
