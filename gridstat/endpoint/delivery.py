"""A status event as a subscriber gets it: its value, its times, and their quality."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gridstat.model.short_text import short_repr
from gridstat.model.status import (
    OPTION_BYTES,
    BuiltinType,
    EventFlag,
    RecordType,
    TimeQuality,
    Value,
)
from gridstat.net.codec.value import ValueCodec

if TYPE_CHECKING:
    from gridstat.model.derived import Scalar
    from gridstat.model.status import StatusVariable

NS_PER_US: Final = 1_000
TIME_QUALITY_BITS: Final = 0b11
UNTIMELY_BITS: Final = TIME_QUALITY_BITS | int(EventFlag.REPLAYED)
"""Flags of an event whose stamp says nothing about the present."""
FLAG_BITS: Final = 0b111100

Row: TypeAlias = tuple[int, int, int, int, int, int, int]
"""A sample as `SAMPLE` orders it: created, received, variable, options, flags, sequence, value."""

_INT64: Final = Struct(">q")
_AS_INT: Final = Struct("=q")
_AS_FLOAT: Final = Struct("=d")


_QUALITIES: Final = tuple(TimeQuality(bits) for bits in range(4))
_FLAGS: Final = tuple(EventFlag(byte & FLAG_BITS) for byte in range(256))
_NONE: Final[Mapping[str, Scalar]] = MappingProxyType({})


class Delivery(NamedTuple):
    """One value with its times; nothing in it ever changes, so it can be kept and shared.

    An extrapolated one was never sent: its stamp says when the missing event was due, and
    `received_ns` when it was made up. (A tuple, since one is made for every event.)
    """

    value: Value
    created_ns: int
    received_ns: int
    sequence: int = 0
    time_quality: TimeQuality = TimeQuality.GOOD
    flags: EventFlag = EventFlag.NONE
    is_extrapolated: bool = False
    derived: Mapping[str, Scalar] = _NONE
    name: str = ""
    """The variable's full name."""

    def __repr__(self) -> str:
        return short_repr(self, self.name or "?", *self.facts())

    def facts(self) -> tuple[str, ...]:
        """Return the facts that a one-line text shows."""
        shown = f"value {reprlib.repr(self.value)}"
        if self.is_extrapolated:
            return shown, "extrapolated", f"due at {self.created_ns}"
        marks = [str(flag.name).lower() for flag in EventFlag if flag in self.flags]
        if self.time_quality is not TimeQuality.GOOD:
            marks.append(f"{self.time_quality.name.lower()} time")
        return shown, f"stamp {self.created_ns}", f"latency {self.latency_us:.0f} µs", *marks

    @property
    def latency_us(self) -> float:
        """Latency from stamp to arrival; meaningful when the time quality is good."""
        return (self.received_ns - self.created_ns) / NS_PER_US

    @property
    def is_cached(self) -> bool:
        """True if an edge router had cached it for a new subscriber; it is not live."""
        return EventFlag.CACHED in self.flags

    def copy(self) -> Delivery:
        """Return a copy that shares no mutable part: `delivery.copy()`."""
        value = dict(self.value) if isinstance(self.value, Mapping) else self.value
        return self._replace(value=value, derived=dict(self.derived))


class EventDecoder:
    """Turns samples of one variable into deliveries, by its registered type."""

    def __init__(self, variable: StatusVariable) -> None:
        self._variable = variable
        self._name = variable.name
        self._value_type = variable.value_type
        self._option_bytes = OPTION_BYTES * variable.option_count
        self._made: ValueCodec | None = None

    def _codec(self) -> ValueCodec:
        """Return the codec, made at first use: plain numbers never need one."""
        if self._made is None:
            self._made = ValueCodec(self._variable)
        return self._made

    def delivery(self, row: Row, options: bytes, derived: frozenset[str]) -> Delivery:
        """Return the delivery of a sample; `derived` names the requested derived values.

        Raises `MalformedOption` where the event does not have the registered layout.
        """
        created_ns, received_ns, _, _, flags, sequence, word = row
        numbers = _NONE
        value: Value
        if (
            derived
            or isinstance(self._value_type, RecordType)
            or len(options) != self._option_bytes
        ):
            reading = self._codec().decode(_INT64.pack(word) + options)
            value = reading.value
            numbers = {name: n for name, n in reading.derived.items() if name in derived}
        elif self._value_type is BuiltinType.FLOAT64:
            (value,) = _AS_FLOAT.unpack(_AS_INT.pack(word))
        else:
            value = bool(word) if self._value_type is BuiltinType.BOOL else word
        return Delivery(
            value,
            created_ns,
            received_ns,
            sequence,
            _QUALITIES[flags & TIME_QUALITY_BITS],
            _FLAGS[flags],
            False,  # noqa: FBT003 -- Keywords cost as much as all the rest.
            numbers,
            self._name,
        )
