"""What is started, told and ended when: decided without a process."""

from __future__ import annotations

from gridstat.console.processes.supervision import (
    Connected,
    Ended,
    Failed,
    GiveUp,
    Phase,
    Ready,
    Say,
    Start,
    Supervision,
    Tell,
)

WEST = ("127.0.0.1", 1, 2)
PROCESSES = ("router west", "subscribers", "PMUs")


def running() -> Supervision:
    supervision = Supervision(PROCESSES, publishers=frozenset({"PMUs"}))
    supervision.start()
    supervision.handle(Ready("router west", {"router west": WEST}))
    supervision.handle(Ready("subscribers", {}))
    supervision.handle(Ready("PMUs", {}))
    for process in PROCESSES:
        supervision.handle(Connected(process))
    return supervision


def test_all_processes_are_started_at_once() -> None:
    supervision = Supervision(PROCESSES, publishers=frozenset())
    assert supervision.start() == [Start(process) for process in PROCESSES]
    assert supervision.missing() == PROCESSES


def test_nobody_is_connected_before_all_addresses_are_known() -> None:
    supervision = Supervision(PROCESSES, publishers=frozenset({"PMUs"}))
    supervision.start()
    assert supervision.handle(Ready("router west", {"router west": WEST})) == []
    assert supervision.handle(Ready("PMUs", {})) == []
    told = supervision.handle(Ready("subscribers", {}))
    line = {"do": "connect", "addresses": {"router west": WEST}}
    assert told == [Say(process, line) for process in PROCESSES]


def test_publishers_begin_when_everybody_is_connected() -> None:
    supervision = Supervision(PROCESSES, publishers=frozenset({"PMUs"}))
    supervision.start()
    for process in PROCESSES:
        supervision.handle(Ready(process, {}))
    assert supervision.handle(Connected("PMUs")) == []
    assert supervision.handle(Connected("subscribers")) == []
    assert supervision.handle(Connected("router west")) == [Say("PMUs", {"do": "publish"})]
    assert supervision.phase is Phase.RUNNING


def test_a_process_that_dies_is_started_again_with_its_old_address() -> None:
    supervision = running()
    told = supervision.handle(Ended("router west", "signal SIGKILL"))
    assert told[1:] == [Start("router west", {"router west": WEST})]
    assert isinstance(told[0], Tell)
    line = {"do": "connect", "addresses": {"router west": WEST}}
    again = supervision.handle(Ready("router west", {"router west": WEST}))
    assert again == [Say("router west", line)]
    assert supervision.handle(Connected("router west")) == [
        Tell("router west runs again, with its table")
    ]
    assert supervision.restarted == {"router west"}


def test_publishers_that_were_started_again_publish_again() -> None:
    supervision = running()
    supervision.handle(Ended("PMUs", "exit code 1"))
    supervision.handle(Ready("PMUs", {}))
    assert Say("PMUs", {"do": "publish"}) in supervision.handle(Connected("PMUs"))


def test_a_process_that_dies_twice_ends_everything() -> None:
    supervision = running()
    supervision.handle(Ended("router west", "signal SIGKILL"))
    [told] = supervision.handle(Ended("router west", "signal SIGKILL"))
    assert isinstance(told, GiveUp)
    assert "a second time" in told.message


def test_a_death_while_starting_ends_everything() -> None:
    supervision = Supervision(PROCESSES, publishers=frozenset())
    supervision.start()
    [told] = supervision.handle(Ended("PMUs", "exit code 1"))
    assert isinstance(told, GiveUp)
    assert "while the grid was starting (exit code 1)" in told.message


def test_a_process_that_says_why_is_quoted() -> None:
    supervision = Supervision(PROCESSES, publishers=frozenset())
    supervision.start()
    supervision.handle(Failed("router west", "the port is taken", hint="choose another", code=2000))
    [told] = supervision.handle(Ended("router west", "exit code 1"))
    assert told == GiveUp("router west: the port is taken", hint="choose another", code=2000)


def test_an_end_that_was_asked_for_is_no_news() -> None:
    supervision = running()
    supervision.end()
    assert supervision.handle(Ended("router west", "exit code 0")) == []
