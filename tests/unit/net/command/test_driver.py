"""The driver around a machine: order of events, timers, the journal, and the answer to a bug."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import StorageFailed
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.driver import EXIT_BUG, Driver, DriverEnvironment, no_extra_instructions
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Disconnected,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.messages import Ping
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.net.command.machine import Event

TURNS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Poke:
    """An event from outside the command plane."""

    number: int


@dataclass(frozen=True, slots=True)
class Blink:
    """An instruction that only some machines say."""

    number: int


class ScriptedMachine:
    """Machine that returns the script's instructions for an event, and records its events."""

    def __init__(self, script: dict[object, Sequence[object]]) -> None:
        self.script = script
        self.events: list[object] = []

    def handle(self, event: Event | Poke, now_ns: int) -> Sequence[object]:
        self.events.append(event)
        return self.script.get(event, ())


class MemoryJournal:
    """Journal in a list; fails or waits on request."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.is_full = False
        self.gate = asyncio.Event()
        self.gate.set()

    def persist(self, token: int, operations: tuple[bytes, ...]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._persist(token, operations))

    async def _persist(self, token: int, operations: tuple[bytes, ...]) -> None:
        await self.gate.wait()
        if self.is_full:
            raise StorageFailed(f"no room for {token}")
        self.kept += operations


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = CertificateFolder(tmp_path_factory.mktemp("certificates"))
    folder.create_authority()
    return Credentials(folder.issue(Identity(Role.BROKER, "c1")))


class Stage:
    """A driver without peers, whose bugs are kept instead of ending the process."""

    def __init__(
        self,
        credentials: Credentials,
        script: dict[object, Sequence[object]],
        perform: Callable[[object], bool] = no_extra_instructions,
    ) -> None:
        self.machine = ScriptedMachine(script)
        self.bugs: list[BaseException] = []
        self.journal = MemoryJournal()
        self.driver = Driver(
            self.machine,
            credentials,
            perform=perform,
            journal=self.journal,
            environment=DriverEnvironment(on_bug=self.bugs.append),
        )

    async def heard(self, *events: object) -> None:
        """Run the loop until the machine has received exactly these events."""
        for _ in range(TURNS_MAX):
            if self.machine.events == list(events):
                return
            await asyncio.sleep(0)
        assert self.machine.events == list(events)


def test_an_event_from_outside_reaches_the_machine(credentials: Credentials) -> None:
    async def scene() -> None:
        done: list[object] = []

        def perform(instruction: object) -> bool:
            done.append(instruction)
            return True

        stage = Stage(credentials, {Poke(1): [Blink(1), Blink(2)]}, perform)
        stage.driver.inject(Poke(1))
        assert stage.machine.events == [Poke(1)]
        assert done == [Blink(1), Blink(2)]
        await stage.driver.close()

    asyncio.run(scene())


def test_an_event_caused_by_an_instruction_waits_for_its_turn(credentials: Credentials) -> None:
    async def scene() -> None:
        order: list[object] = []

        def perform(instruction: object) -> bool:
            order.append(instruction)
            if instruction == Blink(1):
                stage.driver.inject(Poke(2))
            return True

        stage = Stage(credentials, {Poke(1): [Blink(1), Blink(2)], Poke(2): [Blink(3)]}, perform)
        stage.driver.inject(Poke(1))
        assert order == [Blink(1), Blink(2), Blink(3)]
        await stage.driver.close()

    asyncio.run(scene())


def test_a_timer_fires_once_and_can_be_replaced_or_cancelled(credentials: Credentials) -> None:
    async def scene() -> None:
        hour_ns = 3_600_000_000_000
        stage = Stage(
            credentials,
            {
                Poke(1): [
                    SetTimer("late", hour_ns),
                    SetTimer("twice", hour_ns),
                    SetTimer("twice", 0),
                    SetTimer("never", 0),
                    CancelTimer("never"),
                    CancelTimer("unknown"),
                ]
            },
        )
        stage.driver.inject(Poke(1))
        await stage.heard(Poke(1), TimerFired("twice"))
        await stage.driver.close()
        assert stage.machine.events == [Poke(1), TimerFired("twice")]

    asyncio.run(scene())


def test_what_depends_on_the_journal_is_done_only_when_it_is_durable(
    credentials: Credentials,
) -> None:
    async def scene() -> None:
        then = (SetTimer("then", 0),)
        stage = Stage(credentials, {Poke(1): [Persist(7, (b"a", b"b"), then)]})
        stage.journal.gate.clear()
        stage.driver.inject(Poke(1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.machine.events == [Poke(1)]
        stage.journal.gate.set()
        await stage.heard(Poke(1), Persisted(7), TimerFired("then"))
        assert stage.journal.kept == [b"a", b"b"]
        await stage.driver.close()

    asyncio.run(scene())


def test_operations_become_durable_in_the_order_they_were_said(credentials: Credentials) -> None:
    async def scene() -> None:
        said = [Persist(n, (bytes([n]),)) for n in range(50)]
        stage = Stage(credentials, {Poke(1): said})
        stage.driver.inject(Poke(1))
        await stage.heard(Poke(1), *(Persisted(n) for n in range(50)))
        assert stage.journal.kept == [bytes([n]) for n in range(50)]
        await stage.driver.close()

    asyncio.run(scene())


def test_a_full_disk_is_told_and_nothing_of_it_done(credentials: Credentials) -> None:
    async def scene() -> None:
        stage = Stage(credentials, {Poke(1): [Persist(7, (b"a",), (SetTimer("then", 0),))]})
        stage.journal.is_full = True
        stage.driver.inject(Poke(1))
        await stage.heard(Poke(1), PersistFailed(7, "no room for 7"))
        assert stage.bugs == []
        await stage.driver.close()

    asyncio.run(scene())


def test_closing_lets_the_journal_finish(credentials: Credentials) -> None:
    async def scene() -> None:
        stage = Stage(credentials, {Poke(1): [Persist(7, (b"a",))]})
        stage.driver.inject(Poke(1))
        await stage.driver.close()
        assert stage.machine.events == [Poke(1), Persisted(7)]
        stage.driver.inject(Poke(2))
        assert stage.machine.events == [Poke(1), Persisted(7)]

    asyncio.run(scene())


def test_an_instruction_that_nobody_performs_is_a_bug(credentials: Credentials) -> None:
    async def scene() -> None:
        stage = Stage(credentials, {Poke(1): [Blink(1)]})
        stage.driver.inject(Poke(1))
        assert "nobody performs Blink" in str(stage.bugs)
        await stage.driver.close()

    asyncio.run(scene())


def test_after_a_bug_the_machine_hears_nothing_more(credentials: Credentials) -> None:
    class Broken:
        def handle(self, event: Event | Poke, now_ns: int) -> Sequence[object]:
            raise ZeroDivisionError

    async def scene() -> None:
        bugs: list[BaseException] = []
        driver = Driver(Broken(), credentials, environment=DriverEnvironment(on_bug=bugs.append))
        driver.inject(Poke(1))
        driver.inject(Poke(2))
        assert len(bugs) == 1
        await driver.close()

    asyncio.run(scene())


def test_words_for_people_go_to_the_log_on_one_line(
    credentials: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        facts = (("peer", "router/c1/e0"), ("count", 3), ("reason", "two\nlines"))
        stage = Stage(credentials, {Poke(1): [Note("router_lost", facts)]})
        with caplog.at_level(logging.INFO):
            stage.driver.inject(Poke(1))
        await stage.driver.close()

    asyncio.run(scene())
    assert caplog.messages == [r"router_lost peer=router/c1/e0 count=3 reason='two\nlines'"]


def test_a_warning_of_a_machine_is_a_warning_in_the_log(
    credentials: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        stage = Stage(credentials, {Poke(1): [Note("odd", is_warning=True), Note("plain")]})
        with caplog.at_level(logging.INFO):
            stage.driver.inject(Poke(1))
        await stage.driver.close()

    asyncio.run(scene())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_peers_that_are_not_there_cost_nothing(credentials: Credentials) -> None:
    async def scene() -> None:
        nobody = "router/c1/e9"
        said = [Send(nobody, Ping(number=1)), Close(nobody, 1104, "bye")]
        stage = Stage(credentials, {Disconnected(nobody): said})
        stage.driver.disconnected(nobody)
        assert stage.bugs == []
        assert stage.driver.counters.unsent_messages == 1
        await stage.driver.close()

    asyncio.run(scene())


def test_a_bug_ends_the_process() -> None:
    program = (
        "from gridstat.net.command.driver import end_process\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    end_process(error)\n"
        "print('still here')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == EXIT_BUG
    assert "ZeroDivisionError" in ended.stderr
    assert "still here" not in ended.stdout
