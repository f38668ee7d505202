"""Current paths of a holding, after children have moved their segments.

The paths are split at this broker's own channels, the segments of a child are replaced by those in
the child's latest report, and all are joined again. An entry may lead to another exit than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.net.command.segment_messages import SegmentedPath, joined_routers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.broker.tree.tree_operations import HoldingBody
    from gridstat.net.command.segment_messages import PathSegment, Reserved


def with_moved_segments(body: HoldingBody, reports: Iterable[Reserved]) -> HoldingBody:
    """Return the body with the segments in these reports; reports that do not fit are ignored."""
    inner = {number for path in body.scope_paths for number in path.channel_ids}
    # A body may be not disjoint though no shared router is visible in its paths; it stays so.
    is_disjoint = body.is_node_disjoint or not share_no_router(body.paths)
    paths = body.paths
    for report in reports:
        paths = _replaced(paths, report.paths, inner)
        is_disjoint = is_disjoint and report.is_node_disjoint
    return structs.replace(
        body, paths=paths, is_node_disjoint=is_disjoint and share_no_router(paths)
    )


def share_no_router(paths: Iterable[SegmentedPath]) -> bool:
    """Return whether each router, apart from edge routers at both ends, is on one path only."""
    found: set[str] = set()
    for path in paths:
        routers = joined_routers(path.pieces)
        inner = set(routers[0 if path.entry else 1 : None if path.exit else -1])
        if inner & found:
            return False
        found |= inner
    return True


def _replaced(
    paths: tuple[SegmentedPath, ...], reported: Sequence[SegmentedPath], inner: set[int]
) -> tuple[SegmentedPath, ...]:
    segments: list[SegmentedPath] = []
    channels: dict[int, PathSegment] = {}
    for path in paths:
        segments += _split(path, inner, channels)
    entries = {path.entry for path in reported} - {0}
    exits = {path.exit for path in reported} - {0}
    kept = [
        segment
        for segment in segments
        if segment.entry not in entries and segment.exit not in exits
    ]
    if len(kept) + len(reported) != len(segments):
        return paths
    order = [_identity(segment) for segment in segments if segment.entry not in inner]
    now = [*kept, *reported]
    firsts = [segment for segment in now if segment.entry not in inner]
    if sorted(map(_identity, firsts)) != sorted(order):
        return paths
    firsts.sort(key=lambda segment: order.index(_identity(segment)))
    by_entry = {segment.entry: segment for segment in now if segment.entry in inner}
    ends_us = paths[0].latency_us - sum(piece.latency_us for piece in paths[0].pieces)
    joined = [_joined(first, by_entry, channels) for first in firsts]
    found = [
        structs.replace(path, latency_us=path.latency_us + ends_us)
        for path in joined
        if path is not None
    ]
    return tuple(found) if len(found) == len(paths) else paths


def _split(
    path: SegmentedPath, inner: set[int], channels: dict[int, PathSegment]
) -> list[SegmentedPath]:
    """Return the segments of a path in order; add the channels between them to `channels`."""
    segments = []
    entry = path.entry
    pieces: list[PathSegment] = []
    for piece in path.pieces:
        number = piece.channel_ids[0] if len(piece.channel_ids) == 1 else 0
        if number in inner:
            segments.append(_path(entry, number, pieces))
            channels[number] = piece
            entry, pieces = number, []
        else:
            pieces.append(piece)
    return [*segments, _path(entry, path.exit, pieces)]


def _joined(
    first: SegmentedPath, by_entry: dict[int, SegmentedPath], channels: dict[int, PathSegment]
) -> SegmentedPath | None:
    """Return the path that begins with this segment; None if segments are missing."""
    pieces, segment = list(first.pieces), first
    for _ in channels:
        if segment.exit not in channels:
            break
        after = by_entry.get(segment.exit)
        if after is None:
            return None
        pieces += (channels[segment.exit], *after.pieces)
        segment = after
    return None if segment.exit in channels else _path(first.entry, segment.exit, pieces)


def _path(entry: int, exit_channel: int, pieces: Iterable[PathSegment]) -> SegmentedPath:
    found = tuple(pieces)
    latency_us = sum(piece.latency_us for piece in found)
    return SegmentedPath(entry=entry, exit=exit_channel, latency_us=latency_us, pieces=found)


def _identity(segment: SegmentedPath) -> int:
    """Return the channel that identifies a first segment: its entry, or else its exit."""
    return segment.entry or segment.exit
