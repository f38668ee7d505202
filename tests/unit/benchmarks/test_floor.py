"""The raw C forwarders: compiled once, forwarding bytes untouched, ended by end-of-file."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.floor.build import forwarder_path
from benchmarks.plan import EVENT_BYTES, HEADER_BYTES
from benchmarks.processes import Processes
from benchmarks.rig import FLOORS
from benchmarks.shared_page import SharedPages, create_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOPBACK = "127.0.0.1"
WAIT_S = 5.0


@pytest.fixture
def receivers() -> Iterator[list[socket.socket]]:
    opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for each in opened:
        each.bind((LOOPBACK, 0))
        each.settimeout(WAIT_S)
    yield opened
    for each in opened:
        each.close()


@pytest.mark.parametrize("mode", FLOORS)
def test_a_floor_sends_every_datagram_unchanged_to_every_destination(
    mode: str, receivers: list[socket.socket]
) -> None:
    targets = [f"{LOOPBACK}:{each.getsockname()[1]}" for each in receivers]
    sent = [bytes([number]) * (100 + number) for number in range(20)]
    with Processes() as processes, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        floor, answer = processes.start(mode, [str(forwarder_path()), mode, LOOPBACK, *targets])
        for datagram in sent:
            sender.sendto(datagram, (LOOPBACK, answer["ports"][0]))
        for each in receivers:
            assert [each.recv(2_048) for _ in sent] == sent
        counts = floor.ask()
        assert counts["datagrams_in"] == len(sent)
        assert counts["datagrams_out"] == len(sent) * len(receivers)
        assert floor.cpu_ns() > 0


def test_a_sink_counts_events_by_the_length_each_datagram_states(tmp_path: Path) -> None:
    page = tmp_path / "pages"
    create_pages(page, 2)
    pages = SharedPages(page, 2)
    program = [str(forwarder_path()), "sink", LOOPBACK, "2", str(EVENT_BYTES), str(page)]
    padded = struct.pack(">BBHIQ", 1, 0, HEADER_BYTES + 3 * EVENT_BYTES, 9, 1) + bytes(500)
    with Processes() as processes, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sink, answer = processes.start("sink", program)
        for _ in range(4):
            sender.sendto(padded, (LOOPBACK, answer["ports"][1]))
        while sink.ask()["datagrams_in"] < 4:
            pass
    assert pages.delivered() == [0, 12]
    assert pages.delivered_least() == 0


def test_the_binary_is_kept_by_the_hash_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "forwarder.c"
    source.write_text("int main(void) { return 0; }\n")
    first = forwarder_path(source=source, cache=tmp_path / "cache")
    made_ns = first.stat().st_mtime_ns
    assert forwarder_path(source=source, cache=tmp_path / "cache").stat().st_mtime_ns == made_ns
    source.write_text("int main(void) { return 1; }\n")
    assert forwarder_path(source=source, cache=tmp_path / "cache") != first


def test_without_a_compiler_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BenchmarkError) as caught:
        forwarder_path(cache=tmp_path / "cache")
    assert "gcc" in caught.value.hint


def test_a_source_that_does_not_compile_leaves_no_binary(tmp_path: Path) -> None:
    source = tmp_path / "forwarder.c"
    source.write_text("this is not C\n")
    with pytest.raises(BenchmarkError):
        forwarder_path(source=source, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
