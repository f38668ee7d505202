"""The management plane alone, in one process: real brokers connected directly, without sockets.

Messages arrive at once and in order, journals are in memory and never wait, routers confirm their
orders (`lab/plane_routers.py`), and time jumps to the next timer whenever no message is pending. So
the measured time is the brokers' own work, and a grid of a thousand clouds fits into one machine.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.context import Outside
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.net.command.endpoint_messages import Attach
from gridstat.net.command.endpoint_signatures import CertificateFacts, signed_bytes
from gridstat.net.command.frames import decode_outcomes, encode_body
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Note,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.operator_messages import OperatorAnswer
from gridstat.net.command.router_messages import Forward, Return
from gridstat.net.command.session_messages import Hello
from gridstat.net.command.tree_messages import TreeMessageBase
from lab.errors import LabError
from lab.open_access import OPEN_ACCESS
from lab.plane_routers import PlaneRouter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand
    from lab.national_grid import NationalGrid

WALL_NS: Final = 1_800_000_000 * 1_000_000_000
CERTIFICATE_END_S: Final = 2_000_000_000
MANY: Final = 10_000_000
SETTLE_NS: Final = 5_000_000_000
"""Time after its start when a plane has delivered all first messages."""
STALLED_NS: Final = 60_000_000_000
FIRST_PORT: Final = 40_000
OPERATOR: Final = "operator/lab"


class PlainVerifier:
    """Verifier whose certificates are `role/name` in plain bytes; proofs are measured elsewhere."""

    def certificate(self, der: bytes) -> CertificateFacts:
        role, _, name = der.decode().partition("/")
        return CertificateFacts(role, name, der, CERTIFICATE_END_S)

    def signature(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return signature == public_key + len(message).to_bytes(4, "big")


class ManagementPlane:
    """Brokers and routers; `messages` counts by kind, `aside_s` is processor time of other work."""

    def __init__(self, grid: NationalGrid) -> None:
        self.grid = grid
        self.now_ns = 0
        self.messages: Counter[str] = Counter()
        self.tree_messages = 0
        self.router_messages = 0
        self.operation_bytes = 0
        self.aside_s = 0.0
        self.answers: dict[tuple[str, int], tuple[Outcome, ...]] = {}
        self.brokers: dict[str, LeafBroker | QosBroker] = {}
        self.routers: dict[str, PlaneRouter] = {}
        self._queue: deque[tuple[str, Any]] = deque()
        self._timers: list[tuple[int, int, str, str]] = []
        self._timer_numbers: dict[tuple[str, str], int] = {}
        self._timer_number = 0
        self._request_id = WALL_NS
        self._edge_of: dict[str, str] = {}
        self._operator_answers: list[OperatorAnswer] = []
        self._build()

    def _build(self) -> None:
        plan = self.grid.plan
        outside = Outside(PlainVerifier(), lambda: WALL_NS + self.now_ns)
        for name, broker in plan.brokers.items():
            cloud = plan.clouds.get(name)
            peer = f"broker/{name}"
            if cloud is None:
                self.brokers[peer] = QosBroker(
                    TreeSettings(name, broker.parent, transactions_max=MANY),
                    outside,
                    children=broker.children,
                    channels=broker.channels,
                )
                continue
            quotas = Quotas(subscriptions_max=MANY, pending_requests_max=MANY)
            self.brokers[peer] = LeafBroker(
                BrokerSettings(
                    name,
                    parent=broker.parent,
                    quotas=quotas,
                    snapshot_after=MANY,
                    access=OPEN_ACCESS,
                ),
                outside,
                routers=cloud.routers,
                channels=cloud.channels,
            )
            for router in cloud.routers:
                number = len(self.routers)
                self.routers[f"router/{router.name}"] = PlaneRouter(router.name, peer, number)

    def start(self) -> None:
        """Start every broker, connect every peer, and deliver all first messages."""
        for peer, broker in self.brokers.items():
            self._do_all(peer, broker.start(self.now_ns))
        self.run()
        for peer in self.routers:
            self._connect(peer, f"broker/{peer.split('/')[1]}")
        self.run()
        for name, plan in reversed(self.grid.plan.brokers.items()):
            if plan.parent:
                self._connect(f"broker/{name}", f"broker/{plan.parent}")
        self.run(until_ns=self.now_ns + SETTLE_NS)

    def _connect(self, client: str, server: str) -> None:
        for here, there in ((server, client), (client, server)):
            role, _, name = there.partition("/")
            hello = Hello(role=role, name=name, instance=f"{name}#1")
            self._queue.append((here, Connected(there, hello)))

    # End-points.

    def attach(self, name: str, edge: str) -> None:
        """Attach an end-point to one edge."""
        self._edge_of[name] = edge
        key = f"endpoint/{name}".encode()
        command = Attach(
            edge=edge,
            certificate=key,
            incarnation=name,
            first_time=True,
            host="10.1.0.1",
            data_port=FIRST_PORT,
            urgent_port=FIRST_PORT + 1,
            datagram_versions=(1, 2, 3),
            security="hop",
        )
        self.ask(name, command)

    def ask(self, name: str, command: EndPointCommand) -> tuple[str, int]:
        """Forward a request; its answer appears in `answers` under the returned key."""
        self._request_id += 1
        body = encode_body(command)
        key = f"endpoint/{name}".encode()
        signed = signed_bytes(name, self._request_id, body)
        signature = key + len(signed).to_bytes(4, "big")
        edge = self._edge_of[name]
        forward = Forward(
            endpoint=name, request_id=self._request_id, body=body, signature=signature
        )
        self._queue.append((f"broker/{edge.split('/')[0]}", Received(f"router/{edge}", forward)))
        return name, self._request_id

    def command(self, broker: str, command: OperatorCommand | TreeCommand) -> OperatorAnswer:
        """Send an operator's command to a broker and return the answer."""
        self._operator_answers.clear()
        self._queue.append((f"broker/{broker}", Received(OPERATOR, command)))
        while not self._operator_answers:
            if not self._step():
                raise LabError(f"broker {broker} does not answer {type(command).__name__}")
        return self._operator_answers[0]

    def answered(self, keys: Iterable[tuple[str, int]]) -> list[tuple[Outcome, ...]]:
        """Run until all of these requests are answered; return the answers."""
        wanted = list(keys)
        began_ns = self.now_ns
        while missing := [key for key in wanted if key not in self.answers]:
            if not self._step() or self.now_ns > began_ns + STALLED_NS:
                raise LabError(f"{len(missing)} requests were not answered, {missing[0]} first")
        return [self.answers.pop(key) for key in wanted]

    # Time.

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the processor time of the block as work that is not the brokers'."""
        began_s = time.process_time()
        yield
        self.aside_s += time.process_time() - began_s

    def run(self, *, until_ns: int = 0) -> None:
        """Run until no message is pending and all timers up to `until_ns` have fired."""
        while self._queue or (self._timers and self._timers[0][0] <= until_ns):
            self._step()
        self.now_ns = max(self.now_ns, until_ns)

    def _step(self) -> bool:
        """Deliver all pending messages, or fire the next timer if there are none."""
        queue = self._queue
        if not queue:
            if not self._timers:
                return False
            due_ns, number, peer, name = heappop(self._timers)
            if self._timer_numbers.get((peer, name)) == number:
                del self._timer_numbers[peer, name]
                self.now_ns = max(self.now_ns, due_ns)
                queue.append((peer, TimerFired(name)))
        while queue:
            peer, event = queue.popleft()
            broker = self.brokers.get(peer)
            if broker is not None:
                self._do_all(peer, broker.handle(event, self.now_ns))
            else:
                with self.aside():
                    self._deliver_to_other(peer, event)
        return True

    def _deliver_to_other(self, peer: str, event: object) -> None:
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, Return):
            outcomes = decode_outcomes(message.body).outcomes
            self.answers[message.endpoint, message.request_id] = outcomes
        elif isinstance(message, OperatorAnswer):
            self._operator_answers.append(message)
        else:
            for sent in self.routers[peer].handle(event, self.now_ns):
                self.router_messages += 1
                self._queue.append((sent.peer, Received(peer, sent.message)))

    def _do_all(self, peer: str, instructions: Iterable[object]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(peer=to, message=message):
                    self.messages[type(message).__name__] += 1
                    if isinstance(message, TreeMessageBase):
                        self.tree_messages += 1
                    elif to != OPERATOR:
                        self.router_messages += 1
                    self._queue.append((to, Received(peer, message)))
                case Persist(token=token, operations=operations):
                    self.operation_bytes += sum(map(len, operations))
                    self._queue.append((peer, Persisted(token)))
                case SetTimer(name=name, after_ns=after_ns):
                    self._timer_number += 1
                    self._timer_numbers[peer, name] = self._timer_number
                    heappush(self._timers, (self.now_ns + after_ns, self._timer_number, peer, name))
                case CancelTimer(name=name):
                    self._timer_numbers.pop((peer, name), None)
                case Close(peer=other, reason=reason):
                    raise LabError(f"{peer} closes {other}: {reason}")
                case Note(word="request_failed" | "message_failed", facts=facts):
                    raise LabError(f"{peer} failed: {dict(facts)}")
                case _:
                    pass
