"""Credentials and the TLS engine, byte by byte and without a socket."""

from __future__ import annotations

import shutil
import ssl
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import CertificateRefused, LinkDown
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.tls import Credentials, TlsEngine, explain_failure

if TYPE_CHECKING:
    from pathlib import Path

BROKER = Identity(Role.BROKER, "c1")
ROUTER = Identity(Role.ROUTER, "c1/e0")


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path)
    made.create_authority()
    return made


def joined(client: Credentials, server: Credentials) -> tuple[TlsEngine, TlsEngine]:
    ends = (
        TlsEngine(client.context(is_server=False), is_server=False),
        TlsEngine(server.context(is_server=True), is_server=True),
    )
    ends[0].begin()
    for _ in range(3):
        ends[1].receive(ends[0].take())
        ends[0].receive(ends[1].take())
    return ends


def test_two_parties_of_one_authority_agree_on_tls_1_3(folder: CertificateFolder) -> None:
    client, server = joined(Credentials(folder.issue(ROUTER)), Credentials(folder.issue(BROKER)))
    assert client.is_established
    assert server.is_established
    assert client.peer_identity() == BROKER
    assert server.peer_identity() == ROUTER
    assert client._tls.version() == "TLSv1.3"


def test_bytes_of_any_length_pass(folder: CertificateFolder) -> None:
    client, server = joined(Credentials(folder.issue(ROUTER)), Credentials(folder.issue(BROKER)))
    for count in (1, 16_384, 16_385, 1_000_000):
        client.send(bytes(count))
        assert server.receive(client.take()) == bytes(count)


def test_the_end_is_heard(folder: CertificateFolder) -> None:
    client, server = joined(Credentials(folder.issue(ROUTER)), Credentials(folder.issue(BROKER)))
    client.send(b"last")
    client.finish()
    assert server.receive(client.take()) == b"last"
    assert server.is_finished


def test_no_session_is_ever_resumed(folder: CertificateFolder) -> None:
    credentials = Credentials(folder.issue(BROKER))
    assert credentials.context(is_server=True).num_tickets == 0


def test_credentials_tell_who_they_are(folder: CertificateFolder) -> None:
    credentials = Credentials(folder.issue(ROUTER))
    assert credentials.identity == ROUTER
    assert credentials.key.public_key().public_bytes_raw() in credentials.certificate


def test_a_key_of_another_certificate_is_refused(folder: CertificateFolder) -> None:
    files = folder.issue(ROUTER)
    shutil.copy(folder.issue(BROKER).key, files.key)
    with pytest.raises(CertificateRefused, match="is not the key of"):
        Credentials(files)


@pytest.mark.parametrize("missing", ["authority", "certificate", "key"])
def test_a_missing_file_is_named(folder: CertificateFolder, missing: str) -> None:
    files = folder.issue(ROUTER)
    path: Path = getattr(files, missing)
    path.unlink()
    with pytest.raises(CertificateRefused, match=path.name):
        Credentials(files)


def test_renewed_files_are_taken_up(folder: CertificateFolder) -> None:
    credentials = Credentials(folder.issue(ROUTER))
    before = credentials.certificate
    assert credentials.refresh() == ""
    assert credentials.certificate == before
    folder.renew(ROUTER)
    assert credentials.refresh() == ""
    assert credentials.certificate != before


@pytest.mark.parametrize("damage", ["half a file", "another party"])
def test_files_that_cannot_be_used_leave_the_old_ones(
    folder: CertificateFolder, damage: str
) -> None:
    files = folder.issue(ROUTER)
    credentials = Credentials(files)
    before = credentials.certificate
    if damage == "half a file":
        write_whole(files.certificate, files.certificate.read_bytes()[:200])
    else:
        other = folder.issue(Identity(Role.ROUTER, "c1/e1"))
        shutil.copy(other.certificate, files.certificate)
        shutil.copy(other.key, files.key)
    assert files.certificate.name in credentials.refresh()
    assert credentials.certificate == before
    assert credentials.identity == ROUTER


def failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "told by a peer")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "word", "kind"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "refused_by_peer", CertificateRefused),
        ("TLSV1_ALERT_UNKNOWN_CA", "refused_by_peer", CertificateRefused),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "refused_by_peer", CertificateRefused),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "certificate_missing", CertificateRefused),
        ("UNSUPPORTED_PROTOCOL", "tls_version", LinkDown),
        ("WRONG_VERSION_NUMBER", "not_tls", LinkDown),
    ],
)
def test_an_error_of_openssl_becomes_a_message_and_a_hint(
    reason: str, word: str, kind: type[LinkDown]
) -> None:
    counted, told = explain_failure(failure(reason), peer="router/c1/e0")
    assert counted == word
    assert type(told) is kind
    assert "router/c1/e0" in str(told)
    assert told.hint
