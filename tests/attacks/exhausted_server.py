"""A server that holds all its descriptors itself: `python -m tests.attacks.exhausted_server`.

It prints its port, and obeys lines of input: `look` waits for some pauses, `free` closes what was
held and waits for the connections that waited.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from gridstat.net.command.identity import Role
from tests.protocol.command_parties import BROKER, Registry, party, until

LIMIT = 64
WAITING = 5
PAUSES = 3


async def serve(folder: Path) -> None:
    registry = Registry(folder)
    loop = asyncio.get_running_loop()
    async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        held: list[int] = []
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        say(port=broker.address[1])
        counters, selector = broker.driver.counters, loop._selector  # type: ignore[attr-defined]
        await asyncio.to_thread(sys.stdin.readline)
        turns, select = 0, selector.select

        def counting(timeout: float | None) -> object:
            nonlocal turns
            turns += 1
            return select(timeout)

        selector.select = counting
        before = counters.accept_pauses
        while counters.accept_pauses < before + PAUSES:  # noqa: ASYNC110 - few turns of its own
            await asyncio.sleep(0.1)
        pauses = counters.accept_pauses - before
        say(accept_pauses=pauses, turns_per_pause=turns / pauses)
        await asyncio.to_thread(sys.stdin.readline)
        for descriptor in held:
            os.close(descriptor)
        await until(lambda: counters.pending == WAITING)
        say(pending=counters.pending)
        await asyncio.to_thread(sys.stdin.readline)


def say(**facts: float) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(Path(folder)))
