"""Peers that may not be here: wrong role, cloud, name, date or authority, and who shows nothing."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import (
    CertificateRefused,
    NotAuthorised,
    WrongCloud,
)
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.session_settings import SessionSettings
from gridstat.net.command.session_table import TableSettings
from tests.protocol.command_parties import (
    BROKER,
    END_POINT,
    ROUTER,
    Registry,
    party,
    raw_peer,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path


RAW = "router/c1/raw"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path: Path = tmp_path_factory.mktemp("certificates")
    return Registry(path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry(tmp_path_factory.mktemp("foreign"))


@pytest.mark.feature("S0-142", "S3-47")
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ROUTER])
def test_a_role_that_has_no_business_here_is_told_the_rule(registry: Registry, role: Role) -> None:
    async def talk() -> None:
        intruder = registry.credentials(Identity(role, "c1/intruder"))
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(intruder) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(NotAuthorised))
            assert "allowed roles are router" in str(made.failures[0])
            assert made.failures[0].code == 1015
            assert broker.driver.counters.refused["NotAuthorised"] >= 1
            assert broker.machine.events == made.machine.events == []

    asyncio.run(talk())


def test_a_party_of_another_cloud_is_refused(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials("router/c2/e0")) as stranger,
        ):
            stranger.connect_to(broker)
            await until(lambda: stranger.failed_with(WrongCloud))
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S0-142")
def test_a_server_that_is_not_the_one_asked_for_is_refused(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(ROUTER), serves=[Role.ENDPOINT]) as router,
            party(registry.credentials(END_POINT)) as end_point,
        ):
            end_point.connect_to(router, Identity(Role.ROUTER, "c1/e1"))
            await until(lambda: end_point.failed_with(NotAuthorised))
            assert "router/c1/e0, not router/c1/e1" in str(end_point.failures[0])
            await until(lambda: router.driver.counters.refused["told_bye"] >= 1)
            assert end_point.machine.events == router.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
@pytest.mark.parametrize(
    ("days_off", "word", "told"),
    [
        (-400, "certificate_expired", "certificate expired"),
        (30, "certificate_not_yet_valid", "bad certificate"),
    ],
)
def test_a_client_whose_certificate_is_out_of_date_learns_so(
    registry: Registry, days_off: int, word: str, told: str
) -> None:
    async def talk() -> None:
        client = registry.credentials("router/c1/dated", days_off=days_off)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(client) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(CertificateRefused))
            assert told in str(made.failures[0])
            assert made.failures[0].hint
            await until(lambda: broker.driver.counters.refused[word] >= 1)
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_a_server_whose_certificate_has_expired_is_not_trusted(registry: Registry) -> None:
    async def talk() -> None:
        server = registry.credentials("broker/c1", days_off=-400)
        async with (
            party(server, serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: router.failed_with(CertificateRefused))
            assert "certificate has expired" in str(router.failures[0])
            assert "certificates renew" in router.failures[0].hint
            await until(lambda: broker.driver.counters.refused["refused_by_peer"] >= 1)

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_certificates_of_another_authority_are_worth_nothing(
    registry: Registry, foreign: Registry
) -> None:
    async def talk() -> None:
        stranger = foreign.credentials(ROUTER)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(stranger) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(CertificateRefused))
            assert "same authority" in made.failures[0].hint
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_an_end_point_cannot_pose_as_a_server(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(END_POINT), serves=[Role.ROUTER]) as server,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(server, BROKER)
            await until(lambda: router.failed_with(CertificateRefused))

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
@pytest.mark.parametrize("lacks", ["a certificate", "TLS 1.3", "TLS", "any word"])
def test_who_cannot_prove_itself_never_gets_as_far_as_a_message(
    registry: Registry, lacks: str
) -> None:
    words = {
        "a certificate": "certificate_missing",
        "TLS 1.3": "tls_version",
        "TLS": "not_tls",
        "any word": "hello_deadline",
    }

    async def talk() -> None:
        within_s = 0.1 if lacks == "any word" else 20.0
        table = TableSettings(session=SessionSettings(hello_within_s=within_s, linger_s=0.2))
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER], table=table) as broker:
            context = None
            if lacks == "a certificate":
                context = registry.context(RAW, has_certificate=False)
            elif lacks == "TLS 1.3":
                context = registry.context(RAW)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            try:
                async with raw_peer(broker.address, context) as raw:
                    if lacks == "TLS":
                        raw.say_bytes(b"GET / HTTP/1.1\r\n\r\n")
                    assert await raw.hear() is None
            except (ssl.SSLError, ConnectionResetError):
                pass  # Python's own client raises an exception for an alert or the end.
            await until(lambda: broker.driver.counters.refused[words[lacks]] == 1)
            assert broker.machine.events == []

    asyncio.run(talk())
