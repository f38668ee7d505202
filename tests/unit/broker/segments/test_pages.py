"""The channels of the parent in pages: what none of them names is closed, and not before."""

from __future__ import annotations

from gridstat.net.command.tree_messages import OpenBorder
from tests.unit.broker.segments.family import IN, IN_TWO, OUT, OUT_TWO, border, family


def test_a_channel_is_closed_once_no_page_of_the_whole_list_has_named_it() -> None:
    cloud = family()
    opened = cloud.broker.registry.tree.borders
    first = (border(IN, "c2/b", "c1/i0"), border(OUT, "c1/i0", "c2/b"))
    last = (border(IN_TWO, "c3/b", "c1/i1"),)
    cloud.say(OpenBorder(term=7, channels=first, is_whole=True, is_last=False))
    cloud.settle()
    assert set(opened) == {IN, OUT, IN_TWO, OUT_TWO}
    cloud.say(OpenBorder(term=7, channels=last, is_whole=True, page=1))
    cloud.settle()
    assert set(opened) == {IN, OUT, IN_TWO}
