"""Listening TCP sockets of processes, read from outside: by the kernel's tables, not by Spark's."""

from __future__ import annotations

import os
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from lab.spark_cluster import descendants
from tests.cluster.eventually import eventually

LISTENING = "0A"


def listeners_of(process_id: int) -> dict[int, IPv4Address | IPv6Address]:
    """Return the addresses, by port, on which a process and its descendants listen."""
    sockets = {
        inode for each in [process_id, *descendants(process_id)] for inode in _sockets_of(each)
    }
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == LISTENING and others[5] in sockets:
                address, _, port = local.partition(":")
                found[int(port, 16)] = _address(address)
    return found


def command_lines_of(process_id: int) -> list[bytes]:
    """Return the command lines of a process and its descendants that have not ended meanwhile."""
    found = []
    for each in [process_id, *descendants(process_id)]:
        try:
            found.append(Path(f"/proc/{each}/cmdline").read_bytes())
        except OSError:
            eventually(partial(_complaint_about, each))
    return found


def _sockets_of(process_id: int) -> set[str]:
    found: set[str] = set()
    try:
        descriptors = list(Path(f"/proc/{process_id}/fd").iterdir())
    except OSError:  # A process that has ended shows nothing, to a plain user not even the folder.
        eventually(partial(_complaint_about, process_id))
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # It was closed meanwhile.
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _complaint_about(process_id: int) -> str | None:
    """Return the complaint that a process lives; while it ends, its files are closed first."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return None
    state = status.rpartition(")")[2].split()[0]
    return None if state in {"Z", "X"} else f"process {process_id} lives, and cannot be read"


def _address(words: str) -> IPv4Address | IPv6Address:
    """Return an address that the kernel wrote as 32-bit words in the machine's byte order."""
    parts = [words[at : at + 8] for at in range(0, len(words), 8)]
    found = ip_address(b"".join(bytes.fromhex(part)[::-1] for part in parts))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped
