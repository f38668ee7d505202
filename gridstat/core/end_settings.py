"""Settings and columns of sender and receiver, checked before they are passed to C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, get_args

import numpy as np

from gridstat.model.call_options import checked_calls
from gridstat.model.errors import LayoutError, LinkDown

if TYPE_CHECKING:
    import numpy.typing as npt

PORT_MAX: Final = 65_535
VARIABLES_MAX: Final = 2**24
RING_EVENTS_MAX: Final = 2**24
OPTION_BYTES_MAX: Final = 2**30

OPEN_ERRORS: Final = (
    ("", ""),
    ("there is no memory for it", "ask for a smaller variables_max or ring_events"),
    ("the host cannot be found", "check the name, or give an address"),
    ("the address is in use", "choose another port, or 0 for any free one"),
    ("this machine has no such address, or no route to it", "`ip address` lists what it has"),
    ("the system does not permit it", "choose a port above 1023"),
    ("too many files are open", "raise `ulimit -n`, or close what is not needed"),
    ("the system refuses", "the system's log may say why"),
)
"""Error text and hint by status, in the order of `gs_end_status` in `end_socket.h`."""

Keep: TypeAlias = Literal["ring", "newest", "count"]
""""ring": all events and the newest of each variable; "newest": the newest only; "count": counters
only."""


class ReceiverSettings(TypedDict, total=False):
    """Fields of `ReceiverSpec`, for callers that pass some of them by name."""

    host: str
    data_port: int
    urgent_port: int
    keep: Keep
    ring_events: int
    option_bytes: int
    variables_max: int
    ring_expiry_ns: int
    accept_unknown: bool
    only_sources: bool
    page: memoryview | bytearray | None
    posix: bool
    seal_backend: str


@checked_calls()
@dataclass(frozen=True, slots=True)
class ReceiverSpec:
    """Settings of a receiver; the bounds hold for its lifetime."""

    host: str = "127.0.0.1"
    """Address of either family, or a name; "::" receives IPv4 as well."""
    data_port: int = 0
    urgent_port: int = 0
    """0: any free port."""
    keep: Keep = "ring"
    ring_events: int = 65_536
    """Capacity, rounded up to a power of two; events that find the ring full count as
    `ring_full`."""
    option_bytes: int = 0
    """Capacity for the options of waiting events, rounded likewise; 0: options are not kept."""
    variables_max: int = 131_072
    ring_expiry_ns: int = 60_000_000_000
    """Time for which an aperiodic event is remembered, to detect its copies."""
    accept_unknown: bool = False
    """Deliver the events of variables that are not expected too, every copy of them.

    Their newest values have `variables_max` places of their own, taken at the start; events of
    further ones are delivered all the same, and count as `newest_full`.
    """
    only_sources: bool = False
    """Accept events only of opened sources, each from one host at a time; others count as
    `policed_source`. Another host is accepted after a second of silence. A sealed source accepts
    authentic datagrams of any host."""
    page: memoryview | bytearray | None = None
    """4,096 writable bytes, say of shared memory, for the counters."""
    posix: bool = False
    """Use neither GRO nor recvmmsg."""
    seal_backend: str = "best"
    """Library that opens sealed datagrams: "evp", "ipsec-mb", or the fastest that the machine
    has."""

    def __post_init__(self) -> None:
        if self.keep not in get_args(Keep):
            raise LayoutError(f"keep is {self.keep!r}, not one of {', '.join(get_args(Keep))}")
        bounded("data_port", self.data_port, 0, PORT_MAX)
        bounded("urgent_port", self.urgent_port, 0, PORT_MAX)
        bounded("ring_events", self.ring_events, 1, RING_EVENTS_MAX)
        bounded("option_bytes", self.option_bytes, 0, OPTION_BYTES_MAX)
        bounded("variables_max", self.variables_max, 1, VARIABLES_MAX)
        bounded("ring_expiry_ns", self.ring_expiry_ns, 0, 2**63)


def bounded(name: str, value: int, low: int, high: int) -> int:
    """Return the value; raise `LayoutError` if it is out of bounds."""
    if not low <= value <= high:
        raise LayoutError(
            f"{name} is {value}, and must be {low} to {high}",
            hint=f"give {name} as a whole number from {low} to {high}",
        )
    return value


def column(name: str, values: npt.ArrayLike, kind: str) -> np.ndarray:
    """Return the values as the C code needs them (`kind` u4, u8 or i8); refuse a lossy conversion.

    A column of eight-byte values may hold floats as well; their bytes are what is sent.
    """
    found = np.asarray(values)
    is_float = kind == "i8" and found.dtype.kind == "f"
    wanted = np.dtype("f8" if is_float else kind)
    if found.ndim == 1 and (is_float or found.dtype.kind in "uib"):
        converted = np.ascontiguousarray(found, dtype=wanted)
        if found.dtype == wanted or np.array_equal(converted, found, equal_nan=is_float):
            return converted
    raise LayoutError(
        f"{name} must be one column of {wanted.name}, not {found.dtype.name} of {found.shape}"
    )


def check_opened(status: int, what: str) -> None:
    """Raise the error of a sender or receiver that could not be opened."""
    if status != 0:
        text, hint = OPEN_ERRORS[status]
        raise LinkDown(f"{what}: {text}", hint=hint)
