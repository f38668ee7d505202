"""Open files of a daemon: the limit is raised at the start, and divided among the listeners.

Each connection takes a descriptor. Pending connections and sessions are bounded so that the sum of
all listeners stays below the limit, and some descriptors are kept for the journal, the data
sockets, the log and `/health`.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.net.command.connection_admission import PENDING_MAX, AdmissionLimits
from gridstat.net.command.session_settings import SESSIONS_MAX
from gridstat.net.command.session_table import TableSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT: Final = 64
"""Descriptors for everything but connections: a daemon has about 20, and its metrics take 21."""
PLACES_MIN: Final = 8
"""Sessions and pending connections that each listener has under any limit."""
PENDING_SHARE: Final = 4
"""One of so many descriptors of a listener may belong to pending connections."""
LIMIT_MOST: Final = 1_048_576
"""Highest limit that is asked for; a system without a limit allows no more by default."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DescriptorPlan:
    """Limit of open files, bounds for each listener in order, and a complaint in words, if any."""

    limit: int
    tables: tuple[TableSettings, ...]
    complaint: str


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = LIMIT_MOST if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # The system allows less than it says.
            return soft
        return most
    return most if soft == resource.RLIM_INFINITY else soft


def plan_descriptors(limit: int, sessions_needed: Sequence[int]) -> DescriptorPlan:
    """Divide the descriptors among listeners, each of which needs so many sessions."""
    each = max(0, limit - KEPT) // len(sessions_needed)
    pending_max = min(PENDING_MAX, max(PLACES_MIN, each // PENDING_SHARE))
    tables = []
    for needed in sessions_needed:
        sessions_max = min(max(SESSIONS_MAX, needed), max(PLACES_MIN, each - pending_max))
        tables.append(
            TableSettings(
                sessions_max=sessions_max, admission=AdmissionLimits(pending_max=pending_max)
            )
        )
    is_enough = all(
        table.sessions_max >= needed for table, needed in zip(tables, sessions_needed, strict=True)
    )
    if is_enough and pending_max == PENDING_MAX:
        return DescriptorPlan(limit, tuple(tables), "")
    enough = KEPT + len(tables) * max(
        max(sessions_needed) + PENDING_MAX, PENDING_MAX * PENDING_SHARE
    )
    places = " and ".join(f"{table.sessions_max:,}" for table in tables)
    wanted = " and ".join(f"{needed:,}" for needed in sessions_needed)
    return DescriptorPlan(
        limit,
        tuple(tables),
        f"the limit of open files is {limit:,}, and this configuration needs {enough:,}: there is "
        f"room for {places} sessions of {wanted}, and for {pending_max:,} pending connections "
        f"a listener of {PENDING_MAX:,}",
    )


def take_descriptors(*sessions_needed: int) -> DescriptorPlan:
    """Raise the limit and divide it; a limit that is too small is named in the log."""
    plan = plan_descriptors(raise_descriptor_limit(), sessions_needed)
    if plan.complaint:
        hint = "raise the hard limit: ulimit -Hn, or LimitNOFILE= of the service"
        log.warning("descriptor_limit_too_small reason=%r hint=%r", plan.complaint, hint)
    return plan
