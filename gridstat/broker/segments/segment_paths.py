"""Paths of contracts across clouds: this cloud's segment, and the whole path for the subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.allocation import gates_used, pairs_used
from gridstat.broker.requests.outcomes import few_words
from gridstat.broker.tables.detection import longest
from gridstat.model.identifiers import path_name
from gridstat.net.command.endpoint_messages import GrantedOutcome, GrantedPath
from gridstat.net.command.segment_messages import (
    PathSegment,
    SegmentedPath,
    joined_names,
    joined_routers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.parent_operations import ContractAsked
    from gridstat.broker.tables.detection import Detection
    from gridstat.net.command.segment_messages import ContractGranted


def gate_channels(record: Subscribed) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the entry and exit channels of each path of a segment; 0 at the contract's ends."""
    if record.is_paired:
        ends = [(path.routers[0], path.routers[-1]) for path in record.paths]
        pairs = pairs_used(record.entries, record.exits, ends)
        if pairs is not None:
            return tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
    no_channels = (0,) * len(record.paths)
    entries = gates_used(record.entries, [path.routers[0] for path in record.paths])
    exits = gates_used(record.exits, [path.routers[-1] for path in record.paths])
    return (entries or no_channels), (exits or no_channels)


def is_disjoint(record: Subscribed) -> bool:
    """Return whether the paths share no router, including the routers of entries and exits.

    A shared edge router of an end-point is allowed, because its loss also disconnects the
    end-point.
    """
    inner = [
        name
        for path in record.paths
        for name in path.routers[0 if record.entries else 1 : None if record.exits else -1]
    ]
    return record.is_node_disjoint and len(set(inner)) == len(inner)


def segmented_paths(
    cloud: str, record: Subscribed, ends_us: int, detection: Detection
) -> tuple[SegmentedPath, ...]:
    """Return the paths of a segment for the parent, without the latency share of end-points."""
    entries, exits = gate_channels(record)
    found = []
    for path, entry, exit_channel in zip(record.paths, entries, exits, strict=True):
        latency_us = max(0, path.latency_us - ends_us)
        piece = PathSegment(
            owner=cloud,
            routers=path.routers,
            channel_ids=path.channel_ids,
            latency_us=latency_us,
            detection_ms=detection.on_channels(path.channel_ids),
            channel_names=path.channel_names,
        )
        found.append(
            SegmentedPath(entry=entry, exit=exit_channel, latency_us=latency_us, pieces=(piece,))
        )
    return tuple(found)


def whole_outcome(
    asked: ContractAsked,
    granted: ContractGranted,
    segment: Subscribed | None,
    troubles: Sequence[str] = (),
    *,
    detection: Detection,
    failed: Collection[int] = (),
) -> GrantedOutcome:
    """Return the outcome of a contract for its subscriber, with the present paths of our segment.

    `failed` are the indices of the paths of our own segment that do not work.
    """
    pieces = [current_pieces(path, segment, detection) for path in granted.paths]
    paths = tuple(
        _joined(index, path.latency_us, pieces[index]) for index, path in enumerate(granted.paths)
    )
    ends = [(path.routers[0], path.routers[-1]) for path in paths]
    return GrantedOutcome(
        subscription_id=asked.number,
        variable=granted.variable,
        granted=granted.granted,
        paths=paths,
        is_node_disjoint=granted.is_node_disjoint and (segment is None or is_disjoint(segment)),
        shares_edge=any(len({end[at] for end in ends}) < len(ends) for at in (0, 1)),
        degraded=few_words((*granted.degraded, *troubles)),
        label=asked.label,
        detection_ms=longest(piece.detection_ms for of_path in pieces for piece in of_path),
        paths_down=tuple(
            path_name(index)
            for index, path in enumerate(granted.paths)
            if index in granted.paths_down or _own_path(path, segment) in failed
        ),
    )


def _joined(index: int, latency_us: int, pieces: Sequence[PathSegment]) -> GrantedPath:
    return GrantedPath(
        routers=tuple(joined_routers(pieces)),
        channel_ids=tuple(number for piece in pieces for number in piece.channel_ids),
        latency_us=latency_us,
        name=path_name(index),
        channel_names=joined_names(pieces),
    )


def _own_path(path: SegmentedPath, segment: Subscribed | None) -> int | None:
    """Return the index of our segment's path that ends this path; None if unknown."""
    if segment is None or len(path.pieces) < 2:  # noqa: PLR2004 — a channel and what follows it.
        return None
    # Two plans may order the paths differently; the entry channel identifies the path in both.
    entry_channel = path.pieces[-2].channel_ids[-1:]
    entries, _ = gate_channels(segment)
    return (
        entries.index(entry_channel[0]) if entry_channel and entry_channel[0] in entries else None
    )


def current_pieces(
    path: SegmentedPath, segment: Subscribed | None, detection: Detection
) -> tuple[PathSegment, ...]:
    """Return the pieces, the last one with the present routers of our segment."""
    own = _own_path(path, segment)
    if segment is None or own is None:
        return path.pieces
    now, last = segment.paths[own], path.pieces[-1]
    current = PathSegment(
        owner=last.owner,
        routers=now.routers,
        channel_ids=now.channel_ids,
        latency_us=last.latency_us,
        detection_ms=detection.on_channels(now.channel_ids),
        channel_names=now.channel_names,
    )
    return (*path.pieces[:-1], current)
