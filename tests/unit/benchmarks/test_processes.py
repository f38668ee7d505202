"""Child processes: one line in, one line out, and nothing left when the block is left."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.plan import (
    Exit,
    Group,
    Outlet,
    Plan,
    PublisherPlan,
    RouterPlan,
    SubscriberPlan,
    to_json,
)
from benchmarks.processes import Processes

GROUP = Group(first_id=3, count=2, period=None, is_urgent=True, exits=(Exit(9, (2, 3)),))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_leaving_the_block_ends_every_process() -> None:
    with Processes() as processes:
        first, _ = processes.start("a", [sys.executable, "-c", "print('{}'); input()"])
        second, _ = processes.start("b", [sys.executable, "-c", "print('{}'); input()"])
        assert _is_alive(first.pid)
        assert _is_alive(second.pid)
    assert not _is_alive(first.pid)
    assert not _is_alive(second.pid)


def test_an_interrupt_in_the_block_ends_every_process_too() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with Processes() as processes:
            child, _ = processes.start("a", [sys.executable, "-c", "print('{}'); input()"])
            pids.append(child.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not _is_alive(pids[0])


def test_a_process_that_dies_is_reported_with_its_last_words() -> None:
    program = "import sys; sys.exit('no such thing')"
    with Processes() as processes, pytest.raises(BenchmarkError, match="ended early") as caught:
        processes.start("broken", [sys.executable, "-c", program])
    assert "no such thing" in caught.value.hint


def test_a_process_that_keeps_silent_is_given_up() -> None:
    program = "print('{}', flush=True); input(); input()"
    with Processes() as processes:
        child, _ = processes.start("silent", [sys.executable, "-c", program])
        with pytest.raises(BenchmarkError, match="in time"):
            child.ask(within_s=0.05)


def test_a_role_reports_what_went_wrong_inside_it() -> None:
    plan = PublisherPlan(host="127.0.0.1", data_port=9, urgent_port=9)
    with Processes() as processes:
        publisher, _ = processes.start_role("publisher", plan)
        with pytest.raises(BenchmarkError, match="nonsense"):
            publisher.ask({"do": "nonsense"})


@pytest.mark.parametrize(
    "plan",
    [
        RouterPlan(
            outlets=(Outlet(9, "127.0.0.1", 1, 2),),
            groups=(GROUP,),
            publishers=(1,),
            upstreams=(2,),
        ),
        SubscriberPlan(receivers=1, groups=(GROUP,), keep=("ring",), page_path="/nowhere"),
        PublisherPlan(host="127.0.0.1", data_port=1, urgent_port=2, senders=3),
    ],
)
def test_a_plan_survives_its_way_as_json(plan: Plan) -> None:
    assert type(plan).from_json(to_json(plan)) == plan
