"""Notices about contracts of this cloud: what is durable, under the identifier that carries events.

The broker's memory shows decisions that the journal has not written yet. A notice about them could
be wrong: a crash brings the earlier paths back, and nobody would notify the subscriber again. So a
notice states the newest generation that is durable; the notice of a move follows when it is up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gridstat.broker.requests.outcomes import granted
from gridstat.net.command.endpoint_messages import ContractChanged, PublicationChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Registry, Subscription
    from gridstat.broker.requests.notices import Notices
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import GrantedOutcome


class PathJudge(Protocol):
    """Judge of which paths of a contract do not work (`path_replacement.py`)."""

    def broken_paths(self, record: Subscribed) -> list[int]: ...


class ContractNotices:
    """Sends the present state of contracts to their subscribers."""

    def __init__(self, context: BrokerContext, notices: Notices, paths: PathJudge) -> None:
        self._context = context
        self._notices = notices
        self._paths = paths

    def push_present(self, found: Subscription, silent: Iterable[str] = ()) -> None:
        """Notify a subscriber of the paths and troubles of its contract, and of silent routers.

        Nobody knows a contract that is not durable; what fails meanwhile is reported after its
        answer.
        """
        if found.ordered is None:
            return
        record, variable = announced_paths(self._context.registry, found)
        outcome = self._outcome(found, record, variable, unconfirmed_remarks(silent))
        self._notices.push(record.subscriber, ContractChanged(granted=outcome))

    def push_announced(self, found: Subscription, from_ns: int) -> None:
        """Notify a subscriber of the period of its variable from the slot at `from_ns` on.

        The answer of a contract that is not durable yet names the new identifier.
        """
        if found.ordered is None:
            return
        record, variable = ordered_paths(found)
        notice = PublicationChanged(
            subscription_id=record.subscription_id,
            variable=variable,
            granted=self._outcome(found, record, variable),
            from_ns=from_ns,
        )
        self._notices.push(record.subscriber, notice)

    def _outcome(
        self,
        found: Subscription,
        record: Subscribed,
        variable: StatusVariable,
        remarks: tuple[str, ...] = (),
    ) -> GrantedOutcome:
        down = self._paths.broken_paths(record)
        # The troubles are those of the newest generation, and may not be those of an earlier one.
        troubles = found.troubles if down or record is found.record else ()
        return granted(
            record, variable, (*troubles, *remarks), detection=self._context.detection, down=down
        )


def unconfirmed_remarks(routers: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"router {name} has not confirmed its part yet" for name in sorted(routers))


def ordered_paths(found: Subscription) -> tuple[Subscribed, StatusVariable]:
    """Return the newest durable paths of a contract, and its variable."""
    assert found.ordered is not None, "the contract is not durable"
    return found.ordered


def announced_paths(registry: Registry, found: Subscription) -> tuple[Subscribed, StatusVariable]:
    """Return the newest durable paths of a contract under the identifier that carries events.

    A change of period gives the variable a new identifier, which carries no events until its first
    slot is announced. Until then the paths of the old identifier are held.
    """
    publication = registry.publications.get(found.variable.name)
    change = None if publication is None else publication.change
    if change is not None and not change.from_ns:
        for each in found.retiring:
            if each.is_held:
                return each.replaced, change.old
    return ordered_paths(found)
