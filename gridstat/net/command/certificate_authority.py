"""The grid's own certificate authority: it issues one certificate per party, in one folder.

All keys are Ed25519. A certificate states its holder in a URI name (`identity.py`); names and
addresses of hosts may stand beside it for tools that look for them, and mean nothing to us.
A renewed certificate keeps its key, so that a running process may take it up at any moment.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gridstat.model.errors import CertificateRefused, LayoutError
from gridstat.net.command.identity import Identity, Role, parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CERTIFICATE_DAYS: Final = 365
AUTHORITY_DAYS: Final = 3_650
DAYS_MAX: Final = 36_500
BACK_DATED: Final = timedelta(minutes=5)
"""Certificates begin this much earlier, so that a peer with a slow clock accepts them."""

COMMON_NAME_CHARACTERS_MAX: Final = 64
SERVING: Final = frozenset({Role.BROKER, Role.ROUTER})
"""Roles that others connect to; end-points and operators are clients only."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority: its certificate and its key."""

    certificate: x509.Certificate
    key: Ed25519PrivateKey

    @staticmethod
    def create(now: datetime, *, days: int = AUTHORITY_DAYS) -> Authority:
        key = Ed25519PrivateKey.generate()
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        # Two authorities need two names, or a peer could not tell them apart when one replaces
        # the other.
        name = _name(f"gridstat authority {identifier.digest.hex()[:8]}")
        usage = _key_usage(is_authority=True)
        builder = (
            _dated(now, days)
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
        )
        return Authority(builder.sign(key, None), key)

    def issue(
        self,
        identity: Identity,
        public_key: Ed25519PublicKey,
        now: datetime,
        *,
        hosts: Sequence[str] = (),
        days: int = CERTIFICATE_DAYS,
    ) -> x509.Certificate:
        """Issue a certificate for a key; it never outlives the authority."""
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.role in SERVING:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
        names = [x509.UniformResourceIdentifier(identity.uri), *map(_host_name, hosts)]
        subject_key = x509.SubjectKeyIdentifier.from_public_key(public_key)
        builder = (
            _dated(now, days, latest=self.certificate.not_valid_after_utc)
            .subject_name(_name(identity.peer))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(subject_key, critical=False)
            .add_extension(authority_key, critical=False)
        )
        return builder.sign(self.key, None)


def identity_in(certificate: x509.Certificate) -> Identity:
    """Return the identity in a certificate; raise `CertificateRefused` unless there is exactly
    one."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        if len(uris) != 1:
            raise CertificateRefused(f"the certificate has {len(uris)} URI names, not one")
        return parse_uri(uris[0])
    except (x509.ExtensionNotFound, ValueError) as error:
        raise CertificateRefused(f"the certificate has no readable URI name: {error}") from error
    except LayoutError as error:
        raise CertificateRefused(f"the certificate's URI name: {error.args[0]}") from error


def hosts_in(certificate: x509.Certificate) -> list[str]:
    """The names and addresses of hosts beside the identity."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def load_certificates(pem: bytes, *, of: str) -> list[x509.Certificate]:
    """All certificates of a PEM file, at least one; `of` names the file in errors."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateRefused(f"{of} holds no certificate: {error}") from error


def load_key(pem: bytes, *, of: str) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateRefused(f"{of} holds no private key: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateRefused(f"{of} is not an Ed25519 key")
    return key


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _dated(now: datetime, days: int, *, latest: datetime | None = None) -> x509.CertificateBuilder:
    if not 1 <= days <= DAYS_MAX:
        raise LayoutError(f"{days} days", hint=f"a certificate is good for 1 to {DAYS_MAX:,} days")
    utc = now.astimezone(UTC)
    end = utc + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(utc - BACK_DATED)
        .not_valid_after(min(end, latest) if latest else end)
    )


def _name(text: str) -> x509.Name:
    """Return the common name for people, cut to what X.509 allows; the identity is in the URI."""
    cut = text[:COMMON_NAME_CHARACTERS_MAX]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cut)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise LayoutError(f"host {host!r}: {error}", hint="write a DNS name or address") from error


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
