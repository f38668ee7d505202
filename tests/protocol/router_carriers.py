"""Two carriers for the events of a test's cloud: by hand in memory, and by real UDP."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from tests.cluster.eventually import eventually
from tests.protocol.grids import HEADER, NOW_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.protocol.router_cloud import ManagedRouter

STEP_NS = 5_000_000
STEPS_MAX = 4_000


class MemoryCarrier:
    """Datagrams are carried by hand; time passes in steps of 5 ms when the test waits.

    `cut` names channels on which nothing arrives.
    """

    def __init__(self) -> None:
        self.cut: set[int] = set()
        self._now_ns = NOW_NS
        self._to: dict[int, ManagedRouter] = {}
        self._ports = 0
        self._arrived: list[bytes] = []

    def now_ns(self) -> int:
        return self._now_ns

    def steady_ns(self) -> int:
        return self._now_ns

    def attach(self, router: ManagedRouter) -> tuple[str, int, int]:
        self._ports += 2
        self._to[self._ports] = router
        return "127.0.0.1", self._ports, self._ports + 1

    def detach(self, router: ManagedRouter) -> None:
        self._to = {port: found for port, found in self._to.items() if found is not router}

    def subscriber(self) -> tuple[str, int, int]:
        return "127.0.0.1", 60_000, 60_001

    def publish(self, router: ManagedRouter, raw: bytes) -> None:
        router.core.inject(raw, now_ns=self._now_ns)

    def carry(self, routers: dict[str, ManagedRouter]) -> None:
        for router in routers.values():
            router.core.pump(self._now_ns)
        is_moving = True
        while is_moving:
            is_moving = any(self._carry_one(router) for router in routers.values())

    def _carry_one(self, router: ManagedRouter) -> bool:
        is_moving = False
        for channel_id, order in router.agent.table.channels.items():
            if channel_id not in router.router.channel_counters():
                continue
            for port, raw in router.core.take_output(channel_id):
                is_moving = True
                if channel_id in self.cut:
                    continue
                if order.data_port == self.subscriber()[1]:
                    self._arrived.append(raw)
                elif order.data_port in self._to:
                    self._to[order.data_port].core.inject(raw, port=port, now_ns=self._now_ns)
        return is_moving

    def arrived(self) -> list[bytes]:
        found, self._arrived = self._arrived, []
        return found

    def wait(self, condition: Callable[[], str | None]) -> None:
        for _ in range(STEPS_MAX):
            complaint = condition()
            if complaint is None:
                return
            self._now_ns += STEP_NS
        raise AssertionError(complaint)

    def close(self) -> None:
        pass


class UdpCarrier:
    """Real sockets on the loopback, real threads, real time."""

    def __init__(self) -> None:
        self._subscriber = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._subscriber.bind(("127.0.0.1", 0))
        self._subscriber.setblocking(False)
        self._publisher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._addresses: dict[str, tuple[str, int, int]] = {}

    def now_ns(self) -> int:
        return time.time_ns()

    def steady_ns(self) -> int:
        return time.monotonic_ns()

    def attach(self, router: ManagedRouter) -> tuple[str, int, int]:
        data_port, urgent_port = router.router.listen("127.0.0.1")
        router.router.start()
        self._addresses[router.name] = ("127.0.0.1", data_port, urgent_port)
        return self._addresses[router.name]

    def detach(self, router: ManagedRouter) -> None:
        del self._addresses[router.name]

    def subscriber(self) -> tuple[str, int, int]:
        host, port = self._subscriber.getsockname()
        return host, port, port

    def publish(self, router: ManagedRouter, raw: bytes) -> None:
        host, data_port, _ = self._addresses[router.name]
        self._publisher.sendto(raw, (host, data_port))

    def carry(self, routers: dict[str, ManagedRouter]) -> None:
        pass

    def arrived(self) -> list[bytes]:
        return list(self._received())

    def _received(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            while True:
                raw = self._subscriber.recv(65_536)
                if len(raw) > HEADER.size:
                    yield raw

    def wait(self, condition: Callable[[], str | None]) -> None:
        eventually(condition)

    def close(self) -> None:
        self._subscriber.close()
        self._publisher.close()
