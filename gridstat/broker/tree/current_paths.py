"""The paths of something that is held as they are now, after children have led their parts anew.

The paths are cut at this broker's own channels; the parts of a child that has said others are
replaced by those, and all are joined again. Which entry leads to which exit may be another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.net.command.segment_messages import SegmentedPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.broker.tree.tree_operations import HoldingBody
    from gridstat.net.command.segment_messages import PathSegment, Reserved


def with_moved_segments(body: HoldingBody, words: Iterable[Reserved]) -> HoldingBody:
    """The same with what children have said since; what does not fit is not believed."""
    inner = {number for way in body.scope_paths for number in way.channel_ids}
    # One that said so without a router in sight that two paths share has its own reasons.
    is_disjoint = body.is_node_disjoint or not share_no_router(body.paths)
    paths = body.paths
    for word in words:
        paths = _replaced(paths, word.paths, inner)
        is_disjoint = is_disjoint and word.is_node_disjoint
    return structs.replace(
        body, paths=paths, is_node_disjoint=is_disjoint and share_no_router(paths)
    )


def share_no_router(paths: Iterable[SegmentedPath]) -> bool:
    """Whether each router is on one path only; but for the edges at which they begin and end."""
    found: set[str] = set()
    for path in paths:
        routers = [name for piece in path.pieces for name in piece.routers]
        inner = set(routers[0 if path.entry else 1 : None if path.exit else -1])
        if inner & found:
            return False
        found |= inner
    return True


def _replaced(
    paths: tuple[SegmentedPath, ...], theirs: Sequence[SegmentedPath], inner: set[int]
) -> tuple[SegmentedPath, ...]:
    parts: list[SegmentedPath] = []
    channels: dict[int, PathSegment] = {}
    for path in paths:
        parts += _cut(path, inner, channels)
    entries = {path.entry for path in theirs} - {0}
    exits = {path.exit for path in theirs} - {0}
    kept = [part for part in parts if part.entry not in entries and part.exit not in exits]
    if len(kept) + len(theirs) != len(parts):
        return paths
    order = [_name(part) for part in parts if part.entry not in inner]
    now = [*kept, *theirs]
    firsts = [part for part in now if part.entry not in inner]
    if sorted(map(_name, firsts)) != sorted(order):
        return paths
    firsts.sort(key=lambda part: order.index(_name(part)))
    by_entry = {part.entry: part for part in now if part.entry in inner}
    ends_us = paths[0].latency_us - sum(piece.latency_us for piece in paths[0].pieces)
    joined = [_joined(first, by_entry, channels) for first in firsts]
    found = [
        structs.replace(path, latency_us=path.latency_us + ends_us)
        for path in joined
        if path is not None
    ]
    return tuple(found) if len(found) == len(paths) else paths


def _cut(
    path: SegmentedPath, inner: set[int], channels: dict[int, PathSegment]
) -> list[SegmentedPath]:
    """Its parts in the children, in order; the channels between them go to `channels`."""
    parts = []
    entry = path.entry
    pieces: list[PathSegment] = []
    for piece in path.pieces:
        number = piece.channel_ids[0] if len(piece.channel_ids) == 1 else 0
        if number in inner:
            parts.append(_path(entry, number, pieces))
            channels[number] = piece
            entry, pieces = number, []
        else:
            pieces.append(piece)
    return [*parts, _path(entry, path.exit, pieces)]


def _joined(
    first: SegmentedPath, by_entry: dict[int, SegmentedPath], channels: dict[int, PathSegment]
) -> SegmentedPath | None:
    """None if the parts do not make a way."""
    pieces, part = list(first.pieces), first
    for _ in channels:
        if part.exit not in channels:
            break
        after = by_entry.get(part.exit)
        if after is None:
            return None
        pieces += (channels[part.exit], *after.pieces)
        part = after
    return None if part.exit in channels else _path(first.entry, part.exit, pieces)


def _path(entry: int, leaving: int, pieces: Iterable[PathSegment]) -> SegmentedPath:
    found = tuple(pieces)
    latency_us = sum(piece.latency_us for piece in found)
    return SegmentedPath(entry=entry, exit=leaving, latency_us=latency_us, pieces=found)


def _name(part: SegmentedPath) -> int:
    """What tells the first parts from each other: how they come in, or else go on."""
    return part.entry or part.exit
