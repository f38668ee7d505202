"""The authority, its files, and what a certificate says of its holder."""

from __future__ import annotations

import stat
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import CertificateRefused, ConfigurationError, LayoutError
from gridstat.net.command.certificate_authority import Authority, identity_in
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role
from tests.unit.net.command.fixed_clock import START, FixedClock
from tests.unit.net.command.test_identity import NAMES

if TYPE_CHECKING:
    from pathlib import Path

ROUTER = Identity(Role.ROUTER, "c1/e0")
END_POINT = Identity(Role.ENDPOINT, "c1/north/pmu-1")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def folder(tmp_path: Path, clock: FixedClock) -> CertificateFolder:
    made = CertificateFolder(tmp_path / "certificates", clock)
    made.create_authority()
    return made


def test_a_certificate_names_its_holder_and_hosts(folder: CertificateFolder) -> None:
    files = folder.issue(ROUTER, hosts=["e0.example.org", "10.0.0.7", "fe80::1"])
    summary = folder.summary(files.certificate)
    assert (summary.role, summary.name) == ("router", "c1/e0")
    assert summary.hosts == ("e0.example.org", "10.0.0.7", "fe80::1")
    assert files.certificate.name == "router-c1__e0.pem"


def test_dates_are_a_year_and_ten_years_from_five_minutes_ago(folder: CertificateFolder) -> None:
    folder.issue(ROUTER)
    authority, router = folder.summaries()
    assert authority.not_before == router.not_before == START - timedelta(minutes=5)
    assert router.not_after == START + timedelta(days=365)
    assert authority.not_after == START + timedelta(days=3_650)


