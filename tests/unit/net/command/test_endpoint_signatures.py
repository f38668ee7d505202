"""Signed requests, and the broker's check of certificate and signature."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridstat.model.errors import CertificateRefused, NotAuthorised
from gridstat.net.command.certificate_authority import Authority, certificate_pem
from gridstat.net.command.endpoint_signatures import (
    CERTIFICATE_BYTES_MAX,
    AuthorityVerifier,
    certificate_der,
    sign,
    signed_bytes,
)
from gridstat.net.command.identity import Identity, Role
from tests.unit.net.command.fixed_clock import START, FixedClock

NAME = "c1/north/pmu-1"
END_POINT = Identity(Role.ENDPOINT, NAME)


class Party:
    """An authority, an end-point of it, and a broker's verifier."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.authority = Authority.create(START)
        self.key = Ed25519PrivateKey.generate()
        made = self.authority.issue(END_POINT, self.key.public_key(), START)
        self.der = certificate_der(made)
        pem = certificate_pem(self.authority.certificate)
        self.verifier = AuthorityVerifier(lambda: pem, self.clock)


@pytest.fixture(scope="module")
def party() -> Party:
    return Party()


@pytest.fixture(autouse=True)
def _back_to_the_start(party: Party) -> None:
    party.clock.now = START


def test_a_certificate_tells_role_name_key_and_end(party: Party) -> None:
    facts = party.verifier.certificate(party.der)
    assert (facts.role, facts.name) == ("endpoint", NAME)
    assert facts.public_key == party.key.public_key().public_bytes_raw()
    assert facts.not_after_s == int((START + timedelta(days=365)).timestamp())


@pytest.mark.feature("S0-142")
def test_only_the_holder_of_the_key_can_sign(party: Party) -> None:
    public_key = party.verifier.certificate(party.der).public_key
    good = sign(party.key, NAME, 7, b"body")
    forged = sign(Ed25519PrivateKey.generate(), NAME, 7, b"body")
    message = signed_bytes(NAME, 7, b"body")
    assert party.verifier.signature(public_key, message, good)
    assert not party.verifier.signature(public_key, message, forged)
    assert not party.verifier.signature(public_key, message, b"")


@pytest.mark.feature("S0-142")
@pytest.mark.parametrize(
    "changed",
    [
        signed_bytes("c1/north/pmu-2", 7, b"body"),
        signed_bytes(NAME, 8, b"body"),
        signed_bytes(NAME, 7, b"bodY"),
        signed_bytes(NAME, 7, b"body "),
    ],
    ids=["name", "request", "body", "longer body"],
)
def test_a_signature_is_good_for_one_request_of_one_end_point(party: Party, changed: bytes) -> None:
    good = sign(party.key, NAME, 7, b"body")
    assert not party.verifier.signature(party.key.public_key().public_bytes_raw(), changed, good)


def test_name_and_body_cannot_be_shifted_into_each_other() -> None:
    assert signed_bytes("c1/a", 7, b"body") != signed_bytes("c1/ab", 7, b"ody")


def test_a_key_that_is_no_key_verifies_nothing(party: Party) -> None:
    assert not party.verifier.signature(b"short", b"message", b"x" * 64)


def test_dates_are_checked(party: Party) -> None:
    party.clock.move(timedelta(days=366))
    with pytest.raises(CertificateRefused, match="expired on 2027-03-01"):
        party.verifier.certificate(party.der)
    party.clock.now = START - timedelta(hours=1)
    with pytest.raises(CertificateRefused, match="valid only from"):
        party.verifier.certificate(party.der)


def test_another_authority_is_refused(party: Party) -> None:
    foreign = Authority.create(START).issue(END_POINT, party.key.public_key(), START)
    with pytest.raises(CertificateRefused, match="not signed by"):
        party.verifier.certificate(certificate_der(foreign))


def test_an_authority_of_the_same_name_is_refused_too(party: Party) -> None:
    impostor = Authority(party.authority.certificate, Ed25519PrivateKey.generate())
    forged = impostor.issue(END_POINT, party.key.public_key(), START)
    with pytest.raises(CertificateRefused, match="not signed by"):
        party.verifier.certificate(certificate_der(forged))


def test_during_a_roll_over_both_authorities_are_trusted(party: Party) -> None:
    newer = Authority.create(START)
    pem = certificate_pem(party.authority.certificate) + certificate_pem(newer.certificate)
    verifier = AuthorityVerifier(lambda: pem, party.clock)
    made = newer.issue(END_POINT, party.key.public_key(), START)
    assert verifier.certificate(party.der) == verifier.certificate(certificate_der(made))


def test_an_authority_that_was_removed_since_is_not_trusted_any_more(party: Party) -> None:
    old, newer = party.authority, Authority.create(START)
    trusted = [certificate_pem(old.certificate)]
    verifier = AuthorityVerifier(lambda: trusted[0], party.clock)
    verifier.certificate(party.der)
    trusted[0] = certificate_pem(newer.certificate)
    with pytest.raises(CertificateRefused, match="not signed by the grid's authority"):
        verifier.certificate(party.der)
    verifier.certificate(certificate_der(newer.issue(END_POINT, party.key.public_key(), START)))


def test_the_authority_itself_is_no_end_point(party: Party) -> None:
    with pytest.raises(NotAuthorised, match="authority"):
        party.verifier.certificate(certificate_der(party.authority.certificate))


def test_a_key_of_another_kind_is_refused(party: Party) -> None:
    issued = x509.load_der_x509_certificate(party.der)
    builder = x509.CertificateBuilder(
        issuer_name=issued.issuer,
        subject_name=issued.subject,
        public_key=generate_private_key(SECP256R1()).public_key(),
        serial_number=2,
        not_valid_before=START,
        not_valid_after=START + timedelta(days=1),
        extensions=list(issued.extensions),
    )
    with pytest.raises(CertificateRefused, match="not Ed25519"):
        party.verifier.certificate(certificate_der(builder.sign(party.authority.key, None)))


@pytest.mark.parametrize("der", [b"", b"nonsense", b"\x30" * (CERTIFICATE_BYTES_MAX + 1)])
def test_bytes_that_are_no_certificate_are_refused(party: Party, der: bytes) -> None:
    with pytest.raises(CertificateRefused):
        party.verifier.certificate(der)


def test_a_certificate_without_extensions_is_refused(party: Party) -> None:
    issued = x509.load_der_x509_certificate(party.der)
    builder = x509.CertificateBuilder(
        issuer_name=issued.issuer,
        subject_name=issued.subject,
        public_key=party.key.public_key(),
        serial_number=2,
        not_valid_before=START,
        not_valid_after=START + timedelta(days=1),
    )
    with pytest.raises(CertificateRefused, match="states no key usage"):
        party.verifier.certificate(certificate_der(builder.sign(party.authority.key, None)))
