"""Numeric identifiers, each with its own type, so that mypy finds mix-ups."""

from __future__ import annotations

from typing import Final, NewType

VariableId = NewType("VariableId", int)
"""A status variable, unique in the whole system; 32 bits on the wire."""

ChannelId = NewType("ChannelId", int)
"""A one-way event channel; 32 bits on the wire."""

LinkId = NewType("LinkId", int)
"""A transport connection that can be measured."""

PathId = NewType("PathId", int)
"""One subscription's path through one router in one mode.

Bits from high to low: the subscription, 8 bits of its contract's generation, the index of the path
in the contract, and the index of the quality that the path serves.
"""
PATH_CONTRACT_SHIFT: Final = 8
PATH_INDEX_SHIFT: Final = 4

ModeId = NewType("ModeId", int)
"""An operating mode, which is also its bit in a mode mask; 0 is the baseline."""


def path_name(index: int) -> str:
    """Return the readable name of a path by its index in a contract: `path 1` and so on."""
    return f"path {index + 1}"