def test_keys_are_readable_by_their_owner_only(folder: CertificateFolder) -> None:
    files = folder.issue(ROUTER)
    for key in (files.key, folder.path / "ca.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_only_roles_that_serve_may_be_servers(folder: CertificateFolder) -> None:
    def purposes(identity: Identity) -> x509.ExtendedKeyUsage:
        made = folder.load(folder.issue(identity).certificate)
        return made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes(ROUTER)
    assert ExtendedKeyUsageOID.SERVER_AUTH not in purposes(END_POINT)


def test_an_authority_is_never_replaced_unasked(folder: CertificateFolder) -> None:
    before = (folder.path / "ca.pem").read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"):
        folder.create_authority()
    assert (folder.path / "ca.pem").read_bytes() == before
    folder.create_authority(replace=True)
    assert (folder.path / "ca.pem").read_bytes() != before


def test_a_certificate_is_never_replaced_unasked(folder: CertificateFolder) -> None:
    key = folder.issue(ROUTER).key.read_bytes()
    with pytest.raises(ConfigurationError, match="exists already"):
        folder.issue(ROUTER)
    assert folder.files(ROUTER).key.read_bytes() == key
    folder.issue(ROUTER, replace=True)
    assert folder.files(ROUTER).key.read_bytes() != key


def test_renewal_keeps_key_and_hosts(folder: CertificateFolder, clock: FixedClock) -> None:
    files = folder.issue(ROUTER, hosts=["10.0.0.7"])
    key = files.key.read_bytes()
    clock.move(timedelta(days=300))
    folder.renew(ROUTER)
    summary = folder.summary(files.certificate)
    assert files.key.read_bytes() == key
    assert summary.hosts == ("10.0.0.7",)
    assert summary.not_after == START + timedelta(days=665)


def test_states_follow_the_dates(folder: CertificateFolder, clock: FixedClock) -> None:
    path = folder.issue(ROUTER, days=90).certificate
    states = []
    for days in (-1, 1, 61, 30):
        clock.move(timedelta(days=days))
        states.append(folder.summary(path).state(clock.now))
    assert states == ["not yet valid", "valid", "renew soon", "expired"]


ALIKE = [
    ("c1/e0", "c1__e0"),
    ("c1/e0", "C1/e0"),
    ("c1/a_/b", "c1/a/_b"),
    ("c1/straße", "c1/STRASSE"),
    ("c1/x:y", "c1/x_y"),
    ("c1/" + "a" * 250, "c1/" + "a" * 249 + "b"),
]


@pytest.mark.parametrize("names", ALIKE)
def test_two_identities_never_share_a_key_file(
    folder: CertificateFolder, names: tuple[str, str]
) -> None:
    first, second = (Identity(Role.ROUTER, name) for name in names)
    made = [folder.ensure(first), folder.ensure(second)]
    assert len({one.key.name.casefold() for one in made}) == 2
    assert len({one.key.read_bytes() for one in made}) == 2
    for identity, files in zip((first, second), made, strict=True):
        assert identity_in(folder.load(files.certificate)) == identity
        assert (
            folder.ensure(identity) == folder.renew(identity) == folder.present(identity) == files
        )


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_no_two_names_have_one_file_name_on_a_file_system_that_ignores_case(
    names: list[str],
) -> None:
    first, second = (Identity(Role.ENDPOINT, name).file_stem for name in names)
    assert first.casefold() != second.casefold()
    assert first.isascii()
    assert len(first) <= 128


@pytest.mark.parametrize("name", ["c1__e0", "C1/e0", "c1/x:y", "c1/straße"])
def test_files_that_an_older_release_named_are_still_found(
    folder: CertificateFolder, name: str
) -> None:
    identity = Identity(Role.ROUTER, name)
    made = folder.issue(identity)
    old = f"router-{name.replace('/', '__')}"
    made.key.rename(folder.path / f"{old}.key")
    made.certificate.rename(folder.path / f"{old}.pem")
    found = folder.ensure(identity)
    assert (found.key.name, found.certificate.name) == (f"{old}.key", f"{old}.pem")
    assert folder.present(identity) == folder.renew(identity) == found


def test_an_old_file_of_another_identity_is_left_to_its_owner(folder: CertificateFolder) -> None:
    other = folder.issue(Identity(Role.ROUTER, "c1__e0"))
    other.key.rename(folder.path / "router-c1__e0.key")
    other.certificate.rename(folder.path / "router-c1__e0.pem")
    before = (folder.path / "router-c1__e0.key").read_bytes()
    made = folder.ensure(ROUTER)
    assert made.key.read_bytes() != before
    assert (folder.path / "router-c1__e0.key").read_bytes() == before
    assert folder.ensure(ROUTER) == made


def test_what_exists_is_kept_while_it_is_good(folder: CertificateFolder, clock: FixedClock) -> None:
    files = folder.ensure(ROUTER, hosts=["10.0.0.7"])
    first, key = files.certificate.read_bytes(), files.key.read_bytes()
    folder.ensure(ROUTER)
    assert files.certificate.read_bytes() == first
    clock.move(timedelta(days=300))
    folder.ensure(ROUTER)
    assert files.certificate.read_bytes() != first
    assert files.key.read_bytes() == key


@pytest.mark.parametrize("change", ["another authority", "another host"])
def test_what_no_longer_fits_is_made_anew(folder: CertificateFolder, change: str) -> None:
    key = folder.ensure(ROUTER).key.read_bytes()
    if change == "another authority":
        folder.create_authority(replace=True)
    hosts = ["10.0.0.8"] if change == "another host" else []
    assert folder.ensure(ROUTER, hosts=hosts).key.read_bytes() != key


def test_no_certificate_outlives_its_authority(tmp_path: Path, clock: FixedClock) -> None:
    folder = CertificateFolder(tmp_path, clock)
    folder.create_authority(days=10)
    summary = folder.summary(folder.issue(ROUTER).certificate)
    assert summary.not_after == START + timedelta(days=10)


def test_an_expired_authority_issues_nothing(folder: CertificateFolder, clock: FixedClock) -> None:
    clock.move(timedelta(days=3_651))
    with pytest.raises(CertificateRefused, match="expired"):
        folder.issue(ROUTER)


def test_without_an_authority_nothing_is_issued(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="certificates init"):
        CertificateFolder(tmp_path).issue(ROUTER)


def test_a_key_of_another_authority_is_found_out(folder: CertificateFolder, tmp_path: Path) -> None:
    other = CertificateFolder(tmp_path / "other", FixedClock())
    other.create_authority()
    write_whole(folder.path / "ca.key", (other.path / "ca.key").read_bytes())
    with pytest.raises(CertificateRefused, match="is not the key of"):
        folder.issue(ROUTER)


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_dates_without_sense_are_refused(folder: CertificateFolder, days: int) -> None:
    with pytest.raises(LayoutError, match="days"):
        folder.issue(ROUTER, days=days)


def test_a_host_that_is_neither_name_nor_address_is_refused(folder: CertificateFolder) -> None:
    with pytest.raises(LayoutError, match="DNS name"):
        folder.issue(ROUTER, hosts=["bücher"])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="file"):
        CertificateFolder(tmp_path / "file").create_authority()


def test_a_file_that_is_no_certificate_is_named(folder: CertificateFolder) -> None:
    (folder.path / "router-c1__e1.pem").write_bytes(b"nonsense")
    with pytest.raises(CertificateRefused, match=r"router-c1__e1\.pem"):
        folder.summaries()


def test_a_certificate_of_two_identities_names_nobody() -> None:
    authority = Authority.create(START)
    key = Ed25519PrivateKey.generate()
    one = authority.issue(ROUTER, key.public_key(), START)
    uris = [x509.UniformResourceIdentifier(uri) for uri in (ROUTER.uri, END_POINT.uri)]
    two = (
        x509.CertificateBuilder()
        .subject_name(one.subject)
        .issuer_name(one.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(START + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(uris), critical=False)
        .sign(authority.key, None)
    )
    assert identity_in(one) == ROUTER
    with pytest.raises(CertificateRefused, match="2 URI names"):
        identity_in(two)
