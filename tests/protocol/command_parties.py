"""Parties for tests of the command plane: certificates, machines that record, and raw peers."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.net.clock import SystemClock
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.driver import Driver, DriverEnvironment
from gridstat.net.command.frames import FrameReader, decode_message, frame
from gridstat.net.command.identity import Identity, Role, parse_peer
from gridstat.net.command.machine import Connected, Disconnected, Received
from gridstat.net.command.messages import Hello
from gridstat.net.command.session_settings import SessionSettings
from gridstat.net.command.session_table import TableSettings
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from gridstat.model.errors import GridStatError
    from gridstat.net.command.address import Address
    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.messages import Message

BROKER = Identity(Role.BROKER, "c1")
ROUTER = Identity(Role.ROUTER, "c1/e0")
END_POINT = Identity(Role.ENDPOINT, "c1/north/pmu-1")
WITHIN_S = 30.0

BRISK = SessionSettings(ping_interval_s=0.05, silent_after_s=0.25, hello_within_s=5.0)
"""Pings soon, so that silence is noticed within a test."""

PATIENT = SessionSettings(ping_interval_s=60.0, silent_after_s=180.0, hello_within_s=20.0)
"""Never pings within a test."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state, not for a time."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "the state was not reached"
        await asyncio.sleep(0.002)


class ShiftedClock(SystemClock):
    """The real clock, so many days off."""

    def __init__(self, days: float) -> None:
        self._days = days

    def posix_ns(self) -> int:
        return super().posix_ns() + int(self._days * 86_400e9)


class Registry:
    """An authority, and credentials by peer string; other clouds and dates on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = CertificateFolder(path)
        self.folder.create_authority()

    def credentials(self, peer: str | Identity, *, days_off: float = 0) -> Credentials:
        identity = parse_peer(peer) if isinstance(peer, str) else peer
        folder = CertificateFolder(self._path, ShiftedClock(days_off))
        return Credentials(folder.issue(identity, replace=True))

    def context(self, peer: str, *, has_certificate: bool = True) -> ssl.SSLContext:
        """A client context of Python's own for raw peers."""
        files = self.credentials(peer).files
        context = ssl.create_default_context(cafile=str(files.authority))
        context.check_hostname = False
        if has_certificate:
            context.load_cert_chain(files.certificate, files.key)
        return context


class RecordingMachine:
    """Machine that records its events; `answer` makes its instructions."""

    def __init__(self, answer: Callable[[Event], Sequence[Instruction]] = lambda _: ()) -> None:
        self.events: list[Event] = []
        self.answer = answer

    def handle(self, event: Event, now_ns: int) -> Sequence[Instruction]:
        assert now_ns > 0
        self.events.append(event)
        return self.answer(event)

    def messages(self, peer: str) -> list[Message]:
        return [
            event.message
            for event in self.events
            if isinstance(event, Received) and event.peer == peer
        ]

    def count(self, kind: type[Connected | Disconnected], peer: str) -> int:
        return sum(isinstance(event, kind) and event.peer == peer for event in self.events)

    def is_connected(self, peer: str) -> bool:
        return self.count(Connected, peer) > self.count(Disconnected, peer)


@dataclass
class Party:
    """A driver with its recording machine, and the failures reported to it."""

    driver: Driver[Event]
    machine: RecordingMachine
    identity: Identity
    address: Address = ("", 0)
    failures: list[GridStatError] = field(default_factory=list)
    bugs: list[BaseException] = field(default_factory=list)

    def connect_to(self, other: Party, identity: Identity | None = None) -> None:
        self.driver.connect_to(
            identity or other.identity, [other.address], on_failure=self.failures.append
        )

    def has_connected(self, peer: str, times: int) -> bool:
        return self.machine.count(Connected, peer) == times

    def failed_with(self, kind: type[GridStatError]) -> bool:
        return any(isinstance(error, kind) for error in self.failures)


@asynccontextmanager
async def party(
    credentials: Credentials,
    *,
    serves: Sequence[Role] = (),
    port: int = 0,
    machine: RecordingMachine | None = None,
    table: TableSettings | None = None,
) -> AsyncIterator[Party]:
    """A driver on loopback, listening if it serves any roles."""
    machine = machine or RecordingMachine()
    bugs: list[BaseException] = []
    around = DriverEnvironment(table=table or TableSettings(session=PATIENT), on_bug=bugs.append)
    driver: Driver[Event] = Driver(machine, credentials, environment=around)
    made = Party(driver, machine, credentials.identity, bugs=bugs)
    try:
        if serves:
            made.address = await driver.serve("127.0.0.1", port, serves)
        yield made
    finally:
        await driver.close()
    assert not bugs


class RawPeer:
    """A peer that may say anything: frames and bytes over Python's own TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._bodies: list[bytes] = []

    def say(self, message: Message) -> None:
        self.say_bytes(frame(message))

    def say_bytes(self, raw: bytes) -> None:
        self._writer.write(raw)

    def greet(self, hello: Hello) -> None:
        self.say(hello)

    async def hear(self) -> Message | None:
        """Return the next message; None when the peer has closed."""
        while not self._bodies:
            async with asyncio.timeout(WITHIN_S):
                received = await self._reader.read(65_536)
            if not received:
                return None
            self._bodies += self._frames.feed(received)
        return decode_message(self._bodies.pop(0))

    async def hear_of(self, kind: type[Message]) -> Message:
        """The next message of a kind, past all others."""
        while not isinstance(message := await self.hear(), kind):
            assert message is not None, f"closed before {kind.__name__}"
        return message

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def raw_peer(address: Address, context: ssl.SSLContext | None) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    peer = RawPeer(reader, writer)
    try:
        yield peer
    finally:
        await peer.close()


def hello_of(peer: str, **changes: int | str) -> Hello:
    role, _, name = peer.partition("/")
    fields: dict[str, int | str] = {"role": role, "name": name, "instance": "raw", **changes}
    return Hello(**fields)  # type: ignore[arg-type]
