"""Processes that a grid needs, and those that it can do without."""

from __future__ import annotations

import asyncio

import pytest

from gridstat.console.processes.supervisor import Job, Supervisor
from gridstat.model.errors import LinkDown

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
