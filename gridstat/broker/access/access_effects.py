"""Effects of operations on access rules, and the count of bytes/s that end-points have reserved."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.access.access_operations import (
    AccessEnding,
    AccessGranted,
    AccessModeSet,
    AccessRevoked,
)
from gridstat.broker.permissions import bytes_per_s, held_bytes_per_s
from gridstat.broker.records.operations import (
    Moved,
    PublicationMoved,
    Published,
    Subscribed,
    Unsubscribed,
    Withdrawn,
)
from gridstat.model.access_rules import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.access.access_operations import AccessRecords
    from gridstat.broker.leaf_capability import Apply, Around
    from gridstat.broker.permissions import Permissions
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.model.access_rules import AccessRule


class AccessEffects:
    """Applies rules; those in force are the file's without the revoked, and the granted."""

    def __init__(
        self, records: AccessRecords, permissions: Permissions, from_file: Iterable[AccessRule]
    ) -> None:
        self._records = records
        self._permissions = permissions
        self.from_file = {rule.identifier: rule for rule in from_file}
        for rule in self.from_file.values():
            permissions.rules.add(rule)

    def operations(self) -> dict[type[Operation], Apply]:
        return {
            AccessModeSet: self._set_mode,
            AccessGranted: self._grant,
            AccessRevoked: self._revoke,
            AccessEnding: self._note_ending,
        }

    def _set_mode(self, operation: AccessModeSet, done: Applied) -> None:
        before = self._records.is_enforced
        self.set_mode(is_enforced=operation.is_enforced)
        self._records.is_enforced = operation.is_enforced
        done.undo.append(partial(setattr, self._records, "is_enforced", before))
        done.undo.append(partial(self._set_mode_back, before))

    def _set_mode_back(self, before: bool | None) -> None:  # noqa: FBT001 — a step of an undo.
        self.set_mode(is_enforced=before is not False)

    def set_mode(self, *, is_enforced: bool) -> None:
        self._permissions.is_enforced = is_enforced

    def _grant(self, operation: AccessGranted, done: Applied) -> None:
        rule, records = operation.rule, self._records
        done.undo.append(partial(self.refresh, rule.identifier))  # After the steps below.
        self._put(records.granted, rule.identifier, rule, done)
        self._put(records.revoked, rule.identifier, None, done)
        self.refresh(rule.identifier)

    def _revoke(self, operation: AccessRevoked, done: Applied) -> None:
        identifier, records = operation.rule.identifier, self._records
        done.undo.append(partial(self.refresh, identifier))  # After the steps below.
        self._put(records.granted, identifier, None, done)
        in_file = self.from_file.get(identifier)
        self._put(records.revoked, identifier, in_file and operation.rule, done)
        self.refresh(identifier)

    def _note_ending(self, operation: AccessEnding, done: Applied) -> None:
        before = dict(self._records.ending)
        done.undo.append(partial(setattr, self._records, "ending", before))
        self._records.ending.pop(operation.rule, None)
        if not operation.is_over:
            self._records.ending[operation.rule] = None

    def _put(
        self,
        table: dict[str, AccessRule],
        identifier: str,
        rule: AccessRule | None,
        done: Applied,
    ) -> None:
        done.undo.append(partial(_store, table, identifier, table.get(identifier)))
        _store(table, identifier, rule)

    def refresh(self, identifier: str) -> None:
        """Put the rule of an identifier into force that the records and the file have."""
        records, rules = self._records, self._permissions.rules
        in_file = self.from_file.get(identifier)
        if in_file is not None and records.revoked.get(identifier) == in_file:
            in_file = None
        rule = records.granted.get(identifier) or in_file
        if rule is None:
            rules.discard(identifier)
        elif rules.get(identifier) != rule:
            rules.add(rule)


def paid_by(record: Subscribed) -> str:
    """Return the end-point whose reserved bytes a contract counts for; empty if for nobody's."""
    if record.subscriber:
        return record.subscriber
    return record.reader if record.exits and not record.entries else ""


def reserved_by(registry: Registry, number: int, contract: str) -> tuple[str, int]:
    """Return who has reserved a contract and its bytes/s; of one across clouds the newest
    generation counts."""
    found = registry.newest_segment(contract) if contract else registry.subscriptions.get(number)
    return ("", 0) if found is None else (paid_by(found.record), held_bytes_per_s(found))


def _store(table: dict[str, AccessRule], identifier: str, rule: AccessRule | None) -> None:
    if rule is None:
        table.pop(identifier, None)
    else:
        table[identifier] = rule


class ReservedBytes:
    """Counts what end-points have reserved, around the operations that change it.

    Of a contract across clouds the newest generation counts: in the subscriber's cloud for the
    subscriber, and in the publisher's for the reader. Clouds between count nothing.
    """

    def __init__(self, registry: Registry, permissions: Permissions) -> None:
        self._registry = registry
        self._permissions = permissions

    def around(self) -> dict[type[Operation], Around]:
        return {
            Subscribed: self._around_contract,
            Moved: self._around_moved,
            Unsubscribed: self._around_contract,
            Published: self._around_published,
            PublicationMoved: self._around_published,
            Withdrawn: self._around_withdrawn,
        }

    def _around_contract(
        self, operation: Subscribed | Unsubscribed, done: Applied, change: Callable[[], None]
    ) -> None:
        contract = operation.contract if isinstance(operation, Subscribed) else ""
        self._count_contract(operation.subscription_id, contract, done, change)

    def _around_moved(self, operation: Moved, done: Applied, change: Callable[[], None]) -> None:
        record = operation.subscription
        self._count_contract(record.subscription_id, record.contract, done, change)

    def _around_published(
        self, operation: Published | PublicationMoved, done: Applied, change: Callable[[], None]
    ) -> None:
        self._count_publication(operation.variable.name, done, change)

    def _around_withdrawn(
        self, operation: Withdrawn, done: Applied, change: Callable[[], None]
    ) -> None:
        self._count_publication(operation.name, done, change)

    def _count_contract(
        self, number: int, contract: str, done: Applied, change: Callable[[], None]
    ) -> None:
        record = self._registry.contract(number)
        if record is not None:
            contract = record.contract
        before = reserved_by(self._registry, number, contract)
        change()
        self._count(Action.SUBSCRIBE, before, reserved_by(self._registry, number, contract), done)

    def _count_publication(self, name: str, done: Applied, change: Callable[[], None]) -> None:
        before = self._publication_bytes(name)
        change()
        self._count(Action.PUBLISH, before, self._publication_bytes(name), done)

    def _count(
        self, action: Action, before: tuple[str, int], after: tuple[str, int], done: Applied
    ) -> None:
        if before == after:
            return
        for (who, size), sign in ((before, -1), (after, 1)):
            if who:
                self._permissions.add_reserved(who, action, sign * size)
                done.undo.append(partial(self._permissions.add_reserved, who, action, -sign * size))

    def _publication_bytes(self, name: str) -> tuple[str, int]:
        found = self._registry.publications.get(name)
        return ("", 0) if found is None else (found.publisher, bytes_per_s(found.variable))
