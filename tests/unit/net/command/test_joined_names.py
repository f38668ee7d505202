"""Names of the channels on a path between clouds, in the order of its pieces."""

from __future__ import annotations

from gridstat.model.path_label import path_label
from gridstat.net.command.segment_messages import PathSegment, joined_names, joined_routers

NEAR = PathSegment("c1", ("c1/e", "c1/b"), (1,), 1)
BORDER = PathSegment("root", ("c1/b", "c2/b"), (7,), 1)
FAR = PathSegment("c2", ("c2/b", "c2/e"), (2,), 1, channel_names=("west",))


def test_a_piece_without_names_stands_for_channels_without_names() -> None:
    north = PathSegment("root", ("c1/b", "c2/b"), (8,), 1, channel_names=("north",))
    pieces = (NEAR, north, FAR)
    assert joined_names(pieces) == ("", "north", "west")
    label = path_label(joined_routers(pieces), joined_names(pieces))
    assert label == "c1/e>c1/b>#north>c2/b>#west>c2/e"


def test_channels_without_any_name_are_not_listed() -> None:
    assert joined_names((NEAR, BORDER)) == ()
