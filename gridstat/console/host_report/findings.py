"""The judgement: each fact against what is wanted, and the setting to change where it is short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.host_report.facts import HostFacts

RECEIVE_BUFFER_BYTES_WANTED: Final = 64 * 1024 * 1024
SEND_BUFFER_BYTES_WANTED: Final = 8 * 1024 * 1024
LOCKED_BYTES_WANTED: Final = 512 * 1024 * 1024
CLOCK_ERROR_US_WANTED: Final = 1_000
MTU_BYTES_WANTED: Final = 1_280
CPU_COUNT_WANTED: Final = 2
KERNEL_WANTED: Final = (5, 0)
PREEMPTION_WANTED: Final = ("PREEMPT", "PREEMPT_RT", "PREEMPT_DYNAMIC", "full", "lazy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `change` is empty where there is enough."""

    name: str
    granted: str
    wanted: str
    is_enough: bool
    change: str = ""
    why: str = ""


def findings(facts: HostFacts) -> tuple[Finding, ...]:
    return tuple(
        finding if not finding.is_enough else _without_change(finding)
        for finding in (
            *_buffers(facts),
            *_offloads(facts),
            *_sealing(facts),
            *_memory_and_priority(facts),
            *_clock(facts),
            *_interfaces(facts),
            *_machine(facts),
        )
    )


def _without_change(finding: Finding) -> Finding:
    return Finding(finding.name, finding.granted, finding.wanted, is_enough=True, why=finding.why)


def _buffers(facts: HostFacts) -> Iterator[Finding]:
    yield Finding(
        "receive buffer",
        granted=_mib(facts.receive_buffer_bytes, facts.receive_buffer_bytes_max),
        wanted=_mib(RECEIVE_BUFFER_BYTES_WANTED),
        is_enough=facts.receive_buffer_bytes >= RECEIVE_BUFFER_BYTES_WANTED,
        change=f"sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES_WANTED}",
        why="a burst that does not fit is lost in the kernel, before the router sees it",
    )
    yield Finding(
        "send buffer",
        granted=_mib(facts.send_buffer_bytes, facts.send_buffer_bytes_max),
        wanted=_mib(SEND_BUFFER_BYTES_WANTED),
        is_enough=facts.send_buffer_bytes >= SEND_BUFFER_BYTES_WANTED,
        change=f"sysctl -w net.core.wmem_max={SEND_BUFFER_BYTES_WANTED}",
        why="a burst that does not fit counts as send_failed",
    )


def _offloads(facts: HostFacts) -> Iterator[Finding]:
    for name, problem, since in (
        ("UDP GSO, sending", facts.gso_problem, "Linux 4.18"),
        ("UDP GRO, receiving", facts.gro_problem, "Linux 5.0"),
    ):
        yield Finding(
            name,
            granted=f"no: {problem}" if problem else "works, tried on a socket",
            wanted="works",
            is_enough=not problem,
            change=f"use {since} or later; without it each datagram costs a call of its own",
            why="many datagrams pass the kernel in one call",
        )


def _sealing(facts: HostFacts) -> Iterator[Finding]:
    yield Finding(
        "sealing",
        granted=next(iter(facts.seal_backends.values()), "no library"),
        wanted="OpenSSL libcrypto; libIPSec_MB is faster",
        is_enough=bool(facts.seal_backends),
        change="install OpenSSL's libcrypto (Debian: libssl3), or libIPSec_MB (Debian: "
        "libipsec-mb1)",
        why="channels with security hop carry nothing without it",
    )
    plain = facts.plain_edges
    yield Finding(
        "end-points' channels",
        granted=f"plain at {', '.join(plain)}" if plain else "no running router leaves them plain",
        wanted="sealed",
        is_enough=not plain,
        change=f'endpoint_security = "hop" in {", ".join(plain.values())}, and a restart',
        why="anybody can read and forge the events of plain channels",
    )


def _memory_and_priority(facts: HostFacts) -> Iterator[Finding]:
    locked = facts.locked_bytes_max
    yield Finding(
        "memory lock",
        granted="unlimited" if locked is None else _mib(locked),
        wanted=_mib(LOCKED_BYTES_WANTED),
        is_enough=locked is None or locked >= LOCKED_BYTES_WANTED,
        change="LimitMEMLOCK=infinity in the systemd unit, or `ulimit -l unlimited` as root",
        why="a page fault on an event's way costs milliseconds",
    )
    yield Finding(
        "real-time priority",
        granted=f"no: {facts.real_time_problem}" if facts.real_time_problem else "allowed, tried",
        wanted="allowed",
        is_enough=not facts.real_time_problem,
        change="LimitRTPRIO=50 in the systemd unit, or `setcap cap_sys_nice+ep` on the interpreter",
        why="other programs then cannot hold up the forwarding thread",
    )


def _clock(facts: HostFacts) -> Iterator[Finding]:
    clock = facts.clock
    wanted = f"synchronised, error ≤ {CLOCK_ERROR_US_WANTED:,} µs"
    change = "run a PTP or NTP client (chrony, ptp4l with phc2sys) and wait until it has settled"
    why = "time stamps decide slots, lateness and policing"
    if clock is None:
        yield Finding("clock", "cannot be read", wanted, is_enough=False, change=change, why=why)
        return
    state = "synchronised" if clock.is_synchronised else "not synchronised"
    yield Finding(
        "clock",
        granted=f"{state}, error ≤ {clock.error_us_max:,} µs",
        wanted=wanted,
        is_enough=clock.is_synchronised and clock.error_us_max <= CLOCK_ERROR_US_WANTED,
        change=change,
        why=why,
    )


def _interfaces(facts: HostFacts) -> Iterator[Finding]:
    for name, mtu_bytes in facts.mtu_bytes.items():
        yield Finding(
            f"MTU of {name}",
            granted=f"{mtu_bytes:,}",
            wanted=f"{MTU_BYTES_WANTED:,}",
            is_enough=mtu_bytes >= MTU_BYTES_WANTED,
            change=f"ip link set {name} mtu 1500, or a smaller mtu_bytes for channels through it",
            why="datagrams are packed to a channel's mtu and never fragmented",
        )


def _machine(facts: HostFacts) -> Iterator[Finding]:
    yield Finding(
        "processors",
        granted=str(facts.cpu_count),
        wanted=str(CPU_COUNT_WANTED),
        is_enough=facts.cpu_count >= CPU_COUNT_WANTED,
        change="give the process more processors (affinity, cgroup, virtual machine)",
        why="a router's thread should not share its processor",
    )
    yield Finding(
        "kernel",
        granted=facts.kernel,
        wanted=f"Linux {KERNEL_WANTED[0]}.{KERNEL_WANTED[1]}",
        is_enough=_version(facts.kernel) >= KERNEL_WANTED,
        change="use a newer kernel; gridstat runs without its extras, more slowly",
        why="GSO, GRO and receive time stamps",
    )
    yield Finding(
        "preemption",
        granted=facts.preemption or "not known",
        wanted="PREEMPT, PREEMPT_DYNAMIC or PREEMPT_RT",
        is_enough=facts.preemption in PREEMPTION_WANTED,
        change="boot with preempt=full, or use a real-time kernel",
        why="how long the kernel may keep a processor to itself",
    )


def _version(release: str) -> tuple[int, ...]:
    numbers = release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _mib(count: int, limit: int | None = None) -> str:
    text = f"{count / 2**20:,.1f} MiB"
    return text if limit is None else f"{text} (limit {_mib(limit)})"
