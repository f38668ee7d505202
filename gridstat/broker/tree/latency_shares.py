"""What a plan asks of each child, and what it may take of the latency; and the answers, joined.

Each part of a way gets its estimate, and of the slack the share that it has of all estimates; of a
channel only what its load makes of it counts, since the rest of its latency never grows. Of several
ways through one child the least share counts: nobody knows which entry it joins to which exit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.net.command.segment_messages import Gate, PathSegment, SegmentedPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.children import Children
    from gridstat.broker.tree.owned_channels import OwnedChannels, Prediction
    from gridstat.broker.tree.path_planner import PlannedPath, Step, Use
    from gridstat.model.qos import Qos

BURST_US: Final = 20
"""A channel without load gets a share of the slack as if it took so long for it."""


@dataclass(slots=True)
class Part:
    """What is asked of one child."""

    child: str
    entries: tuple[Gate, ...]
    exits: tuple[Gate, ...]
    granted: dict[int, Qos]
    uses: tuple[Use, ...]


@dataclass(slots=True)
class Division:
    """A plan with all its shares; the ways are those of the holding that may come of it."""

    parts: dict[str, Part]
    scope_paths: tuple[ScopePath, ...]


def divide(
    planned: Sequence[PlannedPath], quality: Quality, predictions: Mapping[int, Prediction]
) -> Division | None:
    """`quality` has the latencies that this scope may take, the ends' own part deducted.

    `predictions` are those of the channels, with the newcomer on them; None if that makes a way
    too slow.
    """
    least_us: dict[tuple[str, int], int] = {}
    steps_of: dict[str, list[Step]] = {}
    bound_us = min(qos.latency_us for qos in quality.values())
    ways = []
    for way in planned:
        if _slack_us(way, bound_us, predictions) < 0:
            return None
        for step in way.steps:
            steps_of.setdefault(step.child, []).append(step)
        ways.append(_way(way, _shares_us(way, bound_us, predictions)[1]))
        for mode, qos in quality.items():
            shares_us, _ = _shares_us(way, qos.latency_us, predictions)
            for step, share_us in zip(way.steps, shares_us, strict=True):
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
            uses=tuple(dict.fromkeys(use for step in steps for use in step.uses)),
        )
        for child, steps in steps_of.items()
    }
    return Division(parts, tuple(ways))


def _slack_us(way: PlannedPath, bound_us: int, predictions: Mapping[int, Prediction]) -> int:
    steps_us = sum(step.estimate_us for step in way.steps)
    return bound_us - steps_us - sum(predictions[number].latency_us for number in way.channel_ids)


def _shares_us(
    way: PlannedPath, bound_us: int, predictions: Mapping[int, Prediction]
) -> tuple[list[int], tuple[int, ...]]:
    """For each child and each channel its estimate, and of the slack the share that is its due."""
    steps_us = [step.estimate_us for step in way.steps]
    channels = [predictions[number] for number in way.channel_ids]
    slack_us = _slack_us(way, bound_us, predictions)
    weights = [found.of_load_us + BURST_US for found in channels]
    total = sum(steps_us) + sum(weights)
    return [max(1, us + slack_us * us // total) for us in steps_us], tuple(
        [
            found.latency_us + slack_us * weight // total
            for found, weight in zip(channels, weights, strict=True)
        ]
    )


def _way(way: PlannedPath, shares_us: tuple[int, ...]) -> ScopePath:
    first, last = way.steps[0], way.steps[-1]
    return ScopePath(
        entry=0 if first.entry is None else first.entry.channel_id,
        exit=0 if last.exit is None else last.exit.channel_id,
        channel_ids=way.channel_ids,
        shares_us=shares_us,
    )


def match_request(part: Part, paths: Sequence[SegmentedPath]) -> bool:
    """Whether they are what was asked: a path from each entry, to each exit, or at the ends."""
    count = max(qos.redundancy for qos in part.granted.values())
    return all(
        sorted(said) == (sorted(gate.channel_id for gate in gates) or [0] * count)
        for said, gates in (
            ([path.entry for path in paths], part.entries),
            ([path.exit for path in paths], part.exits),
        )
    )


def lie_below_child(child: str, paths: Sequence[SegmentedPath], families: Children) -> bool:
    """Whether a child leads them over routers of its own, with a channel between two at most."""
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
    """Whole paths of the children's answers, and the ways as they are now; None if they do not fit.

    Children choose which entry leads to which exit, so a way may change its channels on its way.
    """
    shares_us = {
        number: share_us
        for way in division.scope_paths
        for number, share_us in zip(way.channel_ids, way.shares_us, strict=True)
    }
    by_entry = {(child, path.entry): path for child, paths in answers.items() for path in paths}
    firsts = _firsts(division, answers)
    child_after = {
        gate.channel_id: child for child, part in division.parts.items() for gate in part.entries
    }
    joined = []
    ways = []
    for first in firsts:
        path: SegmentedPath | None = first
        pieces: list[PathSegment] = []
        numbers: list[int] = []
        while path is not None:
            pieces.extend(path.pieces)
            if path.exit not in shares_us:
                break
            numbers.append(path.exit)
            if len(numbers) > len(shares_us):
                return None  # They lead round in a circle.
            pieces.append(_channel_piece(channels, path.exit, owner))
            path = by_entry.get((child_after[path.exit], path.exit))
        if path is None:
            return None
        latency_us = sum(piece.latency_us for piece in pieces)
        joined.append(
            SegmentedPath(
                entry=first.entry, exit=path.exit, latency_us=latency_us, pieces=tuple(pieces)
            )
        )
        shares = tuple(shares_us[number] for number in numbers)
        ways.append(ScopePath(first.entry, path.exit, tuple(numbers), shares))
    is_whole = sum(len(way.channel_ids) for way in ways) == len(shares_us)
    return (tuple(joined), tuple(ways)) if is_whole else None


def _firsts(
    division: Division, answers: Mapping[str, tuple[SegmentedPath, ...]]
) -> list[SegmentedPath]:
    """The answers with which ways begin: those that no channel of ours leads to."""
    inner = {number for way in division.scope_paths for number in way.channel_ids}
    return [path for paths in answers.values() for path in paths if path.entry not in inner]


def _channel_piece(channels: OwnedChannels, channel_id: int, owner: str) -> PathSegment:
    channel = channels.accounts[channel_id].channel
    return PathSegment(
        owner=owner,
        routers=(channel.from_router, channel.to_router),
        channel_ids=(channel_id,),
        latency_us=channels.latency_us(channel_id),
        detection_ms=channels.detection_ms(channel_id),
    )


def fit_to_bounds(
    division: Division, ways: Iterable[ScopePath], quality: Quality, channels: OwnedChannels
) -> tuple[ScopePath, ...] | None:
    """The ways with shares whose sums keep the bounds; None if there are none."""
    found = []
    for way in ways:
        kept = _reduced(way, _excess_us(division, way, quality), channels)
        if kept is None:
            return None
        found.append(kept)
    return tuple(found)


def _excess_us(division: Division, way: ScopePath, quality: Quality) -> int:
    """By how much all that is promised on a way exceeds what it may take."""
    parts = [division.parts[child] for child in _children_on(division, way)]
    return max(
        sum(part.granted[mode].latency_us for part in parts) + sum(way.shares_us) - qos.latency_us
        for mode, qos in quality.items()
    )


def _children_on(division: Division, way: ScopePath) -> list[str]:
    """Those on a way, in its order: who is left by its first channel, or by its gate, and so on."""
    ends = {
        (gate.channel_id, is_entry): child
        for child, part in division.parts.items()
        for gates, is_entry in ((part.entries, True), (part.exits, False))
        for gate in gates
    }
    if not way.channel_ids:
        return [ends[way.entry, True] if way.entry else ends[way.exit, False]]
    return [
        ends[way.channel_ids[0], False],
        *(ends[number, True] for number in way.channel_ids),
    ]


def _reduced(way: ScopePath, excess_us: int, channels: OwnedChannels) -> ScopePath | None:
    if excess_us <= 0:
        return way
    spare_us = [
        max(0, share_us - channels.latency_us(number))
        for number, share_us in zip(way.channel_ids, way.shares_us, strict=True)
    ]
    total_us = sum(spare_us)
    if total_us < excess_us:
        return None
    shares_us = tuple(
        share_us - -(-excess_us * one_us // total_us)
        for share_us, one_us in zip(way.shares_us, spare_us, strict=True)
    )
    return structs.replace(way, shares_us=shares_us)
