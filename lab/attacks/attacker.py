"""A stranger in a namespace: it reads every frame there and sends what it likes from there.

It has the address of its namespace, so no check of addresses stops it, but no key and no process of
the grid. A line of JSON on its input is an order, a line of JSON on its output the answer.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.request import urlopen

from lab.attacks.forgery import (
    HEADER,
    PROBES,
    SEALED,
    TAG_BYTES,
    Heading,
    altered,
    event,
    forged,
    heading_of,
    moved,
)
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lab.netns import Namespace

ETH_P_ALL: Final = 3
SOL_PACKET: Final = 263
PACKET_STATISTICS: Final = 6
IPV4: Final = 0x0800
UDP: Final = 17
VERSION_4: Final = 4
HEADERS_BYTES: Final = 28
FRAME_BYTES_MAX: Final = 65_536
KEPT_MAX: Final = 200_000
NS_PER_S: Final = 1_000_000_000
SEND_BUFFER_BYTES: Final = 1 << 22
RECEIVE_BUFFER_BYTES: Final = 1 << 25
BURST_S: Final = 0.002
ENDING_S_MAX: Final = 10.0


class Seen(NamedTuple):
    """A datagram that an eavesdropper has read, and where it was going."""

    host: str
    port: int
    payload: bytes


class Ear:
    """Reads all UDP datagrams that enter or leave the namespace, each once."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.settimeout(0)

    def listen(self, seconds: float) -> Iterator[Seen]:
        """Yield what passes during this time."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if not select.select([self._socket], [], [], left_s)[0]:
                return
            yield from self.waiting()

    def waiting(self) -> Iterator[Seen]:
        """Yield what has passed and was not read yet."""
        while True:
            try:
                packet, (_, protocol, kind, *_) = self._socket.recvfrom(FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            # A frame on the loopback device is seen twice, leaving and coming.
            if protocol == IPV4 and kind in {socket.PACKET_HOST, socket.PACKET_OUTGOING}:
                found = udp_of(packet)
                if found is not None:
                    yield found

    def dropped(self) -> int:
        """Return the frames that came too fast, since the last call."""
        counts = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        return int.from_bytes(counts[4:], sys.byteorder)

    def close(self) -> None:
        self._socket.close()


def udp_of(packet: bytes) -> Seen | None:
    """Return the datagram in an IPv4 packet that is not a fragment; None for anything else."""
    if len(packet) < HEADERS_BYTES or packet[0] >> 4 != VERSION_4 or packet[9] != UDP:
        return None
    if int.from_bytes(packet[6:8], "big") & 0x3FFF:
        return None
    at = 4 * (packet[0] & 15)
    port = int.from_bytes(packet[at + 2 : at + 4], "big")
    length = int.from_bytes(packet[at + 4 : at + 6], "big")
    return Seen(socket.inet_ntoa(packet[16:20]), port, packet[at + 8 : at + length])


class Stranger:
    """Carries out orders; what it has recorded stays until the next recording."""

    def __init__(self) -> None:
        self._recorded: list[Seen] = []

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        words = dict(order)
        return dict(getattr(self, f"do_{words.pop('do')}")(**words))

    def do_record(self, seconds: float, port: int = 0) -> dict[str, Any]:
        """Record what passes, to this port only if one is given."""
        ear = Ear()
        try:
            self._recorded = [
                seen
                for seen in islice(ear.listen(seconds), KEPT_MAX)
                if heading_of(seen.payload) is not None and port in {0, seen.port}
            ]
        finally:
            ear.close()
        return {"recorded": len(self._recorded)}

    def do_channels(self) -> dict[str, Any]:
        """Return the last header of every recorded channel, with the host that it goes to."""
        found: dict[int, dict[str, Any]] = {}
        for seen in self._recorded:
            heading = heading_of(seen.payload)
            assert heading is not None
            newest = found.get(heading.channel_id)
            if newest is None or heading.counter > newest["heading"][4]:
                fields = [getattr(heading, name) for name in Heading.__slots__]
                found[heading.channel_id] = {
                    "host": seen.host,
                    "port": seen.port,
                    "heading": fields,
                }
        return {"channels": list(found.values())}

    def do_export(self, channel_id: int) -> dict[str, Any]:
        """Return the recorded datagrams of a channel, for a stranger elsewhere."""
        return {"datagrams": [datagram.hex() for datagram in self._of(channel_id)]}

    def do_import(self, host: str, port: int, datagrams: list[str]) -> dict[str, Any]:
        """Take over the recording of another stranger."""
        self._recorded = [Seen(host, port, bytes.fromhex(text)) for text in datagrams]
        return {"recorded": len(self._recorded)}

    def _of(self, channel_id: int) -> list[bytes]:
        found = [
            seen.payload
            for seen in self._recorded
            if HEADER.unpack_from(seen.payload)[3] == channel_id
        ]
        if not found:
            raise LabError(f"channel {channel_id} was not recorded")
        return found

    def do_receive(self, seconds: float, host: str, port: int = 0) -> dict[str, Any]:
        """Count the datagrams to an address during this time, those with events apart."""
        ear = Ear()
        try:
            lengths = [
                heading.length
                for seen in ear.listen(seconds)
                if seen.host == host
                and port in {0, seen.port}
                and (heading := heading_of(seen.payload)) is not None
            ]
        finally:
            ear.close()
        probe_bytes = HEADER.size
        return {"datagrams": len(lengths), "events": sum(at > probe_bytes for at in lengths)}

    def do_send(
        self, host: str, port: int, datagrams: list[str], per_s: float = 0, from_host: str = ""
    ) -> dict[str, Any]:
        """Send these datagrams, written in hexadecimal digits."""
        return {"sent": send(host, port, map(bytes.fromhex, datagrams), per_s, from_host)}

    def do_replay(
        self,
        host: str,
        port: int,
        channel_id: int,
        count: int = 0,
        per_s: float = 0,
        changed: dict[str, int] | None = None,
        from_host: str = "",
    ) -> dict[str, Any]:
        """Send the recording of a channel again, from its start if it is shorter than `count`.

        `changed` has fields of the header that become others.
        """
        kept = self._of(channel_id)
        if changed:
            kept = [moved(datagram, **changed) for datagram in kept]
        again = islice(cycle(kept), count or len(kept))
        return {"sent": send(host, port, again, per_s, from_host), "recorded": len(kept)}

    def do_alter(
        self, host: str, port: int, channel_id: int, count: int, per_s: float
    ) -> dict[str, Any]:
        """Send recorded datagrams with new counters, each with one bit changed, or a new body.

        An unsealed channel takes some of them for its own, as it takes any well-formed datagram.
        """
        kept = self._of(channel_id)
        newest = max(HEADER.unpack_from(datagram)[4] for datagram in kept)

        def made() -> Iterator[bytes]:
            for number, datagram in enumerate(islice(cycle(kept), count)):
                fresh = moved(datagram, counter=(newest + 1 + number) % 2**64)
                match number % 3:
                    case 0:  # A change of the header would address another channel or epoch.
                        yield altered(fresh, HEADER.size + number, number)
                    case 1:
                        yield fresh
                    case _:
                        yield fresh[: HEADER.size] + os.urandom(len(fresh) - HEADER.size)

        return {"sent": send(host, port, made(), per_s)}

    def do_substitute(
        self,
        host: str,
        port: int,
        heading: list[int],
        variables: list[int],
        rate: int,
        seconds: float,
        value: int,
        ahead_ms: float = 5.0,
    ) -> dict[str, Any]:
        """Send an event of every slot a little before its publisher does."""
        seen, sent = Heading(*heading), 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            slot = (time.time_ns() * rate) // NS_PER_S + 2
            for number in range(round(seconds * rate)):
                created_ns = -(-(slot + number) * NS_PER_S // rate)
                wait_ns = created_ns - round(ahead_ms * 1e6) - time.time_ns()
                time.sleep(max(0, wait_ns) / NS_PER_S)
                events = [event(variable, created_ns, value) for variable in variables]
                for datagram in forged(seen, events, ahead=1_000 + number):
                    out.sendto(datagram, (host, port))
                    sent += 1
        return {"sent": sent}

    def do_probe(
        self,
        host: str,
        port: int,
        heading: list[int],
        seconds: float,
        per_s: float = 50.0,
        from_host: str = "",
    ) -> dict[str, Any]:
        """Send probes of all forms on a channel for so long."""
        seen = Heading(*heading)
        datagrams = (
            datagram
            for number in range(round(seconds * per_s))
            for datagram in forged(seen, ahead=1 + number)
        )
        forms = len(list(forged(seen)))
        return {"sent": send(host, port, datagrams, per_s * forms, from_host)}

    def do_forge(
        self,
        host: str,
        port: int,
        heading: list[int],
        variable: int,
        count: int,
        per_s: float,
        is_plain: bool = False,  # noqa: FBT001, FBT002 - an order names it.
    ) -> dict[str, Any]:
        """Send so many forged datagrams, each with a counter that is due and an event of now."""
        seen = Heading(*heading)
        version, epoch = (PROBES, 0) if is_plain else (SEALED, seen.epoch)
        tag_bytes = 0 if is_plain else TAG_BYTES

        def made() -> Iterator[bytes]:
            for number in range(count):
                one = event(variable, time.time_ns(), number)
                header = HEADER.pack(
                    *(version, epoch, HEADER.size + len(one), seen.channel_id),
                    (seen.counter + 1 + number) % 2**64,
                )
                yield header + one + os.urandom(tag_bytes)

        return {"sent": send(host, port, made(), per_s)}

    def do_metrics(self, port: int) -> dict[str, Any]:
        """Return what a daemon in this namespace says about itself."""
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return {"text": answer.read().decode()}


def send(
    host: str, port: int, datagrams: Iterable[bytes], per_s: float, from_host: str = ""
) -> int:
    """Send datagrams at a rate, in small bursts; 0: as fast as possible."""
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        out.bind((from_host, 0))
        out.connect((host, port))
        began_s = time.monotonic()
        for datagram in datagrams:
            if per_s and sent / per_s > time.monotonic() - began_s:
                time.sleep(BURST_S)
            try:
                out.send(datagram)
            except ConnectionRefusedError:
                continue  # Nobody listens there now; the attack goes on all the same.
            sent += 1
    return sent


class Attacker:
    """The stranger's process in a namespace; it ends when its input is closed."""

    def __init__(self, namespace: Namespace) -> None:
        self._process = namespace.start(
            [sys.executable, "-m", "lab.attacks.attacker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(ENDING_S_MAX)
        self._process.stdout.close()

    def begin(self, do: str, **words: object) -> None:
        """Give an order; `finish` returns its answer, so that several can act at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LabError("the attacker's process has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **words: object) -> dict[str, Any]:
        self.begin(do, **words)
        return self.finish()


def main() -> None:
    stranger = Stranger()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(stranger.obey(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
