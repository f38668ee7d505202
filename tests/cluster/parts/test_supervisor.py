"""Processes that a grid needs, and those that it can do without."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from gridstat.console.processes.supervisor import (
    RESTARTS_MAX,
    Job,
    Supervisor,
    restart_after_s,
)
from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = "gridstat.no_such_module"


async def _told_until_given_up(job: Job) -> list[str]:
    told: list[str] = []
    given_up = asyncio.Event()

    def tell(text: str) -> None:
        told.append(text)
        if text.startswith("going on without it"):
            given_up.set()

    supervisor = Supervisor([[job]], on_message=tell)
    try:
        await supervisor.start(lambda _: None)
        await asyncio.wait_for(given_up.wait(), 40)
        supervisor.raise_failure()
    finally:
        await supervisor.end()
    return told


def test_what_the_grid_can_do_without_is_tried_again_and_then_left_out() -> None:
    job = Job("extra", NOBODY, (), is_needed=False)
    told = asyncio.run(_told_until_given_up(job))
    assert sum("starting it again" in line for line in told) == 5
    assert "extra ended again and again" in told[-1]


def test_what_the_grid_needs_ends_it_when_it_does_not_start() -> None:
    with pytest.raises(LinkDown, match="extra ended before it was ready"):
        asyncio.run(_told_until_given_up(Job("extra", NOBODY, ())))


DYING = """
import os, sys
is_first = not os.path.exists(sys.argv[1])
open(sys.argv[1], "w").close()  # Before it is ready, since it may be killed from then on.
print('{"state": "ready"}', flush=True)
if is_first:
    sys.stdin.read()  # The first one lives until its input ends.
sys.exit("no memory for tables")
"""
LIVING = 'print(\'{"state": "ready"}\', flush=True); import sys; sys.stdin.read()'


async def _watched_until(word: str, groups: list[list[Job]], victim: str) -> list[str]:
    """Kill a process once all are ready; return the messages up to one with this word in it."""
    messages: list[str] = []
    found = asyncio.Event()

    def take(text: str) -> None:
        messages.append(text)
        if word in text:
            found.set()

    supervisor = Supervisor(groups, on_message=take)
    try:
        await supervisor.start(lambda _: None)
        others = {name: pid for name, pid in supervisor.process_ids.items() if name != victim}
        os.kill(supervisor.process_ids[victim], signal.SIGKILL)
        waiting = asyncio.ensure_future(found.wait())
        failing = asyncio.ensure_future(supervisor.failed())
        await asyncio.wait({waiting, failing}, timeout=40, return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        waiting.cancel()
        supervisor.raise_failure()
        assert found.is_set(), messages
        assert supervisor.given_up == {victim}
        for name, pid in others.items():
            assert supervisor.process_ids[name] == pid
            os.kill(pid, 0)
    finally:
        await supervisor.end()
    return messages


def test_one_router_that_dies_again_and_again_is_given_up_and_the_grid_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "dying.py").write_text(DYING)
    (tmp_path / "living.py").write_text(LIVING)
    router = Job("c1/e0", "dying", (str(tmp_path / "was-there"),), is_vital=False)
    other = Job("c1/e1", "living", ())
    messages = asyncio.run(_watched_until("is given up", [[router, other]], "c1/e0"))
    assert sum("starting it again" in line for line in messages) == RESTARTS_MAX
    assert "c1/e0: no memory for tables" in messages
    assert "the rest of the grid runs on" in messages[-1]
    assert "its last lines are above" in messages[-1]
    assert f"python -m dying {tmp_path / 'was-there'}" in messages[-1]


def test_the_time_before_a_restart_grows_up_to_a_bound() -> None:
    waits = [restart_after_s(deaths) for deaths in range(1, 9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
