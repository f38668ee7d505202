"""Division of a contract's latency among children and channels, and the check of their replies.

`divide` turns a plan into one request for each child. Each segment and channel of a path gets its
estimated latency and a share of the slack in proportion to its estimate. For a channel only the
part of the latency that comes from load counts, since the rest never grows. Where several paths
cross one child, the smallest share counts, since the child may join any entry to any exit.

An estimate may be far too short, for a child tells its load late. When a child refuses for its
latency, the same plan is divided once more, with the slack in even shares.

`join` puts the children's replies together to whole paths. Such a path may consist of segments that
were planned for two different paths, so `fit_to_bounds` checks the sums again, and reduces shares
of channels that are larger than needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.model.path_label import named_channels
from gridstat.net.command.segment_messages import Gate, PathSegment, SegmentedPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.children import Children
    from gridstat.broker.tree.owned_channels import OwnedChannels, Prediction
    from gridstat.broker.tree.path_planner import PlannedPath, Step, Use
    from gridstat.model.qos import Qos

BURST_US: Final = 20
"""Load latency assumed for an idle channel, so that it gets a share of the slack too."""


@dataclass(slots=True)
class Part:
    """The request to one child; with `is_paired` it joins each entry to the exit at its place."""

    child: str
    entries: tuple[Gate, ...]
    exits: tuple[Gate, ...]
    granted: dict[int, Qos]
    steps: tuple[Step, ...]
    is_paired: bool = False

    @property
    def uses(self) -> tuple[Use, ...]:
        return tuple(dict.fromkeys(use for step in self.steps for use in step.uses))


@dataclass(slots=True)
class Division:
    """A plan with all its shares; `scope_paths` are those of the resulting holding."""

    parts: dict[str, Part]
    scope_paths: tuple[ScopePath, ...]


def divide(
    planned: Sequence[PlannedPath],
    quality: Quality,
    predictions: Mapping[int, Prediction],
    *,
    is_even: bool = False,
) -> Division | None:
    """Return the requests and shares of a plan; None if a path is too slow.

    `quality` has the latencies that this scope may take, without the part of the two ends.
    `predictions` are the latencies of the channels with the new contract on them. `is_even` divides
    the slack in even shares.
    """
    shares_of = _even_shares_us if is_even else _shares_us
    least_us: dict[tuple[str, int], int] = {}
    steps_of: dict[str, list[Step]] = {}
    bound_us = min(qos.latency_us for qos in quality.values())
    scope_paths = []
    for path in planned:
        if _slack_us(path, bound_us, predictions) < 0:
            return None
        for step in path.steps:
            steps_of.setdefault(step.child, []).append(step)
        scope_paths.append(_scope_path(path, shares_of(path, bound_us, predictions)[1]))
        for mode, qos in quality.items():
            shares_us, _ = shares_of(path, qos.latency_us, predictions)
            for step, share_us in zip(path.steps, shares_us, strict=True):
                key = (step.child, mode)
                least_us[key] = min(least_us.get(key, share_us), share_us)
    parts = {
        child: Part(
            child=child,
            entries=tuple([step.entry for step in steps if step.entry is not None]),
            exits=tuple([step.exit for step in steps if step.exit is not None]),
            granted={
                mode: replace(qos, latency_us=least_us[child, mode], redundancy=len(steps))
                for mode, qos in quality.items()
            },
            steps=tuple(steps),
        )
        for child, steps in steps_of.items()
    }
    return Division(parts, tuple(scope_paths))


def _slack_us(path: PlannedPath, bound_us: int, predictions: Mapping[int, Prediction]) -> int:
    steps_us = sum(step.estimate_us for step in path.steps)
    return bound_us - steps_us - sum(predictions[number].latency_us for number in path.channel_ids)


def _shares_us(
    path: PlannedPath, bound_us: int, predictions: Mapping[int, Prediction]
) -> tuple[list[int], tuple[int, ...]]:
    """Return the shares of the children and of the channels: estimates, and parts of the slack."""
    steps_us = [step.estimate_us for step in path.steps]
    channels = [predictions[number] for number in path.channel_ids]
    slack_us = _slack_us(path, bound_us, predictions)
    weights = [found.of_load_us + BURST_US for found in channels]
    total = sum(steps_us) + sum(weights)
    return [max(1, us + slack_us * us // total) for us in steps_us], tuple(
        [
            found.latency_us + slack_us * weight // total
            for found, weight in zip(channels, weights, strict=True)
        ]
    )


def _even_shares_us(
    path: PlannedPath, bound_us: int, predictions: Mapping[int, Prediction]
) -> tuple[list[int], tuple[int, ...]]:
    """Return the shares of the children and of the channels: estimates, and even parts of slack."""
    slack_us = _slack_us(path, bound_us, predictions)
    more_us = slack_us // (len(path.steps) + len(path.channel_ids))
    return [max(1, step.estimate_us + more_us) for step in path.steps], tuple(
        [predictions[number].latency_us + more_us for number in path.channel_ids]
    )


def _scope_path(path: PlannedPath, shares_us: tuple[int, ...]) -> ScopePath:
    first, last = path.steps[0], path.steps[-1]
    return ScopePath(
        entry=0 if first.entry is None else first.entry.channel_id,
        exit=0 if last.exit is None else last.exit.channel_id,
        channel_ids=path.channel_ids,
        shares_us=shares_us,
    )


def match_request(part: Part, paths: Sequence[SegmentedPath]) -> bool:
    """Return whether the paths have the requested entries and exits, each of them once."""
    count = max(qos.redundancy for qos in part.granted.values())
    return all(
        sorted(channels) == (sorted(gate.channel_id for gate in gates) or [0] * count)
        for channels, gates in (
            ([path.entry for path in paths], part.entries),
            ([path.exit for path in paths], part.exits),
        )
    )


def lie_below_child(child: str, paths: Sequence[SegmentedPath], families: Children) -> bool:
    """Return whether all routers lie below the child, with at most one channel between two."""
    pieces = [piece for path in paths for piece in path.pieces]
    return all(
        len(piece.channel_ids) < len(piece.routers)
        and all(families.child_at(name) == child for name in piece.routers)
        for piece in pieces
    )


def join(
    division: Division,
    answers: Mapping[str, tuple[SegmentedPath, ...]],
    channels: OwnedChannels,
    owner: str,
) -> tuple[tuple[SegmentedPath, ...], tuple[ScopePath, ...]] | None:
    """Join the children's replies to whole paths; return None if they do not fit.

    Children choose which entry leads to which exit, so a path may use other channels than planned.
    """
    shares_us = {
        number: share_us
        for path in division.scope_paths
        for number, share_us in zip(path.channel_ids, path.shares_us, strict=True)
    }
    by_entry = {(child, path.entry): path for child, paths in answers.items() for path in paths}
    firsts = _firsts(division, answers)
    child_after = {
        gate.channel_id: child for child, part in division.parts.items() for gate in part.entries
    }
    joined = []
    scope_paths = []
    for first in firsts:
        segment: SegmentedPath | None = first
        pieces: list[PathSegment] = []
        numbers: list[int] = []
        while segment is not None:
            pieces.extend(segment.pieces)
            if segment.exit not in shares_us:
                break
            numbers.append(segment.exit)
            if len(numbers) > len(shares_us):
                return None  # The replies form a cycle.
            pieces.append(_channel_piece(channels, segment.exit, owner))
            segment = by_entry.get((child_after[segment.exit], segment.exit))
        if segment is None:
            return None
        latency_us = sum(piece.latency_us for piece in pieces)
        joined.append(
            SegmentedPath(
                entry=first.entry, exit=segment.exit, latency_us=latency_us, pieces=tuple(pieces)
            )
        )
        shares = tuple(shares_us[number] for number in numbers)
        scope_paths.append(ScopePath(first.entry, segment.exit, tuple(numbers), shares))
    is_whole = sum(len(path.channel_ids) for path in scope_paths) == len(shares_us)
    return (tuple(joined), tuple(scope_paths)) if is_whole else None


def _firsts(
    division: Division, answers: Mapping[str, tuple[SegmentedPath, ...]]
) -> list[SegmentedPath]:
    """Return the replies that begin a path: those that no own channel leads to."""
    inner = {number for path in division.scope_paths for number in path.channel_ids}
    return [path for paths in answers.values() for path in paths if path.entry not in inner]


def _channel_piece(channels: OwnedChannels, channel_id: int, owner: str) -> PathSegment:
    channel = channels.accounts[channel_id].channel
    return PathSegment(
        owner=owner,
        routers=(channel.from_router, channel.to_router),
        channel_ids=(channel_id,),
        latency_us=channels.latency_us(channel_id),
        detection_ms=channels.detection_ms(channel_id),
        channel_names=named_channels([channel.name]),
    )


def fit_to_bounds(
    division: Division, paths: Iterable[ScopePath], quality: Quality, channels: OwnedChannels
) -> tuple[ScopePath, ...] | None:
    """Return the paths with shares that keep the bounds; None if no shares do."""
    found = []
    for path in paths:
        kept = _reduced(path, _excess_us(division, path, quality), channels)
        if kept is None:
            return None
        found.append(kept)
    return tuple(found)


def _excess_us(division: Division, path: ScopePath, quality: Quality) -> int:
    """Return by how much the sum of all promises on a path exceeds its bound."""
    parts = [division.parts[child] for child in _children_on(division, path)]
    return max(
        sum(part.granted[mode].latency_us for part in parts) + sum(path.shares_us) - qos.latency_us
        for mode, qos in quality.items()
    )


def _children_on(division: Division, path: ScopePath) -> list[str]:
    """Return the children on a path, in order."""
    ends = {
        (gate.channel_id, is_entry): child
        for child, part in division.parts.items()
        for gates, is_entry in ((part.entries, True), (part.exits, False))
        for gate in gates
    }
    if not path.channel_ids:
        return [ends[path.entry, True] if path.entry else ends[path.exit, False]]
    return [
        ends[path.channel_ids[0], False],
        *(ends[number, True] for number in path.channel_ids),
    ]


def _reduced(path: ScopePath, excess_us: int, channels: OwnedChannels) -> ScopePath | None:
    if excess_us <= 0:
        return path
    spare_us = [
        max(0, share_us - channels.latency_us(number))
        for number, share_us in zip(path.channel_ids, path.shares_us, strict=True)
    ]
    total_us = sum(spare_us)
    if total_us < excess_us:
        return None
    shares_us = tuple(
        share_us - -(-excess_us * one_us // total_us)
        for share_us, one_us in zip(path.shares_us, spare_us, strict=True)
    )
    return structs.replace(path, shares_us=shares_us)
