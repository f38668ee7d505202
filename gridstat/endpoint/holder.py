"""Holder of a subscription's newest value and last error (S0 §3.4, A.21–A.28).

A holder is written by the delivering thread and read by any other: what is read is one immutable
delivery, so a reader never sees the value of one event with the stamp of another.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gridstat.endpoint.slot_clock import ClockSetbackDetector
from gridstat.model.rate_law import slot_of

if TYPE_CHECKING:
    from gridstat.endpoint.delivery import Delivery
    from gridstat.model.status import BuiltinType, DerivedValue, StatusVariable


class DerivedState(Enum):
    """State of a derived value that a subscriber requests."""

    PUBLISHED = "published"
    UNKNOWN = "unknown"
    NOT_PUBLISHED = "not published"
    WRONG_TYPE = "wrong type"


@dataclass(frozen=True, slots=True)
class _Wanted:
    value_type: BuiltinType | None
    state: DerivedState


class Holder:
    """Holds the newest delivery by stamp; a real one replaces an extrapolated one of the same slot,
    whatever their stamps."""

    def __init__(self) -> None:
        self._newest: Delivery | None = None
        self._arrived_ns = 0
        self._setback = ClockSetbackDetector()
        self._error_code = 0
        self._variable: StatusVariable | None = None
        self._derived: dict[str, _Wanted] = {}
        self._derived_names: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    @property
    def newest(self) -> Delivery | None:
        """The newest delivery, None before the first."""
        return self._newest

    @property
    def variable(self) -> StatusVariable | None:
        """The variable as registered, None while that is not known."""
        return self._variable

    @property
    def error_code(self) -> int:
        """The last error's code, 0 if all is well; kept until it is taken."""
        return self._error_code

    def take_error_code(self) -> int:
        """Return the last error's code and reset it to 0."""
        with self._lock:
            code, self._error_code = self._error_code, 0
        return code

    def set_error_code(self, code: int) -> None:
        """Set the error code."""
        with self._lock:
            self._error_code = code

    def put(self, delivery: Delivery, arrived_ns: int) -> bool:
        """Hold a delivery if it is the newest; return whether it was. `arrived_ns` is of the steady
        clock.

        An older stamp is the newest too once the publisher's clock has been set back.
        """
        with self._lock:
            newest = self._newest
            if newest is not None and self._is_older(delivery, newest):
                is_set_back = not delivery.is_extrapolated and self._setback.is_set_back(
                    delivery.created_ns, arrived_ns, self._arrived_ns
                )
                if not is_set_back:
                    return False
            self._newest = delivery
            if not delivery.is_extrapolated:
                self._arrived_ns = arrived_ns
            return True

    def fill(self, delivery: Delivery) -> bool:
        """Hold an event that an edge router had cached, unless a newer one is held; return whether
        it is held."""
        with self._lock:
            is_news = self._newest is None or self._is_older(self._newest, delivery)
            if is_news:
                self._newest = delivery
            return is_news

    def _is_older(self, delivery: Delivery, newest: Delivery) -> bool:
        if delivery.is_extrapolated or newest.is_extrapolated:
            return self._rank(delivery) < self._rank(newest)
        return delivery.created_ns < newest.created_ns

    def _rank(self, delivery: Delivery) -> tuple[int, bool, int]:
        """Return the sort key: the slot, then real before extrapolated, then the stamp."""
        period = None if self._variable is None else self._variable.period
        if period is None or self._variable is None:
            return delivery.created_ns, not delivery.is_extrapolated, delivery.created_ns
        slot = slot_of(delivery.created_ns, period, self._variable.phase_ns)
        return slot, not delivery.is_extrapolated, delivery.created_ns

    def describe(self, variable: StatusVariable | None) -> None:
        """Set the variable; the states of requested derived values are computed again."""
        with self._lock:
            self._variable = variable
            for name, wanted in tuple(self._derived.items()):
                state = self._derived_state(name, wanted.value_type)
                self._derived[name] = _Wanted(wanted.value_type, state)
            self._note_names()

    # Derived values: only those that were registered are read and kept.

    @property
    def derived_names(self) -> frozenset[str]:
        """Derived values that are requested and published."""
        return self._derived_names

    def published_derived(self) -> tuple[DerivedValue, ...]:
        """Return the derived values that the publisher sends; empty while the variable is
        unknown."""
        return () if self._variable is None else self._variable.derived

    def register_derived(self, name: str, value_type: BuiltinType | None = None) -> bool:
        """Request a derived value; return False if it is known not to be published, or of another
        type.

        While the variable is unknown it is taken, and marked later should it not be published.
        """
        with self._lock:
            state = self._derived_state(name, value_type)
            if state in (DerivedState.PUBLISHED, DerivedState.UNKNOWN):
                self._derived[name] = _Wanted(value_type, state)
                self._note_names()
                return True
            return False

    def unregister_derived(self, name: str) -> bool:
        """Stop requesting a derived value; return whether it was requested."""
        with self._lock:
            was_wanted = self._derived.pop(name, None) is not None
            self._note_names()
            return was_wanted

    def derived_state(self, name: str) -> DerivedState:
        """Return the state of a derived value; one that was not requested is looked up."""
        with self._lock:
            wanted = self._derived.get(name)
            return self._derived_state(name, None) if wanted is None else wanted.state

    def _derived_state(self, name: str, value_type: BuiltinType | None) -> DerivedState:
        if self._variable is None:
            return DerivedState.UNKNOWN
        for found in self._variable.derived:
            if found.name == name:
                is_other = value_type not in (None, found.value_type)
                return DerivedState.WRONG_TYPE if is_other else DerivedState.PUBLISHED
        return DerivedState.NOT_PUBLISHED

    def _note_names(self) -> None:
        self._derived_names = frozenset(
            name for name, wanted in self._derived.items() if wanted.state is DerivedState.PUBLISHED
        )
