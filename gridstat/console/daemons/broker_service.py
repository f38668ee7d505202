"""The life of a broker's process, for both kinds of broker: signals, readiness, reload, end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from gridstat.console.daemons.garbage import collect_rarely
from gridstat.console.daemons.service import daemon_signals, notify
from gridstat.console.daemons.stand_by import Candidate, in_charge
from gridstat.console.shown_text import error_line
from gridstat.model.errors import GridStatError

if TYPE_CHECKING:
    from collections.abc import Callable

Line: TypeAlias = dict[str, Any]
STANDING_BY: Final = "standing by"
WAITING: Final = "waiting for its database"
NOT_IN_CHARGE: Final = (
    "not reloaded: this process is not in charge; it reads certificates and authorities again when "
    "it takes over; for anything else restart it; the active broker is not affected"
)


class BrokerService(Candidate, Protocol):
    """Broker that is served from `start` to `close`."""

    async def start(self) -> Line:
        """Stand where the journal ends, then listen; the answer is where."""

    def reload(self) -> str:
        """Apply new settings that need no restart; return a report of them."""

    async def close(self) -> None:
        """Leave nothing behind."""


@dataclass(frozen=True, slots=True)
class ServiceCallbacks:
    """Texts for the service manager, and callbacks for readiness and for other messages."""

    broker: str
    status: str
    on_ready: Callable[[Line], None]
    on_message: Callable[[str], None]


async def serve_until_stopped(
    make: Callable[[], BrokerService], callbacks: ServiceCallbacks
) -> None:
    """Manage until a signal asks to end; what was acknowledged is in the journal by then."""
    service: BrokerService | None = None

    def reload() -> None:
        try:
            callbacks.on_message(service.reload() if service else NOT_IN_CHARGE)
        except GridStatError as error:
            callbacks.on_message(f"not reloaded, going on as before: {error_line(error)}")

    def waits(reason: str) -> None:
        state = WAITING if reason else STANDING_BY
        line: Line = {"state": state, "broker": callbacks.broker}
        callbacks.on_ready(line | {"reason": reason} if reason else line)
        notify("READY=1", f"STATUS={state}: broker {callbacks.broker}")

    with daemon_signals(on_reload=reload) as stopping:
        service = await in_charge(make, stopping, waits=waits)
        if service is None:
            return
        try:
            ready = await service.start()
            collect_rarely()
            callbacks.on_ready(ready)
            notify("READY=1", f"STATUS={callbacks.status}")
            await stopping.wait()
            notify("STOPPING=1")
        finally:
            await service.close()
