"""Status variables, the types of their values, and the events that carry them.

The registered type of a variable fixes everything that the wire leaves open: how long its record
is, and which derived values follow it (S0 §6.1, §6.2). Bytes are made in `net/codec/value.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import STRICT, Enum, IntEnum, IntFlag
from typing import Final, TypeAlias

from gridstat.model.call_options import checked_calls
from gridstat.model.errors import LayoutError
from gridstat.model.exact_numbers import whole_number
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.short_text import short_repr
from gridstat.model.stamp_law import DELAY_MS_DEFAULT, DELAY_MS_MAX

VALUE_BYTES: Final = 8
OPTION_BYTES: Final = 24
OPTIONS_MAX: Final = 255
PAYLOAD_BYTES_MAX: Final = VALUE_BYTES + OPTIONS_MAX * OPTION_BYTES
DERIVED_BYTES: Final = 8
NAME_CHARS_MAX: Final = 128
"""Maximum length of names of records, fields and derived values."""
REPLAY_SPEED_MAX: Final = 1_000
U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1

FieldValue: TypeAlias = int | float | bool | bytes
Value: TypeAlias = int | float | bool | Mapping[str, FieldValue]


class TimeQuality(IntEnum):
    """Quality of an event's time stamp; lateness is judged only when it is good."""

    GOOD = 0
    DEGRADED = 1
    BAD = 2
    LEAP_PENDING = 3


class EventFlag(IntFlag, boundary=STRICT):
    """Properties of an event beside its value; several may be set at once."""

    NONE = 0
    SUBSTITUTED = 1 << 2
    TEST = 1 << 3
    REPLAYED = 1 << 4
    CACHED = 1 << 5


class BuiltinType(Enum):
    """A value type that fits into the event itself."""

    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"


class FieldKind(Enum):
    """Type of one field of a record."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOL = "bool"
    BYTES = "bytes"


KIND_BYTES: Final[Mapping[FieldKind, int]] = {
    FieldKind.INT8: 1,
    FieldKind.INT16: 2,
    FieldKind.INT32: 4,
    FieldKind.INT64: 8,
    FieldKind.UINT8: 1,
    FieldKind.UINT16: 2,
    FieldKind.UINT32: 4,
    FieldKind.UINT64: 8,
    FieldKind.FLOAT32: 4,
    FieldKind.FLOAT64: 8,
    FieldKind.BOOL: 1,
}


@checked_calls()
@dataclass(frozen=True, slots=True)
class Field:
    """One named field of a record; `length_bytes` is for bytes only, which have a fixed length."""

    name: str
    kind: FieldKind
    length_bytes: int = 0

    def __post_init__(self) -> None:
        _check_short_name(self.name)
        if not self.name.isidentifier():
            raise LayoutError(f"field {self.name!r} is not a name", hint="use letters, digits, _")
        if not isinstance(self.kind, FieldKind):
            raise LayoutError(
                f"field {self.name} is {self.kind!r}, and must be of a FieldKind",
                hint=f"FieldKind.INT16, or another of {', '.join(kind.name for kind in FieldKind)}",
            )
        object.__setattr__(self, "length_bytes", whole_number("length_bytes", self.length_bytes))
        is_sized = 1 <= self.length_bytes <= PAYLOAD_BYTES_MAX
        if self.kind is FieldKind.BYTES and not is_sized:
            raise LayoutError(
                f"field {self.name} has {self.length_bytes} bytes",
                hint=f"a field of bytes has a fixed length of 1 to {PAYLOAD_BYTES_MAX}",
            )
        if self.kind is not FieldKind.BYTES and self.length_bytes:
            raise LayoutError(
                f"field {self.name} is {self.kind.value} and cannot be given a length",
                hint="only a field of bytes has a length of its own",
            )

    @property
    def size_bytes(self) -> int:
        return self.length_bytes or KIND_BYTES[self.kind]


@checked_calls()
@dataclass(frozen=True, slots=True)
class RecordType:
    """A user type: fields back to back in their order, without gaps, 1 to 6,128 bytes in all."""

    name: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        _check_short_name(self.name)
        if not _are_fields(self.fields):
            raise LayoutError(
                f"fields is {self.fields!r}, and must be a tuple of fields",
                hint='RecordType("tap", (Field("position", FieldKind.INT16),))',
            )
        object.__setattr__(self, "fields", tuple(self.fields))
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise LayoutError(f"record {self.name} names a field twice: {', '.join(names)}")
        if not 1 <= self.size_bytes <= PAYLOAD_BYTES_MAX:
            raise LayoutError(
                f"record {self.name} has {self.size_bytes} bytes",
                hint=f"an event carries 1 to {PAYLOAD_BYTES_MAX} bytes",
            )

    @property
    def size_bytes(self) -> int:
        return sum(field.size_bytes for field in self.fields)


ValueType: TypeAlias = BuiltinType | RecordType


@checked_calls()
@dataclass(frozen=True, slots=True)
class DerivedValue:
    """A value that the publisher computes from the variable's own, such as a moving average."""

    name: str
    value_type: BuiltinType

    def __post_init__(self) -> None:
        _check_short_name(self.name)
        if not isinstance(self.value_type, BuiltinType):
            raise LayoutError(
                f"derived value {self.name} is {self.value_type!r}, and must be of a BuiltinType",
                hint="FLOAT64, INT64 or BOOL",
            )


