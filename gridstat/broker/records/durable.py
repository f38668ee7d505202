"""The base of all operations that a broker makes durable."""

from __future__ import annotations

import msgspec


class Durable(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A MessagePack map with the class name as its `type`."""
