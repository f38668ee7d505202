"""What one step of all channels may spend on keys that anybody's datagrams can cause.

Datagrams of epochs without a key cause trials (`receiving_keys.py`), and nobody needs a key to send
them. A trial costs a derivation, of about 2 µs, for each epoch between the known secret and the one
that is tried. All channels of a process share a budget for each step, so a flood of such datagrams
on many channels takes a bounded part of the control thread. Far epochs, whose trials cost hundreds
of derivations, have a budget of their own, so that near ones do not wait for them.
"""

from __future__ import annotations

from typing import Final

NEAR_DERIVATIONS_MAX: Final = 2_048
"""Derivations of a step for epochs near the expected ones."""
FAR_DERIVATIONS_MAX: Final = 6_144
"""Derivations of a step for all other epochs: enough for one trial of all bytes of a channel."""


class TrialBudget:
    """Derivations that are left in one step; `dropped` counts the turns that found none left.

    The first epoch of a trial may cost more than is left, so that no epoch is out of reach for
    good: at most the bound of one chain more is spent.
    """

    __slots__ = ("_far", "_near", "dropped", "spent")

    def __init__(self, near: int = NEAR_DERIVATIONS_MAX, far: int = FAR_DERIVATIONS_MAX) -> None:
        self._near = near
        self._far = far
        self.spent = 0
        self.dropped = 0

    def left(self, *, is_far: bool) -> int:
        return self._far if is_far else self._near

    def spend(self, derivations: int, *, is_far: bool) -> None:
        self.spent += derivations
        if is_far:
            self._far -= derivations
        else:
            self._near -= derivations
