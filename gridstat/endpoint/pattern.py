"""A subscription to every variable that a pattern stands for, now and later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.call_options import checked_calls
from gridstat.model.short_text import counted, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.subscriber import Subscription
    from gridstat.net.command.endpoint_messages import GrantedOutcome


MISSED_MAX: Final = 1_024


class Patterns(Protocol):
    """Owner of patterns: the subscription registry."""

    def end_pattern(self, pattern: PatternSubscription) -> None:
        """End the pattern; blocks until the cloud has answered."""
        ...


@checked_calls()
class PatternSubscription:
    """Catches variables by name; made by `grid.subscribe_pattern`.

        pattern = grid.subscribe_pattern("c1/*/voltage", on_match=lambda found: print(found.name))
        for voltage in pattern.matches:
            print(voltage.name, voltage.value)

    Each match is a subscription of its own with the pattern's options; it goes with its variable.
    """

    def __init__(
        self,
        keeper: Patterns,
        pattern: str,
        label: str,
        on_match: Callable[[Subscription], object] | None,
    ) -> None:
        self._keeper = keeper
        self.pattern = pattern
        self.label = label
        self.on_match = on_match
        self.pattern_id = 0
        self.is_over = False
        self._missed: tuple[str, ...] = ()
        self._matches: dict[str, Subscription] = {}

    def __repr__(self) -> str:
        missed = f"{len(self._missed)} missed" if self._missed else ""
        state = "ended" if self.is_over else ""
        return short_repr(self, self.pattern, counted(self.matched, "match"), missed, state)

    @property
    def matched(self) -> int:
        """Number of variables that it matches now; 0 while it waits: `pattern.matched`."""
        return len(self._matches)

    @property
    def matches(self) -> tuple[Subscription, ...]:
        """Subscriptions to the matching variables, by name: `pattern.matches`."""
        return tuple(found for _, found in sorted(self._matches.items()))

    @property
    def missed(self) -> tuple[str, ...]:
        """Matching variables that were refused, each with the reason: `pattern.missed`."""
        return self._missed

    def unsubscribe(self) -> None:
        """End the pattern and all its subscriptions: `pattern.unsubscribe()`."""
        if not self.is_over:
            self._keeper.end_pattern(self)

    def granted(self, outcome: GrantedOutcome) -> None:
        """Set the cloud's number of the pattern; called by the connection."""
        self.pattern_id = outcome.subscription_id
        self._missed = outcome.degraded

    def match(self, name: str) -> Subscription | None:
        """Return the subscription of a name; called by the connection."""
        return self._matches.get(name)

    def caught(self, subscription: Subscription) -> None:
        """Add a match; called by the connection."""
        self._matches[subscription.name] = subscription

    def miss(self, name: str, reason: str) -> None:
        """Note a match that was refused; called by the connection."""
        text = f"{name} was not caught: {reason}"
        if text not in self._missed and len(self._missed) < MISSED_MAX:
            self._missed = (*self._missed, text)

    def lost(self, subscription: Subscription) -> None:
        """Remove a match; called by the connection."""
        self._matches.pop(subscription.name, None)
