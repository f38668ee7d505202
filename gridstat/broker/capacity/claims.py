"""What is taken of a cloud's resources, and what changes by taking it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from gridstat.broker.capacity.latency_promises import Element, PathKey
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.status import StatusVariable

ALL_SLOTS: Final[Mapping[int, int]] = MappingProxyType({BASELINE_MODE: 1})
"""Every event, in all modes."""


WITHIN: Final = "within"
"""The entry, or the subscriber, of what comes from or goes to channels that are charged for it."""


class Claim(Struct, frozen=True):
    """What one path takes: a variable, from its publisher's edge to its subscriber's, per mode.

    Without routers it has no ends, and takes nothing but its channels, as flooding does. One with
    an `entry` comes from another cloud by that, and only as often as it is taken.
    """

    variable: StatusVariable
    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    everys: Mapping[int, int]
    subscriber: str
    entry: str = ""

    @property
    def arriving(self) -> Mapping[int, int]:
        """How often it comes to the first router: a publisher sends every event to its edge."""
        return self.everys if self.entry else ALL_SLOTS


class Touched(Struct, frozen=True):
    """What claims have changed: elements, the paths that are late by it, variables that crowd."""

    elements: tuple[Element, ...]
    late: tuple[tuple[Element, PathKey], ...] = ()
    crowded: tuple[str, ...] = ()
