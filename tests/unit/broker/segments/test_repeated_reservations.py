"""Segments that a cloud holds for an earlier process of its parent with another request."""

from __future__ import annotations

import pytest

from gridstat.net.command.segment_messages import Reserved, SegmentBroken
from tests.unit.broker.segments.family import ENTRIES, EXITS, OUT_TWO, family, quality


@pytest.mark.parametrize("is_committed", [False, True])
def test_another_question_by_the_same_name_is_not_answered_with_what_is_held(
    is_committed: bool,
) -> None:
    cloud = family()
    cloud.reserve("c9#1", entries=ENTRIES[:1], exits=EXITS[:1], granted=quality(every=4))
    if is_committed:
        cloud.commit("c9#1")
    cloud.reserve("c9#1", entries=ENTRIES[:1], exits=EXITS[1:], granted=quality(every=1))
    (path,) = cloud.last(Reserved).paths
    assert path.exit == OUT_TWO
    (held,) = cloud.broker.registry.subscriptions.values()
    assert (held.record.granted[0].every, held.record.is_reserved) == (1, True)
    assert cloud.heard(SegmentBroken) == []


def test_the_same_question_is_answered_with_what_is_held() -> None:
    cloud = family()
    for _ in range(2):
        cloud.reserve("c9#1", entries=ENTRIES, exits=EXITS)
    one, other = cloud.heard(Reserved)
    assert one == other
    assert len(cloud.broker.registry.subscriptions) == 1
    assert cloud.broker.registry.subscription_id_last == 1
