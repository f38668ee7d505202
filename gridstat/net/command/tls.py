"""Mutual TLS 1.3 without sockets: credentials, and an engine from bytes to bytes.

The engine replaces asyncio's own TLS, which drops the alert of a failed handshake: a client could
not tell an expired certificate from a dead server. The engine also costs less per message. Host
names are not checked: the URI in its certificate identifies a peer.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cryptography import x509

from gridstat.model.errors import CertificateRefused, GridStatError, LinkDown
from gridstat.net.command.certificate_authority import identity_in, load_certificates, load_key
from gridstat.net.command.certificate_folder import read_pem
from gridstat.net.command.endpoint_signatures import certificate_der

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from gridstat.net.command.certificate_folder import CertificateFiles
    from gridstat.net.command.identity import Identity

RECORD_BYTES_MAX: Final = 16_384

NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
UNKNOWN_AUTHORITY: Final = frozenset({2, 7, 18, 19, 20, 21, 27})
WRONG_PURPOSE: Final = 26
"""Verification results of OpenSSL (`X509_V_ERR_…`) that have an error text of their own."""


class Credentials:
    """Key and certificate of one party, and the authorities that it trusts.

    Renewed files are loaded at the next connection; if they cannot be used (a pair that does not
    match), the old ones stay.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self.files = files
        self._stamps = self._read_stamps()
        self._load(identity_in(_own_certificate(files)))

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def key(self) -> Ed25519PrivateKey:
        """Key that signs requests."""
        return self._private_key

    @property
    def certificate(self) -> bytes:
        """Certificate in the form that `Attach.certificate` carries."""
        return self._certificate

    @property
    def authorities(self) -> bytes:
        """Certificates of all trusted authorities, as PEM text."""
        return self._authorities

    def context(self, *, is_server: bool) -> ssl.SSLContext:
        return self._server_context if is_server else self._client_context

    def refresh(self) -> str:
        """Load changed files; return the reason if they cannot be used, else an empty text."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return ""
        try:
            self._load(self._identity)
        except GridStatError as error:
            return str(error.args[0])
        self._stamps = stamps
        return ""

    def _load(self, identity: Identity) -> None:
        files = self.files
        authorities = read_pem(files.authority)
        load_certificates(authorities, of=str(files.authority))
        own = _own_certificate(files)
        if identity_in(own) != identity:
            raise CertificateRefused(f"{files.certificate} belongs to {identity_in(own)}")
        private_key = load_key(read_pem(files.key), of=str(files.key))
        if own.public_key() != private_key.public_key():
            raise CertificateRefused(f"{files.key} is not the key of {files.certificate}")
        server = _context(files, is_server=True)
        client = _context(files, is_server=False)
        self._identity, self._private_key = identity, private_key
        self._server_context, self._client_context = server, client
        self._certificate = certificate_der(own)
        self._authorities = authorities

    def _read_stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple(
            _stamp(path) for path in (self.files.authority, self.files.certificate, self.files.key)
        )


class TlsEngine:
    """One side of one connection: received bytes go in, bytes to be sent come out."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self.is_established = False
        self.is_finished = False
        """True if the peer has closed its direction."""

    def begin(self) -> None:
        """Prepare the first bytes of the handshake, if ours is the client side."""
        self._shake_hands()

    def receive(self, received: bytes) -> bytes:
        """Return the decrypted bytes; raise `ssl.SSLError`, after which only `take` may be
        called."""
        self._incoming.write(received)
        if not self.is_established:
            self._shake_hands()
            if not self.is_established:
                return b""
        pieces = []
        try:
            while piece := self._tls.read(RECORD_BYTES_MAX):
                pieces.append(piece)
            self.is_finished = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_finished = True
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def send(self, plain: bytes) -> None:
        rest = memoryview(plain)
        while rest:
            rest = rest[self._tls.write(rest) :]

    def finish(self) -> None:
        """Close our direction."""
        # Our close alert goes out at once; the wait for that of the peer is not needed.
        with suppress(ssl.SSLError):
            self._tls.unwrap()

    def take(self) -> bytes:
        """Return the bytes to be sent now."""
        return self._outgoing.read()

    def peer_identity(self) -> Identity:
        """Return the identity in the peer's certificate; its chain and dates are already
        checked."""
        der = self._tls.getpeercert(binary_form=True)
        assert der is not None, "both sides require a certificate"
        return identity_in(x509.load_der_x509_certificate(der))

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_established = True


def explain_failure(error: ssl.SSLError, *, peer: str) -> tuple[str, GridStatError]:
    """Return the counter key and the error for a connection with `peer` that TLS ended."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = _verdict_cause(error.verify_code)
        text = f"the certificate of {peer} is refused: {error.verify_message}"
        return cause, CertificateRefused(text, hint=_HINTS.get(cause, ""))
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "certificate_missing", CertificateRefused(f"{peer} presents no certificate")
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA")):
        alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
        hint = _HINTS.get(_ALERTS.get(alert, ""), "")
        text = f"{peer} refuses our certificate: {alert}"
        return "refused_by_peer", CertificateRefused(text, hint=hint)
    if "PROTOCOL" in reason:
        hint = "both ends need TLS 1.3, which OpenSSL has from 1.1.1 on"
        return "tls_version", LinkDown(f"{peer} does not speak TLS 1.3", hint=hint)
    hint = "check that the port is that of a command server"
    return "not_tls", LinkDown(f"{peer} does not speak TLS: {reason or error}", hint=hint)


_HINTS: Final = {
    "certificate_expired": "renew it: `gridstat certificates renew`",
    "certificate_not_yet_valid": "compare the clocks of both machines",
    "certificate_foreign": "both ends need certificates of the same authority, and its ca.pem",
    "certificate_purpose": "only brokers and routers can be servers: check the address",
}
_ALERTS: Final = {
    "certificate expired": "certificate_expired",
    "bad certificate": "certificate_not_yet_valid",
    "unknown ca": "certificate_foreign",
    "unsupported certificate": "certificate_purpose",
}


def _own_certificate(files: CertificateFiles) -> x509.Certificate:
    """Return the party's own certificate: the first, if the file holds a chain."""
    return load_certificates(read_pem(files.certificate), of=str(files.certificate))[0]


def _verdict_cause(code: int) -> str:
    if code == EXPIRED:
        return "certificate_expired"
    if code == NOT_YET_VALID:
        return "certificate_not_yet_valid"
    if code == WRONG_PURPOSE:
        return "certificate_purpose"
    return "certificate_foreign" if code in UNKNOWN_AUTHORITY else "certificate_unfit"


def _context(files: CertificateFiles, *, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cafile=files.authority)
        context.load_cert_chain(files.certificate, files.key)
    except (ssl.SSLError, OSError) as error:
        raise CertificateRefused(f"{files.certificate} cannot be used: {error}") from error
    if is_server:
        # A resumed session would pass by the check of dates; sessions are long, so none resumes.
        context.num_tickets = 0
    return context


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_ino)
