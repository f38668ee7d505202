"""Entries and exits of a child that belong together, since two paths may run no common risk.

A child chooses which of its entries leads to which exit. Where one planned path runs a risk both
before and after a child, another choice could divide that risk among two paths. The child is then
told to join the gates as planned. Children of earlier releases choose nevertheless, so the paths
are checked when they are joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.broker.tree.latency_shares import Division
    from gridstat.broker.tree.owned_channels import OwnedChannels
    from gridstat.broker.tree.path_planner import PlannedPath
    from gridstat.broker.tree.tree_operations import ScopePath


def require_pairs(
    division: Division, planned: Sequence[PlannedPath], channels: OwnedChannels, *, is_paired: bool
) -> None:
    """Mark the requests whose gates must be joined as planned.

    With `is_paired` the parent has said which gates of the whole scope belong together; then those
    of every child on the way do, too.
    """
    for path in planned:
        for at, step in enumerate(path.steps):
            part = division.parts[step.child]
            if len(part.steps) == 1 or step.entry is None or step.exit is None:
                continue
            before = _risks(path.channel_ids[:at], channels)
            after = _risks(path.channel_ids[at:], channels)
            part.is_paired |= is_paired or not before.isdisjoint(after)


def keep_pairs(
    paths: Iterable[ScopePath], pairs: frozenset[tuple[int, int]], channels: OwnedChannels
) -> bool:
    """Return whether joined paths have the gates of these pairs, and no common risk."""
    seen: set[str] = set()
    for path in paths:
        risks = _risks(path.channel_ids, channels)
        if not seen.isdisjoint(risks) or (pairs and (path.entry, path.exit) not in pairs):
            return False
        seen |= risks
    return True


def _risks(channel_ids: Iterable[int], channels: OwnedChannels) -> set[str]:
    accounts = channels.accounts
    return {risk for number in channel_ids for risk in accounts[number].channel.risk_groups}
