"""Back-off of a client, addresses as people write them, and who may pass a gate."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, cast

import pytest

from gridstat.model.errors import LayoutError, NotAuthorised, WrongCloud
from gridstat.net.command.address import address_text, parse_address
from gridstat.net.command.dialer import BackOff, Dialer, Target
from gridstat.net.command.identity import Identity, Role, parse_peer
from gridstat.net.command.peer_authorization import ClientAuthorization, ServerAuthorization
from gridstat.net.command.session_settings import SessionCounters, SessionSettings

if TYPE_CHECKING:
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.address import Address
    from gridstat.net.command.session import Session


def test_waits_double_from_50_ms_to_2_s_with_jitter() -> None:
    back_off = BackOff(random.Random(1))
    waits = [back_off.next_s() for _ in range(50)]
    whole = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 44
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, whole, strict=True))
    assert len(set(waits)) == 50


def test_success_brings_the_short_wait_back() -> None:
    back_off = BackOff(random.Random(1))
    for _ in range(20):
        back_off.next_s()
    back_off.reset()
    assert back_off.next_s() <= 0.05


def test_a_wait_may_be_bounded_and_grows_all_the_same() -> None:
    back_off = BackOff(random.Random(1))
    waits = [back_off.next_s(0.5) for _ in range(20)]
    assert max(waits) <= 0.5
    assert back_off.next_s() >= 1.0


@pytest.mark.parametrize(("count", "most_s"), [(1, 2.0), (2, 0.5)])
def test_a_peer_with_several_addresses_is_tried_more_often(count: int, most_s: float) -> None:
    waits_s: list[float] = []
    over = asyncio.Event()

    class Listening(BackOff):
        def next_s(self, most_s: float = 2.0) -> float:
            waits_s.append(min(most_s, 2.0))
            over.set()
            return 0.0

    async def connect(_: Address) -> Session:
        raise ConnectionRefusedError("refused")

    async def dial() -> None:
        target = Target(parse_peer("broker/c1"), [("10.0.0.1", 1 + n) for n in range(count)])
        dialler = Dialer(target, connect, Listening(random.Random(1)), connect_within_s=60.0)
        task = asyncio.create_task(dialler.run())
        await over.wait()
        dialler.stop(task)

    asyncio.run(dial())
    assert waits_s[0] == most_s


def test_a_peer_that_is_away_is_told_once_for_each_address_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[Address] = []

    async def dial() -> None:
        over = asyncio.Event()

        async def connect(address: Address) -> Session:
            attempts.append(address)
            if len(attempts) == 100:
                over.set()
            raise ConnectionRefusedError("refused")

        target = Target(parse_peer("broker/c1"), [("10.0.0.1", 1), ("10.0.0.2", 2)])
        at_once = BackOff(random.Random(1), first_s=0.0, most_s=0.0)
        dialler = Dialer(target, connect, at_once, connect_within_s=60.0)
        task = asyncio.create_task(dialler.run())
        await over.wait()
        dialler.stop(task)

    asyncio.run(dial())
    said = [record.getMessage() for record in caplog.records]
    assert len(attempts) >= 100
    assert sorted(said) == [
        "no_session peer=broker/c1 reason='broker/c1 at 10.0.0.1:1: refused'",
        "no_session peer=broker/c1 reason='broker/c1 at 10.0.0.2:2: refused'",
    ]


class Unanswered:
    """A session with a stopped process, whose system has accepted the connection."""

    def __init__(self) -> None:
        self.finished = asyncio.get_running_loop().create_future()
        self.error: GridStatError | None = None
        self.was_open = self.is_open = False

    def abort(self, error: GridStatError | None = None) -> None:
        if not self.finished.done():
            self.error = error
            self.finished.set_result(None)


def test_a_process_that_accepts_and_says_nothing_does_not_keep_us_from_the_next_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridstat.net.command.dialer.OPEN_MOST_OF_SEVERAL_S", 0.01)
    failures: list[str] = []

    async def dial() -> None:
        reached = asyncio.Event()

        async def connect(address: Address) -> Session:
            if address == ("10.0.0.2", 2):
                reached.set()
            return cast("Session", Unanswered())

        addresses = [("10.0.0.1", 1), ("10.0.0.2", 2)]
        target = Target(
            parse_peer("broker/c1"), addresses, lambda error: failures.append(str(error.args[0]))
        )
        dialler = Dialer(target, connect, BackOff(random.Random(1)), connect_within_s=60.0)
        task = asyncio.create_task(dialler.run())
        await asyncio.wait_for(reached.wait(), 10)
        dialler.stop(task)

    asyncio.run(dial())
    assert failures == ["broker/c1 at 10.0.0.1:1: no answer"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:4700", ("10.0.0.7", 4700)),
        ("e0.example.org:1", ("e0.example.org", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert address_text(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", ":4700", "::1:4700", "host:0", "host:65536", "h:x"),
        pytest.param("h:" + 5_000 * "9", id="more digits than can be read"),
        pytest.param(64 * "x" + ".org:1", id="a part too long to be looked up"),
        pytest.param("a..b:1", id="an empty part"),
        pytest.param("\udc80:1", id="half a character"),
    ],
)
def test_what_is_no_address_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(LayoutError, match="hint"):
        parse_address(text)


ROLES_AT_BROKER = frozenset({Role.ROUTER, Role.OPERATOR})


@pytest.mark.feature("S0-142")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("cloud", ["c1", "c2", "c10"])
def test_only_the_allowed_roles_of_the_own_cloud_pass(role: Role, cloud: str) -> None:
    gate = ServerAuthorization(parse_peer("broker/c1"), ROLES_AT_BROKER)
    identity = Identity(role, f"{cloud}/x")
    if role not in ROLES_AT_BROKER:
        with pytest.raises(NotAuthorised, match="allowed roles are operator, router"):
            gate.check(identity)
    elif cloud != "c1":
        with pytest.raises(WrongCloud, match="only parties of cloud c1"):
            gate.check(identity)
    else:
        gate.check(identity)


@pytest.mark.parametrize("peer", ["router/c1/e1", "broker/c1/e0", "router/c1", "router/c2/e0"])
def test_a_client_accepts_nobody_but_whom_it_called(peer: str) -> None:
    gate = ClientAuthorization(parse_peer("router/c1/e0"))
    gate.check(parse_peer("router/c1/e0"))
    with pytest.raises(NotAuthorised, match="not router/c1/e0"):
        gate.check(parse_peer(peer))


def test_counters_are_told_flat() -> None:
    counters = SessionCounters(frames_in=3)
    counters.refused["certificate_expired"] += 2
    facts = counters.as_facts()
    assert facts["frames_in"] == 3
    assert facts["refused.certificate_expired"] == 2
    assert all(isinstance(count, int) for count in facts.values())


def test_silence_of_less_than_an_interval_is_still_one() -> None:
    assert SessionSettings(ping_interval_s=1, silent_after_s=3).silent_intervals_max == 3
    assert SessionSettings(ping_interval_s=5, silent_after_s=1).silent_intervals_max == 1
