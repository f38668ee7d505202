"""Certificates and keys as files: `ca.pem`, `ca.key`, and a pair for each party.

The pair of router `c1/e0` is `router-c1__e0.pem` and `.key`; `Identity.file_stem` gives each party
a name of its own. Keys are readable by their owner only. Files are replaced whole, so a reader
never sees half of one.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridstat.model.errors import CertificateRefused, ConfigurationError
from gridstat.net.clock import SystemClock
from gridstat.net.command.certificate_authority import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Authority,
    certificate_pem,
    hosts_in,
    identity_in,
    key_pem,
    load_certificates,
    load_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509

    from gridstat.net.clock import Clock
    from gridstat.net.command.identity import Identity

AUTHORITY_STEM: Final = "ca"
RENEWAL_SHARE: Final = 3
"""A certificate is due for renewal when only a third of its life is left."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of a party's certificate and key, and of the authority that it trusts."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """Summary of a certificate for people; role and name are empty for an authority."""

    file: str
    role: str
    name: str
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime

    def state(self, now: datetime) -> str:
        if now < self.not_before:
            return "not yet valid"
        if now > self.not_after:
            return "expired"
        left, life = self.not_after - now, self.not_after - self.not_before
        return "renew soon" if left < life / RENEWAL_SHARE else "valid"


