"""gridstat: the state of a power grid, delivered under a contract per subscription.

    with gridstat.connect(["c1/e0@127.0.0.1:7101"], name="c1/north/pmu-1") as grid:
        voltage = grid.publish("voltage", gridstat.FLOAT64, rate=60)
        voltage.send(231.4)

Start reading at `model` (words and laws), then `net.codec` (their bytes), then `core` (the event
path). What needs the compiled core is loaded when it is first used, so that words and laws need
no compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gridstat.model.derived import Maximum, Minimum, MovingAverage, RateOfChange
from gridstat.model.errors import GridStatError, LinkDown, Misuse, Refused
from gridstat.model.extrapolation import (
    Average,
    Polynomial,
    PolynomialAverage,
    Rational,
    UserExtrapolation,
)
from gridstat.model.qos import Qos, QosRequest
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

if TYPE_CHECKING:
    from gridstat.endpoint.change import Change, ChangeKind, Subject
    from gridstat.endpoint.change_stream import ChangeStream
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.connection_setup import connect, connect_async
    from gridstat.endpoint.contract import Contract
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.flooded import FloodedEvent, FloodedSubscription
    from gridstat.endpoint.group import Group
    from gridstat.endpoint.group_sets import GroupSet
    from gridstat.endpoint.ledger import Ledger
    from gridstat.endpoint.options import qos
    from gridstat.endpoint.path_ledger import PathLedger
    from gridstat.endpoint.pattern import PatternSubscription
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.endpoint.violation import Violation

FLOAT64 = BuiltinType.FLOAT64
INT64 = BuiltinType.INT64
BOOL = BuiltinType.BOOL

__all__ = [
    "BOOL",
    "FLOAT64",
    "INT64",
    "Average",
    "BuiltinType",
    "Change",
    "ChangeKind",
    "ChangeStream",
    "Connection",
    "Contract",
    "Delivery",
    "DerivedValue",
    "EventFlag",
    "Field",
    "FieldKind",
    "FloodedEvent",
    "FloodedSubscription",
    "GridStatError",
    "Group",
    "GroupSet",
    "Ledger",
    "LinkDown",
    "Maximum",
    "Minimum",
    "Misuse",
    "MovingAverage",
    "PathLedger",
    "PatternSubscription",
    "Period",
    "Polynomial",
    "PolynomialAverage",
    "Publication",
    "Qos",
    "QosRequest",
    "RateOfChange",
    "Rational",
    "RecordType",
    "Refused",
    "StatusEvent",
    "StatusVariable",
    "Subject",
    "Subscription",
    "TimeQuality",
    "UserExtrapolation",
    "Violation",
    "connect",
    "connect_async",
    "qos",
]

_LOADED_LATER = {
    "Change": "gridstat.endpoint.change",
    "ChangeKind": "gridstat.endpoint.change",
    "ChangeStream": "gridstat.endpoint.change_stream",
    "Connection": "gridstat.endpoint.connection",
    "Contract": "gridstat.endpoint.contract",
    "Delivery": "gridstat.endpoint.delivery",
    "FloodedEvent": "gridstat.endpoint.flooded",
    "FloodedSubscription": "gridstat.endpoint.flooded",
    "Group": "gridstat.endpoint.group",
    "GroupSet": "gridstat.endpoint.group_sets",
    "Ledger": "gridstat.endpoint.ledger",
    "PathLedger": "gridstat.endpoint.path_ledger",
    "PatternSubscription": "gridstat.endpoint.pattern",
    "Publication": "gridstat.endpoint.publisher",
    "Subject": "gridstat.endpoint.change",
    "Subscription": "gridstat.endpoint.subscriber",
    "Violation": "gridstat.endpoint.violation",
    "connect": "gridstat.endpoint.connection_setup",
    "connect_async": "gridstat.endpoint.connection_setup",
    "qos": "gridstat.endpoint.options",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- Whatever the module holds under this name.
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'gridstat' has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LOADED_LATER])
