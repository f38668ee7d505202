"""Numbers that name things; separate types, so that mypy sees one passed for another."""

from __future__ import annotations

from typing import Final, NewType

VariableId = NewType("VariableId", int)
"""A status variable, unique in the whole system; 32 bits on the wire."""

ChannelId = NewType("ChannelId", int)
"""A one-way event channel; 32 bits on the wire."""

LinkId = NewType("LinkId", int)
"""A transport connection that can be measured."""

PathId = NewType("PathId", int)
"""One subscription's way through one router in one mode.

From high to low: the subscription, 8 bits of the generation of its contract, which of the
contract's paths it is, and which of the qualities that the path serves.
"""
PATH_CONTRACT_SHIFT: Final = 8
PATH_INDEX_SHIFT: Final = 4

ModeId = NewType("ModeId", int)
"""An operating mode, which is also its bit in a mode mask; 0 is the baseline."""


def path_name(index: int) -> str:
    """How people call the path of this place in a contract's ordered list: `path 1` and so on."""
    return f"path {index + 1}"