@checked_calls()
@dataclass(frozen=True, slots=True)
class StatusVariable:
    """A named, typed quantity that one publisher owns.

    Without a period it is aperiodic: the rate law does not apply, the minimum interval does. An
    alert is such a variable, and being one is registered here, never claimed by an event. So is
    being replayed: stamped in the past, and sent at up to `replay_speed` times the period's rate.
    A belated alert reports something that was detected later, and is stamped with its own time.
    `delay_ms` is how old an event may be when it reaches the first router (`stamp_law.py`).
    """

    variable_id: VariableId
    name: str
    value_type: ValueType
    period: Period | None
    phase_ns: int = 0
    derived: tuple[DerivedValue, ...] = ()
    is_alert: bool = False
    interval_ns_min: int = 0
    replay_speed: int = 0
    is_belated: bool = False
    delay_ms: int = DELAY_MS_DEFAULT

    def __post_init__(self) -> None:
        _check_range("variable_id", self.variable_id, U32_MAX)
        _check_range("replay_speed", self.replay_speed, REPLAY_SPEED_MAX)
        _check_range("phase_ns", self.phase_ns, U64_MAX)
        _check_range("interval_ns_min", self.interval_ns_min, U64_MAX)
        if not all(self.name.split("/")) or self.name.split() != [self.name]:
            raise LayoutError(
                f"variable name {self.name!r} is not hierarchical",
                hint="write cloud/substation/device/quantity, without blanks or empty parts",
            )
        if len({derived.name for derived in self.derived}) != len(self.derived):
            raise LayoutError(f"{self.name} names a derived value twice")
        if self.payload_bytes > PAYLOAD_BYTES_MAX:
            raise LayoutError(
                f"{self.name} needs {self.payload_bytes} bytes with its derived values",
                hint=f"an event carries at most {PAYLOAD_BYTES_MAX} bytes",
            )
        self._check_timing()

    def __repr__(self) -> str:
        return short_repr(self, self.name, f"number {self.variable_id}", self.kind_text)

    @property
    def kind_text(self) -> str:
        """Type and rate as text: `float64 every 1/60 s`, `bool alert`."""
        kind = self.value_type
        text = kind.value if isinstance(kind, BuiltinType) else f"record {kind.name}"
        if self.is_alert:
            return f"{text} alert"
        often = "aperiodic" if self.period is None else f"every {self.period}"
        return f"{text} {often}{' replayed' if self.is_replay else ''}"

    def _check_timing(self) -> None:
        if self.is_alert and (self.period is not None or self.interval_ns_min == 0):
            raise LayoutError(
                f"alert {self.name} must be aperiodic and declare a minimum interval",
                hint="set period to None and interval_ns_min to the shortest time between alerts",
            )
        if self.period is not None and self.interval_ns_min:
            raise LayoutError(
                f"{self.name} is periodic and cannot have a minimum interval",
                hint="a periodic variable has one event per slot already",
            )
        if self.is_belated and not self.is_alert:
            raise LayoutError(
                f"{self.name} is no alert and cannot be belated",
                hint="old events of a stream are replayed: give it a replay_speed",
            )
        self._check_delay()
        if self.is_replay and self.period is None:
            raise LayoutError(
                f"{self.name} is aperiodic and cannot be replayed",
                hint="give it the period at which it is at most sent, or publish it as an alert",
            )

    def _check_delay(self) -> None:
        if not DELAY_MS_DEFAULT <= self.delay_ms <= DELAY_MS_MAX:
            raise LayoutError(
                f"{self.name} has a delay_ms of {self.delay_ms}",
                hint=f"declare {DELAY_MS_DEFAULT} to {DELAY_MS_MAX} ms; without it the delay is "
                f"{DELAY_MS_DEFAULT} ms",
            )
        if self.delay_ms != DELAY_MS_DEFAULT and (self.is_replay or self.is_belated):
            raise LayoutError(
                f"{self.name} is replayed or belated, and may be stamped with any time",
                hint="leave delay_ms out",
            )

    @property
    def is_replay(self) -> bool:
        """True if its events are replayed: best effort, below all live traffic."""
        return self.replay_speed > 0

    @property
    def replay_interval_ns(self) -> int:
        """Average time between replayed events; 0 for a live variable."""
        if self.period is None or not self.is_replay:
            return 0
        return max(1, self.period.period_ns // self.replay_speed)

    @property
    def record_bytes(self) -> int:
        """Bytes of the value alone."""
        return (
            VALUE_BYTES
            if isinstance(self.value_type, BuiltinType)
            else (self.value_type.size_bytes)
        )

    @property
    def payload_bytes(self) -> int:
        """Bytes of the value, at least the event's own 8, and of the derived values after it."""
        return max(VALUE_BYTES, self.record_bytes) + DERIVED_BYTES * len(self.derived)

    @property
    def option_count(self) -> int:
        """Number of option fields of every event of this variable."""
        return -(-(self.payload_bytes - VALUE_BYTES) // OPTION_BYTES)


@checked_calls()
@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One timed value of a variable, its payload already in the layout of the variable's type.

    The payload is 8 bytes and a whole number of 24-byte options.
    """

    created_ns: int
    variable_id: VariableId
    payload: bytes
    sequence: int = 0
    time_quality: TimeQuality = TimeQuality.GOOD
    flags: EventFlag = EventFlag.NONE

    def __post_init__(self) -> None:
        _check_range("created_ns", self.created_ns, U64_MAX)
        _check_range("variable_id", self.variable_id, U32_MAX)
        _check_range("sequence", self.sequence, U16_MAX)
        rest = len(self.payload) - VALUE_BYTES
        if rest % OPTION_BYTES or not 0 <= rest <= OPTIONS_MAX * OPTION_BYTES:
            raise LayoutError(
                f"a payload of {len(self.payload)} bytes does not fill an event",
                hint="8 bytes and 0 to 255 options of 24 bytes; pad the last option with zeros",
            )

    @property
    def option_count(self) -> int:
        return (len(self.payload) - VALUE_BYTES) // OPTION_BYTES


def _are_fields(given: object) -> bool:
    return isinstance(given, tuple | list) and all(isinstance(each, Field) for each in given)


def _check_short_name(name: str) -> None:
    if not isinstance(name, str):
        raise LayoutError(f"name is {name!r}, and must be a str", hint="put it in quotation marks")
    if len(name) > NAME_CHARS_MAX:
        raise LayoutError(f"name {name[:40]}… has {len(name):,} characters, {NAME_CHARS_MAX} fit")


def _check_range(name: str, number: int, number_max: int) -> None:
    if not 0 <= number <= number_max:
        raise LayoutError(f"{name} is {number}, outside 0 to {number_max}")
