"""Observer of a grid's brokers in a namespace: each line of input asks one for a survey.

The input line is the name of a broker in a tree, or empty for the broker of a single cloud.

An open session answers in milliseconds; a command started for each survey would take a good part of
a second of a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gridstat.console.access import load_access
from gridstat.console.operator_session import OperatorSession, open_operator_session
from gridstat.model.errors import GridStatError
from gridstat.net.command.messages import Survey
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.netns import Namespace

ENDING_S_MAX = 10.0


class Observer:
    """The observer's process in the namespace; it ends when its input is closed."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._process = namespace.start(
            [sys.executable, "-m", "lab.observer", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(ENDING_S_MAX)
        self._process.stdout.close()

    def survey(self, broker: str = "") -> dict[str, Any]:
        """Return the facts of a broker; only a `refused` reason while it cannot be asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{broker}\n".encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LabError("the observer is gone")
        facts: dict[str, Any] = json.loads(line)
        return facts


async def observe(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    access = load_access(folder)
    desks: dict[str, OperatorSession] = {}
    async with AsyncExitStack() as stack:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            broker = line.strip()
            if broker not in desks:
                seen = access.beside(broker) if broker else access
                desks[broker] = await stack.enter_async_context(open_operator_session(seen))
            try:
                facts = await desks[broker].ask(Survey(request_id=0))
            except GridStatError as error:
                facts = {"refused": str(error)}
            sys.stdout.write(json.dumps(facts) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # The answer has the reason why there is no session.
    asyncio.run(observe(Path(sys.argv[1])))
