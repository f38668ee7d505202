"""A publisher and a subscriber with real senders and receivers, joined by loopback alone.

Neither a session nor a router is here: the answers of the cloud are laid ready, and the C files
between the two ends are traced by a program of their own (`journey_trace.py`).
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from gridstat.core import _ends
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.deliverer import Deliverer
from gridstat.endpoint.expected_variables import ExpectedVariables
from gridstat.endpoint.options import EventHandlers, SubscriptionSpec
from gridstat.endpoint.outgoing_channels import OutgoingChannels
from gridstat.endpoint.publication_registry import PublicationRegistry
from gridstat.endpoint.publisher import Publication
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.subscription_registry import SubscriptionRegistry
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.clock import SystemClock
from gridstat.net.command.endpoint_messages import AttachedOutcome, PublishedOutcome
from tests.cluster.eventually import eventually
from tests.unit.endpoint.paper_grid import PaperCloud, granted, variable

if TYPE_CHECKING:
    from gridstat.endpoint.delivery import Delivery

CHANNEL = 3
LATENCY_MS = 60_000
"""No event is late, however busy the machine is."""


class JourneyEnds:
    """One variable, published here and subscribed here; the test runs the delivering thread."""

    def __init__(self) -> None:
        clock = self._clock = SystemClock()
        self.receiver = _ends.Receiver(only_sources=True)
        self.receiver.start()
        self.receiver.open_source(CHANNEL)
        self.deliverer = Deliverer(self.receiver, clock)
        self.channels = OutgoingChannels()
        self.channels.open("c1/e0", self._attached())
        board = ChangeNotifier(self.deliverer.post, clock, None)
        listening = ExpectedVariables(self.receiver, self.deliverer, clock)
        of = variable("c1/hill/pmu-1/frequency", 7, period=Period(1, 30))
        cloud = PaperCloud(
            [(PublishedOutcome(variable=of),), (granted(of, latency_ms=LATENCY_MS),)]
        )
        self.arrived: list[Delivery] = []
        publications = PublicationRegistry(cloud, self.channels, board)
        (publication,) = publications.publish([(of, ())])
        assert isinstance(publication, Publication)
        self.publication = publication
        self.subscriptions = SubscriptionRegistry(cloud, listening, self.deliverer, clock, board)
        order = SubscriptionSpec(
            of.name,
            ModalQos({0: QosRequest(latency_us=LATENCY_MS * 1_000)}),
            handlers=EventHandlers(on_event=self.arrived.append),
        )
        (subscription,) = self.subscriptions.subscribe([order])
        assert isinstance(subscription, Subscription)
        self.deliverer.run_posted()

    def _attached(self) -> AttachedOutcome:
        data_port, urgent_port = self.receiver.ports
        return AttachedOutcome(
            edge="c1/e0",
            up_channel_id=CHANNEL,
            down_channel_id=CHANNEL,
            host="127.0.0.1",
            data_port=data_port,
            urgent_port=urgent_port,
        )

    def wait_for_event(self) -> None:
        """Return when the receiver has an event for the delivering thread."""
        poll = select.poll()
        poll.register(self.receiver.fileno(), select.POLLIN)
        eventually(lambda: None if poll.poll(100) else "no event has come")

    def deliver(self) -> None:
        """Do what the delivering thread does when events wait for it."""
        self.deliverer.pass_on(self._clock.steady_ns())

    def close(self) -> None:
        self.subscriptions.end()
        self.deliverer.close()
        self.channels.close()
        self.receiver.close()
