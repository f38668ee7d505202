"""Long requests of one end-point on a real cloud: others are answered while they are decided."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import gridstat

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
COUNT = 2_000
BETWEEN = 8
"""Answers while the variables are registered: more than the few requests of them allow before and
after each."""


def test_a_subscriber_is_answered_while_another_publishes_thousands(
    cloud: LocalCloud, pmu: Connection
) -> None:
    wanted = pmu.publish("wanted", gridstat.FLOAT64, rate=1)
    order: list[str] = []
    made: list[Publication] = []
    with cloud.connect("c1/many") as many, cloud.connect("c1/reader") as reader:

        def publish() -> None:
            order.append("asked")
            made.extend(many.publish_many([f"v{n}" for n in range(COUNT)], gridstat.INT64, rate=1))
            order.append("published")

        thread = threading.Thread(target=publish)
        thread.start()
        while thread.is_alive():
            subscription = reader.subscribe(wanted.name)
            order.append("answered")
            subscription.unsubscribe()
            order.append("answered")
        thread.join()
        between = order[order.index("asked") : order.index("published")]
        assert between.count("answered") >= BETWEEN, between
        assert [each.name for each in made] == [f"c1/many/v{n}" for n in range(COUNT)]

        names = [each.name for each in made[:100]]
        subscriptions = reader.subscribe_many(names)
        assert [each.name for each in subscriptions] == names
        numbers = {each.contract.subscription_id for each in subscriptions}
        assert len(numbers) == len(names), "asked in several requests, each granted once"
