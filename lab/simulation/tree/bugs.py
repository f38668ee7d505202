"""Protocol bugs of a tree, planted one at a time, that the simulator must find.

Each is a mistake that somebody could make, put over the real code from outside and taken away
again; the product never holds any of them.
"""

# ruff: noqa: ANN401 — a patch knows of what it patches only what it changes.

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.access.resting_contracts import RestingContracts
from gridstat.broker.floods import leaf_flooding as operators_flooding
from gridstat.broker.floods import tree_flooding
from gridstat.broker.floods.flooding_changes import FloodingChanges
from gridstat.broker.segments.parent_session import ParentSession
from gridstat.broker.segments.remote_contracts import RemoteContracts
from gridstat.broker.segments.segment_reservations import SegmentReservations
from gridstat.broker.tree import coordinator
from gridstat.broker.tree.identifier_blocks import IdentifierBlocks
from gridstat.broker.tree.membership import Membership
from gridstat.broker.tree.owned_channels import OwnedChannels
from gridstat.broker.tree.owned_contracts import OwnedContracts
from gridstat.broker.tree.reconciliation import Reconciliation
from gridstat.broker.tree.replanning import Replanning
from gridstat.broker.tree.scope_shares import ScopeShares
from gridstat.broker.tree.segment_commits import SegmentCommits
from gridstat.broker.tree.segment_releases import SegmentReleases
from gridstat.broker.tree.transaction import Transaction
from gridstat.model.qos import LATENCY_US_MAX
from lab.simulation.planting import Bug, Patch, do_nothing
from lab.simulation.tree.unseen_bugs import UNSEEN

if TYPE_CHECKING:
    from lab.simulation.planting import Function


# Mistakes of a leaf broker.


def _say_reserved_at_once(right: Function) -> Function:
    def reserve(self: Any, message: Any) -> None:
        right(self, message)
        held = self._held(message.contract, message.generation)
        if held is not None:
            self._send_reserved(held)

    return reserve


def _obey_anybody(_: Function) -> Function:
    def obeys(self: Any, message: Any) -> bool:
        del self, message
        return True

    return obeys


# Mistakes of a QoS broker.


def _see_no_obstacle(_: Function) -> Function:
    def obstacles(self: Any, *_: Any, **__: Any) -> list[Any]:
        del self
        return []

    return obstacles


def _report_no_removal(_: Function) -> Function:
    def dismiss(self: Any, name: str) -> None:
        self._close(name, self._no_child(name))

    return dismiss


def _keep_any_pairs(_: Function) -> Function:
    def keep_pairs(*_: Any) -> bool:
        return True

    return keep_pairs


def _keep_nothing(_: Function) -> Function:
    def keeps(self: Any, message: Any) -> bool:
        del self, message
        return False

    return keeps


def _count_from_one(right: Function) -> Function:
    def next_of_root(self: Any, count: int) -> Any:
        _, given = right(self, count)
        return 1, given

    return next_of_root


def _take_the_worst(right: Function) -> Function:
    def transaction(self: Any, *arguments: Any) -> Any:
        found = right(self, *arguments)
        found.qualities = found.qualities[-1:]
        return found

    return transaction


def _take_any_time(right: Function) -> Function:
    def bounded(self: Any) -> Any:
        return {mode: replace(qos, latency_us=LATENCY_US_MAX) for mode, qos in right(self).items()}

    return bounded


def _forget_of_several_modes(right: Function) -> Function:
    def owed(self: Any) -> Any:
        found = right(self)
        return found if found is None or len(found) == 1 else None

    return owed


