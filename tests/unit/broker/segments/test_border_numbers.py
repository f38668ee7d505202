"""A number of a channel between clouds that is in use does not get other ends."""

from __future__ import annotations

from gridstat.net.command.tree_messages import BorderChannelReported, OpenBorder
from tests.unit.broker.segments.family import ENTRIES, EXITS, OUT, border, family


def test_a_number_that_a_segment_leaves_by_gets_no_other_ends_until_it_is_free() -> None:
    cloud = family()
    cloud.reserve("c9#1", entries=ENTRIES[:1], exits=EXITS[:1])
    cloud.commit("c9#1")
    before = cloud.broker.registry.tree.borders[OUT]
    other = border(OUT, "c1/i0", "c7/b0")
    cloud.words.clear()
    cloud.say(OpenBorder(term=cloud.parent_term, channels=(other,)))
    assert cloud.broker.registry.tree.borders[OUT] == before
    assert cloud.heard(BorderChannelReported) == []
    cloud.release("c9#1")
    cloud.say(OpenBorder(term=cloud.parent_term, channels=(other,)))
    assert cloud.broker.registry.tree.borders[OUT] == other