class CertificateFolder:
    """A folder of certificates; an existing file is only replaced on request."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()

    @property
    def has_authority(self) -> bool:
        return self._pem(AUTHORITY_STEM).exists() and self._key(AUTHORITY_STEM).exists()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.posix_ns() / 1e9, tz=UTC)

    def files(self, identity: Identity) -> CertificateFiles:
        """Return the paths of the party's files; they need not exist.

        Files that an earlier release has named are found as well. A file that belongs to another
        party is never returned.
        """
        stem = self._stem(identity)
        return CertificateFiles(self._pem(AUTHORITY_STEM), self._pem(stem), self._key(stem))

    def present(self, identity: Identity) -> CertificateFiles:
        """Return the party's files; raise with the missing file and the command that makes it."""
        files = self.files(identity)
        if _is_missing(files.authority):
            raise CertificateRefused(
                f"{files.authority} is missing",
                hint=f"copy ca.pem of the grid's authority into {self.path}; "
                "`gridstat certificates init` makes one for a new grid",
            )
        for path in (files.certificate, files.key):
            if _is_missing(path):
                raise CertificateRefused(
                    f"{path} is missing", hint=self.how_to(f"issue {identity}")
                )
        return files

    def how_to(self, words: str) -> str:
        """Return the hint how `gridstat certificates` makes a missing file, and where."""
        command = f"gridstat certificates {words}"
        if self.has_authority:
            return f"issue it: `{command} --folder {shlex.quote(str(self.path))}`"
        return f"issue it where ca.key is: `{command}`; then copy .pem and .key into {self.path}"

    def create_authority(self, *, days: int = AUTHORITY_DAYS, replace: bool = False) -> None:
        """Create an authority; `replace` makes every certificate of the old one worthless."""
        for path in (self._pem(AUTHORITY_STEM), self._key(AUTHORITY_STEM)):
            if path.exists() and not replace:
                raise ConfigurationError(
                    f"{path} exists already",
                    hint="--force replaces the authority, and all its certificates are refused",
                )
        authority = Authority.create(self.now(), days=days)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be made: {error.strerror}") from error
        write_whole(self._key(AUTHORITY_STEM), key_pem(authority.key), mode=0o600)
        write_whole(self._pem(AUTHORITY_STEM), certificate_pem(authority.certificate))

    def issue(
        self,
        identity: Identity,
        *,
        hosts: Sequence[str] = (),
        days: int = CERTIFICATE_DAYS,
        replace: bool = False,
    ) -> CertificateFiles:
        """Create a key and its certificate."""
        files = self.files(identity)
        if files.certificate.exists() and not replace:
            raise ConfigurationError(
                f"{files.certificate} exists already",
                hint="renew it, or replace certificate and key with --force",
            )
        authority = self._authority()
        key = Ed25519PrivateKey.generate()
        made = authority.issue(identity, key.public_key(), self.now(), hosts=hosts, days=days)
        write_whole(files.key, key_pem(key), mode=0o600)
        write_whole(files.certificate, certificate_pem(made))
        return files

    def renew(self, identity: Identity, *, days: int = CERTIFICATE_DAYS) -> CertificateFiles:
        """Renew a certificate: same key and hosts, new dates."""
        files = self.files(identity)
        old = self.load(files.certificate)
        if identity_in(old) != identity:
            raise ConfigurationError(f"{files.certificate} belongs to {identity_in(old)}")
        key = load_key(read_pem(files.key), of=str(files.key))
        made = self._authority().issue(
            identity, key.public_key(), self.now(), hosts=hosts_in(old), days=days
        )
        write_whole(files.certificate, certificate_pem(made))
        return files

    def ensure(self, identity: Identity, *, hosts: Sequence[str] = ()) -> CertificateFiles:
        """Return a valid certificate of the present authority: the existing one, renewed or newly
        issued."""
        files = self.files(identity)
        if not (files.certificate.exists() and files.key.exists()):
            return self.issue(identity, hosts=hosts, replace=True)
        certificate = self.load(files.certificate)
        is_ours = certificate.issuer == self.load(files.authority).subject
        if is_ours and set(hosts) <= set(hosts_in(certificate)):
            state = self.summary(files.certificate).state(self.now())
            return files if state == "valid" else self.renew(identity)
        return self.issue(identity, hosts=hosts, replace=True)

    def summaries(self) -> list[CertificateSummary]:
        """Return the summaries of all certificates, the authority first."""
        paths = sorted(self.path.glob("*.pem"), key=lambda path: (path.stem != "ca", path.name))
        return [self.summary(path) for path in paths]

    def summary(self, path: Path) -> CertificateSummary:
        certificate = self.load(path)
        is_authority = path.stem == AUTHORITY_STEM
        try:
            identity = None if is_authority else identity_in(certificate)
        except CertificateRefused as error:
            raise CertificateRefused(f"{path}: {error.args[0]}") from error
        return CertificateSummary(
            file=path.name,
            role=identity.role.value if identity else "",
            name=identity.name if identity else "",
            hosts=() if is_authority else tuple(hosts_in(certificate)),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
        )

    def load(self, path: Path) -> x509.Certificate:
        return load_certificates(read_pem(path), of=str(path))[0]

    def _authority(self) -> Authority:
        pem, key = self._pem(AUTHORITY_STEM), self._key(AUTHORITY_STEM)
        if not self.has_authority:
            raise ConfigurationError(
                f"{self.path} holds no authority", hint="make one: `gridstat certificates init`"
            )
        authority = Authority(self.load(pem), load_key(read_pem(key), of=str(key)))
        if authority.certificate.public_key() != authority.key.public_key():
            raise CertificateRefused(f"{key} is not the key of {pem}")
        if authority.certificate.not_valid_after_utc - self.now() < timedelta(0):
            raise CertificateRefused(f"{pem} has expired", hint="make a new one with --force")
        return authority

    def _stem(self, identity: Identity) -> str:
        stems = identity.file_stem, identity.unique_file_stem, identity.old_file_stem
        owners = {stem: self._owner(stem) for stem in stems}
        for stem in stems:
            if owners[stem] == identity:
                return stem
        is_free = owners[identity.file_stem] is None
        return identity.file_stem if is_free else identity.unique_file_stem

    def _owner(self, stem: str) -> Identity | None:
        """Return the party of a certificate; None if there is none, or it cannot be read."""
        try:
            return identity_in(self.load(self._pem(stem)))
        except CertificateRefused:
            return None

    def _pem(self, stem: str) -> Path:
        return self.path / f"{stem}.pem"

    def _key(self, stem: str) -> Path:
        return self.path / f"{stem}.key"


def _is_missing(path: Path) -> bool:
    """Return whether the file does not exist; an unreadable file exists."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file atomically, durable before it is visible."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


def read_pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateRefused(
            f"{path} cannot be read: {error.strerror}",
            hint="`gridstat certificates issue` makes it, `show` lists what there is",
        ) from error
