"""Report of the host: each shortfall names its setting; the probes change nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.console.host_report.facts import ClockFacts, HostFacts
from gridstat.console.host_report.findings import findings
from gridstat.console.host_report.probes import host_facts, plain_edges, preemption

if TYPE_CHECKING:
    from pathlib import Path

GOOD = HostFacts(
    kernel="6.1.0-18-amd64",
    preemption="PREEMPT_DYNAMIC",
    cpu_count=4,
    receive_buffer_bytes=64 << 20,
    receive_buffer_bytes_max=64 << 20,
    send_buffer_bytes=8 << 20,
    send_buffer_bytes_max=8 << 20,
    gso_problem="",
    gro_problem="",
    locked_bytes_max=None,
    real_time_problem="",
    clock=ClockFacts(is_synchronised=True, error_us_max=200, error_us_estimated=50),
    mtu_bytes={"eth0": 1_500},
    seal_backends={"ipsec-mb": "libIPSec_MB (avx512)", "evp": "OpenSSL libcrypto"},
)


def test_a_good_machine_has_nothing_to_change() -> None:
    found = findings(GOOD)
    assert all(finding.is_enough and not finding.change for finding in found)


@pytest.mark.parametrize(
    ("facts", "name", "change"),
    [
        (
            replace(GOOD, receive_buffer_bytes=212_992),
            "receive buffer",
            "net.core.rmem_max=67108864",
        ),
        (replace(GOOD, send_buffer_bytes=212_992), "send buffer", "net.core.wmem_max"),
        (replace(GOOD, gso_problem="invalid argument"), "UDP GSO, sending", "Linux 4.18"),
        (replace(GOOD, gro_problem="one by one"), "UDP GRO, receiving", "Linux 5.0"),
        (replace(GOOD, locked_bytes_max=65_536), "memory lock", "LimitMEMLOCK"),
        (
            replace(GOOD, plain_edges={"c1/e0": "/etc/gridstat/e0.toml"}),
            "end-points' channels",
            'endpoint_security = "hop" in /etc/gridstat/e0.toml',
        ),
        (replace(GOOD, real_time_problem="not permitted"), "real-time priority", "LimitRTPRIO"),
        (replace(GOOD, clock=None), "clock", "chrony"),
        (
            replace(
                GOOD, clock=ClockFacts(is_synchronised=False, error_us_max=1, error_us_estimated=1)
            ),
            "clock",
            "chrony",
        ),
        (
            replace(
                GOOD,
                clock=ClockFacts(is_synchronised=True, error_us_max=9_000, error_us_estimated=1),
            ),
            "clock",
            "chrony",
        ),
        (replace(GOOD, mtu_bytes={"tun0": 1_000}), "MTU of tun0", "ip link set tun0"),
        (replace(GOOD, cpu_count=1), "processors", "more processors"),
        (replace(GOOD, seal_backends={}), "sealing", "libcrypto"),
        (replace(GOOD, kernel="4.15.0"), "kernel", "newer kernel"),
        (replace(GOOD, preemption=""), "preemption", "preempt=full"),
    ],
)
def test_a_shortfall_names_the_setting_to_change(facts: HostFacts, name: str, change: str) -> None:
    [short] = [finding for finding in findings(facts) if not finding.is_enough]
    assert short.name == name
    assert change in short.change


@pytest.mark.parametrize(
    ("backends", "named"),
    [
        (GOOD.seal_backends, "libIPSec_MB (avx512)"),
        ({"evp": "OpenSSL libcrypto"}, "OpenSSL libcrypto"),
    ],
)
def test_the_library_in_use_is_named(backends: dict[str, str], named: str) -> None:
    [sealing] = [
        finding
        for finding in findings(replace(GOOD, seal_backends=backends))
        if finding.name == "sealing"
    ]
    assert sealing.granted == named


def test_the_probes_leave_the_scheduling_as_it_was() -> None:
    before = os.sched_getscheduler(0)
    facts = host_facts()
    assert os.sched_getscheduler(0) == before
    assert facts.cpu_count >= 1
    assert facts.receive_buffer_bytes > 0
    assert "lo" in facts.mtu_bytes


def test_the_model_of_preemption_is_read_from_the_build() -> None:
    assert preemption("#1 SMP PREEMPT_RT Debian 6.1") in {"PREEMPT_RT", "full", "lazy", "voluntary"}


def test_running_edge_routers_with_plain_end_points_are_found_by_their_files(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "settings"
    folder.mkdir()
    broker = '[broker]\naddresses = ["127.0.0.1:7100"]\n'
    for name, more in (("e0", 'endpoint_security = "none"\n'), ("e1", "")):
        text = f'name = "c1/{name}"\nrole = "edge"\n{more}{broker}'
        (folder / f"{name}.toml").write_text(text)
    for number, words in enumerate(
        (
            "python -m gridstat router e0.toml",
            "gridstat router e1.toml",
            "gridstat router missing.toml",
            "vim router e0.toml",
            "gridstat broker e0.toml",
        )
    ):
        process = tmp_path / "proc" / str(100 + number)
        process.mkdir(parents=True)
        (process / "cmdline").write_bytes(b"\0".join(words.encode().split()) + b"\0")
        (process / "cwd").symlink_to(folder)
    (tmp_path / "proc" / "999").mkdir()
    assert plain_edges(tmp_path / "proc") == {"c1/e0": str(folder / "e0.toml")}
