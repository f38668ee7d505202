"""gridstat: the state of a power grid, delivered under a contract per subscription.

Start reading at `model` (words and laws), then `net.codec` (their bytes), then `core` (the event
path). The package root exports the words only; what needs the compiled core is imported by name.
"""

from gridstat.model.errors import GridStatError
from gridstat.model.rate_law import Period
from gridstat.model.status import (
    BuiltinType,
    DerivedValue,
    EventFlag,
    Field,
    FieldKind,
    RecordType,
    StatusEvent,
    StatusVariable,
    TimeQuality,
)

__all__ = [
    "BuiltinType",
    "DerivedValue",
    "EventFlag",
    "Field",
    "FieldKind",
    "GridStatError",
    "Period",
    "RecordType",
    "StatusEvent",
    "StatusVariable",
    "TimeQuality",
]