BUGS: Final[dict[str, Bug]] = {
    "say-reserved-before-it-is-written": Bug(
        "a cloud says that it holds a segment before its journal does",
        (Patch(SegmentReservations, "reserve", _say_reserved_at_once),),
    ),
    "keep-exports": Bug(
        "a publisher's cloud does not end what readers of other clouds may no longer have",
        (Patch(RestingContracts, "_end_segment", do_nothing),),
    ),
    "forget-an-ending": Bug(
        "the owner never hears that a subscriber has ended a contract",
        (Patch(RemoteContracts, "end", do_nothing),),
    ),
    "ask-once": Bug(
        "what was asked before a session was lost is not asked again",
        (Patch(RemoteContracts, "request_all", do_nothing),),
    ),
    "deaf-while-joining": Bug(
        "what a parent says while a broker writes down its place is not heard",
        (Patch(Membership, "keeps", _keep_nothing),),
    ),
    "forget-a-release": Bug(
        "what an earlier generation has taken is never given back",
        (Patch(SegmentReleases, "_send", do_nothing),),
    ),
    "lease-identifiers-again": Bug(
        "every block of identifiers begins with the first",
        (Patch(IdentifierBlocks, "next_of_root", _count_from_one),),
    ),
    "commit-once": Bug(
        "a child that was away is not told again that a segment counts",
        (
            Patch(SegmentCommits, "child_joined", do_nothing),
            Patch(Reconciliation, "_compare", do_nothing),
        ),
    ),
    "obey-a-stale-parent": Bug(
        "a broker obeys its parent although a later one was heard",
        (Patch(ParentSession, "accepts", _obey_anybody), Patch(Membership, "obeys", _obey_anybody)),
    ),
    "promise-a-border-twice": Bug(
        "whatever a channel between clouds carries already, there is room on it",
        (Patch(OwnedChannels, "obstacles", _see_no_obstacle),),
    ),
    "pay-for-ever": Bug(
        "what a contract used of an identity's share between clouds is not given back",
        (Patch(ScopeShares, "remove", do_nothing),),
    ),
    "report-no-removal": Bug(
        "the broker above does not learn that a child was removed",
        (Patch(Membership, "dismiss", _report_no_removal),),
    ),
    "never-replan": Bug(
        "a contract stays where it is, whatever breaks on its way",
        (Patch(OwnedContracts, "replan", do_nothing),),
    ),
    "take-a-channel-for-up": Bug(
        "that a channel between clouds is silent changes nothing for what it carries",
        (Patch(Replanning, "channel_changed", do_nothing),),
    ),
    "stay-broken": Bug(
        "a contract is taken for broken after all of it works again",
        (Patch(Replanning, "_restore", do_nothing),),
    ),
    "grant-the-worst": Bug(
        "whatever is free, a contract gets the least that it would take",
        (Patch(OwnedContracts, "_transaction", _take_the_worst),),
    ),
    "ignore-the-latency": Bug(
        "a contract is planned as if it might take as long as it likes",
        (Patch(Transaction, "bounded", _take_any_time),),
    ),
    "divide-a-risk-among-paths": Bug(
        "a child joins its gates as it likes, also where two paths then run one risk",
        (
            Patch(coordinator, "require_pairs", do_nothing),
            Patch(coordinator, "keep_pairs", _keep_any_pairs),
        ),
    ),
    "forget-what-was-promised": Bug(
        "a contract that a failure has lowered is never given back what it had",
        (Patch(Transaction, "owed", do_nothing),),
    ),
    "forget-what-modes-were-promised": Bug(
        "a contract in several modes that a failure has lowered is never given back what it had",
        (Patch(Transaction, "owed", _forget_of_several_modes),),
    ),
    "flood-in-any-mode": Bug(
        "variables flood in modes that nobody has defined",
        (
            Patch(operators_flooding, "check_modes_defined", do_nothing),
            Patch(tree_flooding, "check_modes_defined", do_nothing),
        ),
    ),
    "flood-those-who-are-there": Bug(
        "a child that was away does not hear what floods, nor what floods no more",
        (Patch(FloodingChanges, "child_joined", do_nothing),),
    ),
    **UNSEEN,
}
