"""Bugs of a tree that were written from the product's code alone, without the properties."""

# ruff: noqa: ANN401 — a patch knows of what it patches only what it changes.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gridstat.broker.segments.segment_reservations import SegmentRequests
from gridstat.broker.tree import latency_shares
from gridstat.broker.tree.holdings import Holdings
from gridstat.broker.tree.identifier_blocks import IdentifierBlocks
from gridstat.broker.tree.owned_channels import OwnedChannels
from gridstat.broker.tree.segment_commits import SegmentCommits
from gridstat.broker.tree.segment_releases import HoldingRelease, SegmentReleases
from gridstat.broker.tree.tree_operations import BlockGiven, HoldingTaken, Stage
from gridstat.broker.tree.tree_state import TreeState
from lab.simulation.planting import Bug, Patch, do_nothing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.simulation.planting import Function


def _late_and_nothing_else(_: Function) -> Function:
    def expire(self: Any) -> None:
        for until_ns, key in self._due.take_due():
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.until_ns == until_ns and not waiting.is_late:
                waiting.is_late = True
                waiting.owner.commit_late(waiting.holding, waiting.texts())

    return expire


def _any_round(right: Function) -> Function:
    def released(self: Any, key: Any, child: str, round_: int = 0) -> None:
        del round_
        right(self, key, child)

    return released


def _all_the_time(right: Function) -> Function:
    def _shares_us(path: Any, bound_us: int, predictions: Any) -> Any:
        shares_us, channels_us = right(path, bound_us, predictions)
        return [bound_us for _ in shares_us], channels_us

    return _shares_us


def _as_they_are(_: Function) -> Function:
    def _reduced(path: Any, excess_us: int, channels: Any) -> Any:
        del excess_us, channels
        return path

    return _reduced


def _never_late(right: Function) -> Function:
    def obstacles(self: Any, channel_ids: Any, **options: Any) -> list[Any]:
        return [found for found in right(self, channel_ids, **options) if found.unit != "µs"]

    return obstacles


def _all_committed(right: Function) -> Function:
    def holding_operations(self: Any) -> Iterator[Any]:
        for operation in right(self):
            assert isinstance(operation, HoldingTaken)
            yield msgspec.structs.replace(operation, stage=Stage.COMMITTED)

    return holding_operations


def _no_leases(right: Function) -> Function:
    def operations(self: Any) -> Iterator[Any]:
        return (found for found in right(self) if not isinstance(found, BlockGiven))

    return operations


def _any_request(_: Function) -> Function:
    def matches(self: Any, held: Any, message: Any) -> bool:
        del self, held, message
        return True

    return matches


def _keep_older(_: Function) -> Function:
    def release_superseded(self: Any, holding: Any) -> list[Any]:
        del self, holding
        return []

    return release_superseded


def _no_change(_: Function) -> Function:
    def record_move(self: Any, holding: Any, child: str, report: Any) -> bool:
        del self, holding, child, report
        return False

    return record_move


MISSED: Final = frozenset(
    {
        "keep-shares-that-are-too-large",
        "take-any-request-for-the-same",
    }
)
"""Bugs that no seed is known to find yet: gaps in the checks, or in what the seeds do."""

UNSEEN: Final[dict[str, Bug]] = {
    "wait-for-a-late-commit": Bug(
        "a commit that is not confirmed in time is reported, and not sent again",
        (Patch(SegmentCommits, "expire", _late_and_nothing_else),),
    ),
    "take-any-round": Bug(
        "the answer to an earlier release closes the present one",
        (Patch(SegmentReleases, "released", _any_round),),
    ),
    "release-once": Bug(
        "a release that a child could not obey is not sent again",
        (Patch(SegmentReleases, "retry", do_nothing),),
    ),
    "give-every-child-all-the-time": Bug(
        "each cloud on a path may take as long as the whole path",
        (Patch(latency_shares, "_shares_us", _all_the_time),),
    ),
    "keep-shares-that-are-too-large": Bug(
        "shares of the latency are not cut when children join other borders than planned",
        (Patch(latency_shares, "_reduced", _as_they_are),),
    ),
    "let-load-between-clouds-make-late": Bug(
        "new load on a channel between clouds may make older contracts late",
        (Patch(OwnedChannels, "obstacles", _never_late),),
    ),
    "compact-as-committed": Bug(
        "a compacted journal takes what is reserved or leaves for committed",
        (Patch(TreeState, "holding_operations", _all_committed),),
    ),
    "compact-without-leases": Bug(
        "a compacted journal forgets which identifiers were given out",
        (Patch(IdentifierBlocks, "operations", _no_leases),),
    ),
    "take-any-request-for-the-same": Bug(
        "a child takes another request under a known generation for a repeated one",
        (Patch(SegmentRequests, "matches", _any_request),),
    ),
    "keep-older-generations": Bug(
        "what a newer generation of a contract replaces is not released",
        (Patch(HoldingRelease, "release_superseded", _keep_older),),
    ),
    "ignore-moved-segments": Bug(
        "a parent does not note how a child carries a contract now",
        (Patch(Holdings, "record_move", _no_change),),
    ),
}
