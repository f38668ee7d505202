"""Signatures of end-points' requests, and how a broker checks them.

An end-point signs each request with the key of its certificate, so the edge router that forwards it
cannot change it. The broker checks the certificate once per attachment, and each signature.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from gridstat.model.cloud import NAME_BYTES_MAX
from gridstat.model.errors import CertificateRefused, MalformedFrame, NotAuthorised
from gridstat.net.clock import SystemClock
from gridstat.net.command.certificate_authority import identity_in, load_certificates

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.clock import Clock

SIGNED_PREFIX: Final = b"gridstat request 1\n"
"""Prefix of the signed bytes, so that the signature cannot be used for anything but a request."""

CERTIFICATE_BYTES_MAX: Final = 16_384
KEYS_MAX: Final = 16_384
"""Bound on cached public keys; the least recently used is dropped."""

REQUEST_ID_MAX: Final = 2**63 - 1
NS_PER_S: Final = 1_000_000_000


def check_request_id(request_id: int) -> None:
    """Raise `MalformedFrame` for a number out of range."""
    if not 0 <= request_id <= REQUEST_ID_MAX:
        raise MalformedFrame(f"request {request_id} is not numbered from 0 to {REQUEST_ID_MAX}")


def signed_bytes(endpoint: str, request_id: int, body: bytes) -> bytes:
    """Return the bytes to sign: prefix, length and name of the signer, number, body; big-endian.

    `endpoint` is the full name without the role, as in `Forward.endpoint`. Raises `MalformedFrame`
    for a name or number out of bounds.
    """
    check_request_id(request_id)
    name = endpoint.encode()
    if len(name) > NAME_BYTES_MAX:
        raise MalformedFrame(f"a name of {len(name):,} bytes, {NAME_BYTES_MAX} are allowed")
    return (
        SIGNED_PREFIX + struct.pack(">H", len(name)) + name + struct.pack(">Q", request_id) + body
    )


def sign(key: Ed25519PrivateKey, endpoint: str, request_id: int, body: bytes) -> bytes:
    """Return the signature for `Submit`; 64 bytes."""
    return key.sign(signed_bytes(endpoint, request_id, body))


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Contents of a checked certificate: role and name, key, and last valid second."""

    role: str
    name: str
    public_key: bytes
    not_after_s: int


class Verifier(Protocol):
    """Checks certificates and signatures for a broker; the simulator has a cheaper one."""

    def certificate(self, der: bytes) -> CertificateFacts:
        """Return the contents; raise `CertificateRefused` or `NotAuthorised` with the broken
        rule."""
        ...

    def signature(self, public_key: bytes, message: bytes, signature: bytes) -> bool: ...


class AuthorityVerifier:
    """Accepts certificates that one of the given authorities has signed, within their dates.

    `authorities` returns their present PEM text, so a reload of the credentials counts at once.
    """

    def __init__(self, authorities: Callable[[], bytes], clock: Clock | None = None) -> None:
        self._read = authorities
        self._pem = authorities()
        self._authorities = load_certificates(self._pem, of="the authority's file")
        self._clock = clock or SystemClock()
        self._keys: OrderedDict[bytes, Ed25519PublicKey] = OrderedDict()

    def certificate(self, der: bytes) -> CertificateFacts:
        if len(der) > CERTIFICATE_BYTES_MAX:
            raise CertificateRefused(f"a certificate of {len(der):,} bytes")
        try:
            found = x509.load_der_x509_certificate(der)
            self._check_dates(found, "the certificate")
            self._check_chain(found)
            _check_use(found)
            key = found.public_key()
        except ValueError as error:
            raise CertificateRefused(f"not a certificate: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise CertificateRefused("the certificate's key is not Ed25519")
        identity = identity_in(found)
        return CertificateFacts(
            role=identity.role.value,
            name=identity.name,
            public_key=key.public_bytes_raw(),
            not_after_s=int(found.not_valid_after_utc.timestamp()),
        )

    def signature(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        try:
            self._key(public_key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def _key(self, public_key: bytes) -> Ed25519PublicKey:
        key = self._keys.get(public_key)
        if key is None:
            key = self._keys[public_key] = Ed25519PublicKey.from_public_bytes(public_key)
            if len(self._keys) > KEYS_MAX:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(public_key)
        return key

    def _check_dates(self, found: x509.Certificate, what: str) -> None:
        now_s = self._clock.posix_ns() / NS_PER_S
        if now_s < found.not_valid_before_utc.timestamp():
            raise CertificateRefused(
                f"{what} is valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC",
                hint="compare the clocks of both machines",
            )
        if now_s > found.not_valid_after_utc.timestamp():
            raise CertificateRefused(
                f"{what} expired on {found.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC",
                hint="renew it: `gridstat certificates renew`",
            )

    def _check_chain(self, found: x509.Certificate) -> None:
        pem = self._read()
        if pem != self._pem:
            self._authorities = load_certificates(pem, of="the authority's file")
            self._pem = pem
        for authority in self._authorities:
            try:
                found.verify_directly_issued_by(authority)
            except (ValueError, TypeError, InvalidSignature):
                continue
            self._check_dates(authority, "the authority's certificate")
            return
        raise CertificateRefused("the certificate is not signed by the grid's authority")


def _check_use(found: x509.Certificate) -> None:
    """Check that the certificate belongs to a party and is made for signing requests."""
    try:
        if found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise NotAuthorised("an authority cannot sign requests: use a party's certificate")
        usage = found.extensions.get_extension_for_class(x509.KeyUsage).value
        purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise CertificateRefused("the certificate states no key usage") from error
    if not usage.digital_signature or ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
        raise NotAuthorised("the certificate is not made for signing requests (its key usage)")


def certificate_der(certificate: x509.Certificate) -> bytes:
    """Return the certificate in the form that `Attach.certificate` carries."""
    return certificate.public_bytes(serialization.Encoding.DER)
