"""What has to be the case before a broker above clouds asks its children to flood anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import LinkDown, Refused

if TYPE_CHECKING:
    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.model.status import StatusVariable


def check_placed(desk: TreeDesk) -> None:
    """Channels get their numbers with the broker's place, and what floods keeps those."""
    if not desk.is_placed:
        raise Refused(
            "this broker has not heard from its parent yet where it stands in the tree",
            hint=f"is broker {desk.settings.parent} running? Try again then",
        )


def check_present(desk: TreeDesk) -> None:
    """A child that is away cannot reserve: better told at once than when time has run out."""
    absent = desk.state.families.children.keys() - desk.joined
    if absent:
        raise LinkDown(
            f"{', '.join(sorted(absent))} below {desk.settings.name} cannot be reached",
            hint="every broker in the scope has to be there when flooding begins",
        )


def check_kind(variable: StatusVariable, every: int) -> None:
    if variable.is_replay:
        raise Refused(f"{variable.name} is replayed: replay is never flooded")
    if variable.period is None and every > 1:
        raise Refused(f"{variable.name} is aperiodic and has no slots to leave out")
