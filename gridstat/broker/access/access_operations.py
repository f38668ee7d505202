"""Operations of access rules in a leaf broker's journal, and the state that they build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.broker.records.operation import Durable
from gridstat.model.access_rules import AccessRule

if TYPE_CHECKING:
    from collections.abc import Iterator


class AccessModeSet(Durable, frozen=True):
    """Whether the cloud enforces its rules, or only observes what they would refuse."""

    is_enforced: bool


class AccessGranted(Durable, frozen=True):
    """A rule was granted at run time; it replaces the one of its identifier."""

    rule: AccessRule


class AccessRevoked(Durable, frozen=True):
    """A rule was revoked at run time; a rule of the broker's file stays revoked while it is equal.

    A rule of the same identifier that was changed in the file is another rule, and holds.
    """

    rule: AccessRule


class AccessEnding(Durable, frozen=True):
    """A rule was revoked or replaced, and not all that rested on it is judged yet, or now it is."""

    rule: AccessRule
    is_over: bool = False


@dataclass(slots=True)
class AccessRecords:
    """Durable state of access, which only the effects of operations change."""

    is_enforced: bool | None = None
    """None in a journal that was written before there were rules."""
    granted: dict[str, AccessRule] = field(default_factory=dict)
    revoked: dict[str, AccessRule] = field(default_factory=dict)
    """Revoked rules of the broker's file, by identifier."""
    ending: dict[AccessRule, None] = field(default_factory=dict)
    """Rules that were taken away and on which something may rest still, the oldest first."""

    def snapshot(self) -> Iterator[Durable]:
        if self.is_enforced is not None:
            yield AccessModeSet(is_enforced=self.is_enforced)
        for _, rule in sorted(self.revoked.items()):
            yield AccessRevoked(rule=rule)
        for _, rule in sorted(self.granted.items()):
            yield AccessGranted(rule=rule)
        for rule in self.ending:
            yield AccessEnding(rule=rule)
