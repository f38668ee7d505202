"""Random but repeatable lives of a cloud, for tests that kill its broker anywhere in them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import (
    AddChannel,
    AttachmentChanged,
    ChannelStateChanged,
    RemoveChannel,
)
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import publish, ring, subscribe, variable

if TYPE_CHECKING:
    from collections.abc import Callable

PUBLISHERS = ("c1/p0", "c1/p1", "c1/p2")
SUBSCRIBERS = ("c1/s0", "c1/s1", "c1/s2")
PUBLISHERS_EDGES = ("c1/e0", "c1/e1")
SUBSCRIBERS_EDGES = ("c1/e2", "c1/e3")


class Script:
    """Script of random steps of end-points, routers, operators or time at a broker."""

    def __init__(self, seed: int, cloud: Conversation | None = None) -> None:
        self.random = Random(seed)
        self.cloud = cloud or Conversation(ring(bandwidth_bytes_per_s=60_000))
        self._incarnations = 0

    def begin(self) -> None:
        self.cloud.start()
        for name in PUBLISHERS:
            self._attach(name)
        for name in SUBSCRIBERS:
            self._attach(name)
        for name in PUBLISHERS:
            wanted = [variable(f"{name}/v{number}") for number in range(4)]
            self.cloud.send(name, self._edge(name), publish(*wanted))
            self.cloud.settle()

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self._publish),
            (10, self._subscribe),
            (3, self._unsubscribe),
            (4, self._change_subscription),
            (2, self._unpublish),
            (2, self._change_publication),
            (2, self._pattern),
            (2, self._restart_endpoint),
            (1, self._detach),
            (3, self._flap_channel),
            (2, self._crash_router),
            (1, self._change_channels),
            (3, self._wait),
        ]
        (action,) = self.random.choices(
            [found for _, found in steps], [weight for weight, _ in steps]
        )
        action()
        self.cloud.settle()

    # End-points.

    def _edges(self, name: str) -> tuple[str, ...]:
        return PUBLISHERS_EDGES if name in PUBLISHERS else SUBSCRIBERS_EDGES

    def _edge(self, name: str) -> str:
        return self.random.choice(self._edges(name))

    def _attach(self, name: str) -> None:
        self._incarnations += 1
        for edge in self._edges(name):
            command = Attach(
                edge=edge,
                certificate=f"endpoint/{name}".encode(),
                incarnation=str(self._incarnations),
                first_time=True,
                host="10.1.0.1",
                data_port=5_000 + self._incarnations,
                urgent_port=4_000,
                datagram_versions=(1, 2, 3),
                security="hop",
            )
            self.cloud.send(name, edge, command)
            self.cloud.routers[edge].attached.add(name)
            self.cloud.settle()

    def _restart_endpoint(self) -> None:
        name = self.random.choice(PUBLISHERS + SUBSCRIBERS)
        for edge in self._edges(name):
            self.cloud.routers[edge].attached.discard(name)
            self.cloud.hear(edge, AttachmentChanged(endpoint=name, is_up=False))
        self._attach(name)

    def _detach(self) -> None:
        name = self.random.choice(PUBLISHERS + SUBSCRIBERS)
        self.cloud.send(name, self._edge(name), Detach())
        self.cloud.settle()
        self._attach(name)

    def _publish(self) -> None:
        name = self.random.choice(PUBLISHERS)
        period = Period(1, self.random.choice([30, 60, 120]))
        wanted = [variable(f"{name}/v{self.random.randrange(6)}", period=period)]
        self.cloud.send(name, self._edge(name), publish(*wanted))

    def _unpublish(self) -> None:
        name = self.random.choice(PUBLISHERS)
        names = tuple(f"{name}/v{self.random.randrange(6)}" for _ in range(2))
        self.cloud.send(name, self._edge(name), Unpublish(names=names))

    def _change_publication(self) -> None:
        name = self.random.choice(PUBLISHERS)
        period = Period(1, self.random.choice([20, 40, 80]))
        command = ChangePublication(name=f"{name}/v{self.random.randrange(6)}", period=period)
        self.cloud.send(name, self._edge(name), command)

    def _quality(self) -> QosRequest:
        every = self.random.choice([1, 2, 3])
        return QosRequest(
            every=every,
            every_worst=every * self.random.choice([1, 4]),
            redundancy=self.random.choice([1, 2]),
            redundancy_worst=1,
            priority=self.random.choice([1, 3, 6]),
        )

    def _subscribe(self) -> None:
        name = self.random.choice(SUBSCRIBERS)
        names = [f"{self.random.choice(PUBLISHERS)}/v{self.random.randrange(6)}" for _ in range(2)]
        self.cloud.send(name, self._edge(name), subscribe(*names, self._quality()))

    def _pattern(self) -> None:
        name = self.random.choice(SUBSCRIBERS)
        pattern = f"c1/*/v{self.random.randrange(6)}"
        self.cloud.send(name, self._edge(name), subscribe(pattern, self._quality()))

    def _own_subscription(self) -> tuple[str, int]:
        name = self.random.choice(SUBSCRIBERS)
        endpoint = self.cloud.broker.registry.endpoints[name]
        numbers = sorted(endpoint.subscriptions | endpoint.patterns)
        return name, self.random.choice([*numbers, 0])

    def _unsubscribe(self) -> None:
        name, number = self._own_subscription()
        command = Unsubscribe(subscription_ids=(number,))
        self.cloud.send(name, self._edge(name), command)

    def _change_subscription(self) -> None:
        name, number = self._own_subscription()
        qos = ModalQos({0: self._quality()})
        command = ChangeSubscription(subscription_id=number, qos=qos)
        self.cloud.send(name, self._edge(name), command)

    # Routers, operators and time.

    def _flap_channel(self) -> None:
        channel = self.random.choice(self.cloud.channels_given)
        for is_up in (False, True):
            message = ChannelStateChanged(channel_id=channel.channel_id, is_up=is_up)
            self.cloud.hear(channel.to_router, message)
            self.cloud.settle()

    def _crash_router(self) -> None:
        name = self.random.choice(sorted(self.cloud.routers))
        router = self.cloud.routers[name]
        attached = set(router.attached)
        self.cloud.disconnect(name)
        router.crash()
        self.cloud.connect(name)
        self.cloud.settle()
        for endpoint in sorted(attached):
            self._reattach(endpoint, name)

    def _reattach(self, endpoint: str, edge: str) -> None:
        found = self.cloud.broker.registry.endpoints[endpoint]
        command = Attach(
            edge=edge,
            certificate=f"endpoint/{endpoint}".encode(),
            incarnation=found.incarnation,
            first_time=False,
            host="10.1.0.1",
            data_port=found.attachments[edge].data_port,
            urgent_port=4_000,
            datagram_versions=(1, 2, 3),
            security="hop",
        )
        self.cloud.send(endpoint, edge, command)
        self.cloud.routers[edge].attached.add(endpoint)
        self.cloud.settle()

    def _change_channels(self) -> None:
        ends = self.random.sample(["c1/e0", "c1/e1", "c1/e2", "c1/e3"], 2)
        channel = EventChannel(ChannelId(0), ends[0], ends[1], latency_us=100)
        command = (
            AddChannel(request_id=1, channel=channel)
            if self.random.random() < 0.5
            else RemoveChannel(request_id=1, from_router=ends[0], to_router=ends[1])
        )
        self.cloud.tell(Received("operator/c1/alice", command))

    def _wait(self) -> None:
        self.cloud.advance(self.random.choice([NS_PER_S // 10, NS_PER_S, 5 * NS_PER_S]))
