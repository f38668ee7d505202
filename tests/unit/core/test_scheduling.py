"""Real-time priority: what is tried, what a refusal comes to, and who inherits what was granted."""

from __future__ import annotations

import os
import resource
import threading

import pytest

from gridstat.core.scheduling import Scheduling, in_real_time, scheduling_granted


class Machine:
    """Grants priorities up to a bound, and notes how the asking thread is scheduled."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.priority_max = 99
        self.soft_limit = 0
        self.nice = 0
        self.policy = os.SCHED_OTHER
        self.priority = 0
        self.tried: list[int] = []
        patch.setattr(os, "sched_getscheduler", lambda _: self.policy)
        patch.setattr(os, "sched_getparam", lambda _: os.sched_param(self.priority))
        patch.setattr(os, "sched_setscheduler", self._set)
        patch.setattr(os, "getpriority", lambda *_: self.nice)
        patch.setattr(resource, "getrlimit", lambda _: (self.soft_limit, self.soft_limit))

    def _set(self, _: int, policy: int, parameters: os.sched_param) -> None:
        if policy == os.SCHED_FIFO:
            self.tried.append(parameters.sched_priority)
            if parameters.sched_priority > self.priority_max:
                raise PermissionError(1, "Operation not permitted")
        self.policy, self.priority = policy, parameters.sched_priority


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_without_an_option_the_usual_priority_is_taken_where_it_is_granted(
    machine: Machine,
) -> None:
    assert scheduling_granted(None, 10) == Scheduling(10)
    assert (machine.policy, machine.priority) == (os.SCHED_OTHER, 0)


def test_a_limit_below_the_usual_priority_is_used_up(machine: Machine) -> None:
    machine.soft_limit = machine.priority_max = 4
    assert scheduling_granted(None, 10) == Scheduling(4)
    assert machine.tried == [4]


def test_a_refusal_leaves_ordinary_scheduling_and_says_why(machine: Machine) -> None:
    machine.priority_max = 0
    granted = scheduling_granted(None, 10)
    assert granted == Scheduling(0, "operation not permitted")
    assert str(granted) == "ordinary (operation not permitted)"
    assert machine.policy == os.SCHED_OTHER


def test_the_option_of_ordinary_scheduling_tries_nothing(machine: Machine) -> None:
    assert scheduling_granted(0, 10) == Scheduling(0, "as configured")
    assert machine.tried == []


def test_a_given_priority_is_tried_as_it_is(machine: Machine) -> None:
    machine.soft_limit = 4
    assert scheduling_granted(50, 10) == Scheduling(50)


@pytest.mark.parametrize(("nice", "policy"), [(5, os.SCHED_OTHER), (0, os.SCHED_IDLE)])
def test_a_process_that_was_made_modest_stays_modest_unless_told(
    machine: Machine, nice: int, policy: int
) -> None:
    machine.nice, machine.policy = nice, policy
    assert scheduling_granted(None, 10).fifo_priority == 0
    assert machine.tried == []
    assert scheduling_granted(10, 10) == Scheduling(10)
    assert machine.policy == policy


def test_the_starting_thread_is_real_time_for_the_block_alone(machine: Machine) -> None:
    with in_real_time(None, 7) as granted:
        assert granted == Scheduling(7)
        assert (machine.policy, machine.priority) == (os.SCHED_FIFO, 7)
    assert (machine.policy, machine.priority) == (os.SCHED_OTHER, 0)


def test_a_failure_in_the_block_gives_the_priority_back(machine: Machine) -> None:
    with pytest.raises(RuntimeError), in_real_time(None, 7):
        raise RuntimeError
    assert machine.policy == os.SCHED_OTHER


def test_a_thread_inherits_what_this_machine_grants() -> None:
    found: list[int] = []
    before = os.sched_getscheduler(0)
    with in_real_time(None, 1) as granted:
        thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
    assert found == [os.SCHED_FIFO if granted.fifo_priority else before]
    assert os.sched_getscheduler(0) == before
