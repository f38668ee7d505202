"""Whether all that floods would fit onto a channel that is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.accounts import Carriage
from gridstat.broker.capacity.admission import channel_obstacles
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT
from gridstat.broker.capacity.tariffs import Tariff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.broker.capacity.contracts import Refusal
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable


def flooding_refusal(
    channel: EventChannel, taken: Iterable[tuple[StatusVariable, Mapping[int, int]]]
) -> Refusal | None:
    """What stands in the way of a new channel: it would carry all of this from its first moment."""
    carriage = Carriage((), MODE_SETS_DEFAULT, channel)
    for variable, everys in taken:
        carriage.add(Tariff(variable), everys)
    found = list(channel_obstacles(carriage, channel.channel_id))
    return found[0].refusal() if found else None
