"""Names of terminals: the end-points `c1/terminal-1`, `c1/terminal-2` … of each cloud.

A command that attaches to a cloud and is not told as whom takes the first terminal that is free.
The names are few and stable, so that their certificates can be issued beforehand, also for a host
that has no `ca.key`. A cloud serves one process a name; on one host the processes agree by a lock
on the terminal's key file, which ends with the process that holds it and needs no file of its own.
A terminal that is used on another host is refused by the cloud, and the next one is tried.
"""

from __future__ import annotations

import fcntl
import re
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

from gridstat.model.errors import CertificateRefused
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.console.access import Access
    from gridstat.net.command.certificate_folder import CertificateFolder

TERMINALS: Final = 8
"""Terminals of a cloud that `gridstat up` and `gridstat certificates terminals` make."""
TERMINALS_MAX: Final = 64
AUTHORITY_KEY: Final = "ca.key"
_NUMBER: Final = re.compile(r"terminal-([1-9][0-9]{0,8})(?:~[0-9a-f]+)?$")


def terminal_names(cloud: str, *, first: int = 1, count: int = TERMINALS) -> list[str]:
    """`c1/terminal-1` to `c1/terminal-8`."""
    return [f"{cloud}/terminal-{number}" for number in range(first, first + count)]


def usable_terminals(access: Access) -> list[str]:
    """Terminals of the cloud with a certificate here, or that can be given one; by number.

    Raises which certificate is missing where there is none.
    """
    certificates = access.certificates
    names = issued_terminals(certificates, access.cloud)
    if certificates.has_authority:
        made = terminal_names(access.cloud)
        names = list(dict.fromkeys((*made, *names)))
    if not names:
        first = certificates.files(Identity(Role.ENDPOINT, terminal_names(access.cloud)[0]))
        issue = certificates.how_to(f"terminals {access.cloud}")
        raise CertificateRefused(
            f"{first.certificate} is missing",
            hint=f"{issue}; or name an end-point that has a certificate: --as NAME",
        )
    return names[:TERMINALS_MAX]


def issued_terminals(certificates: CertificateFolder, cloud: str) -> list[str]:
    """Terminals of the cloud whose key is in the folder, by number."""
    found: set[int] = set()
    for path in certificates.path.glob("endpoint-*terminal-*.key"):
        match = _NUMBER.search(path.stem)
        if match is not None:
            number = int(match[1])
            party = Identity(Role.ENDPOINT, f"{cloud}/terminal-{number}")
            if path.stem in {party.file_stem, party.unique_file_stem, party.old_file_stem}:
                found.add(number)
    return [f"{cloud}/terminal-{number}" for number in sorted(found)]


def take_terminal(access: Access, name: str) -> IO[bytes] | None:
    """The lock of a terminal, held until it is closed; None while another process has it."""
    with _one_at_a_time(access.certificates.path / AUTHORITY_KEY):
        key = access.files_of(Role.ENDPOINT, name).key
    try:
        lock = key.open("rb")
    except OSError as error:
        raise CertificateRefused(f"{key} cannot be read: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        # A network file system may refuse locks. The cloud refuses a name that is in use anyway.
        return lock
    return lock


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Two commands that begin together must not both make the key of one terminal."""
    try:
        lock = path.open("rb")
    except OSError:
        yield  # Without the authority's key nothing is made.
        return
    with lock:
        with suppress(OSError):  # A network file system may refuse locks.
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
