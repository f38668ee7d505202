"""All parts of a broker above clouds, and who tells whom of what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.borders import Borders
from gridstat.broker.tree.commits import Commits
from gridstat.broker.tree.contracts import Contracts
from gridstat.broker.tree.coordinator import Coordinator
from gridstat.broker.tree.crossings import BorderGraph
from gridstat.broker.tree.failures import Failures
from gridstat.broker.tree.flooding import TreeFlooding
from gridstat.broker.tree.leases import Leases
from gridstat.broker.tree.lookups import Lookups
from gridstat.broker.tree.membership import Membership
from gridstat.broker.tree.moved_parts import MovedParts
from gridstat.broker.tree.nearness import Subscribers
from gridstat.broker.tree.parting import Parting
from gridstat.broker.tree.reconciliation import Reconciliation
from gridstat.broker.tree.releases import Releases
from gridstat.broker.tree.routes import Routes
from gridstat.broker.tree.stretches import Stretches
from gridstat.broker.tree.watches import Watches
from gridstat.model.errors import LimitReached

if TYPE_CHECKING:
    from gridstat.broker.tree.desk import TreeDesk


class Parts:
    """Each imports only those made before it; the rest hears of things by what is set here."""

    def __init__(self, desk: TreeDesk) -> None:
        self.desk = desk
        self.borders = Borders(desk)
        self.graph = BorderGraph(desk, self.borders)
        self.releases = Releases(desk)
        self.commits = Commits(desk)
        self.lookups = Lookups(desk, self.graph)
        self.coordinator = Coordinator(desk, Routes(desk, self.graph), self.releases)
        self.parting = Parting(desk, self.releases, Subscribers(desk, self.borders))
        self.contracts = Contracts(
            desk, self.graph, self.lookups, self.coordinator, self.commits, self.parting
        )
        self.stretches = Stretches(desk, self.lookups, self.coordinator, self.commits, self.parting)
        self.moved_parts = MovedParts(desk, self.contracts, self.commits, self.stretches)
        self.failures = Failures(desk, self.contracts, self.stretches)
        self.reconciliation = Reconciliation(
            desk, self.coordinator, self.releases, self.commits, self.failures
        )
        self.flooding = TreeFlooding(desk, desk.state.flooding, self.lookups.find)
        self.leases = Leases(desk)
        self.watches = Watches(desk)
        self.membership = Membership(desk, self.leases)
        self.borders.changed = self.graph.changed
        self.borders.channel_changed = self.failures.channel_changed
        self.parting.gone = self.failures.room_is_free
        self.membership.child_joined = self._child_joined
        self.membership.child_left = self._child_left
        self.membership.clouds_changed = self._clouds_changed
        self.membership.parent_joined = self._parent_joined
        self.membership.moved = self._moved
        self.membership.parted = self.parting.resume
        self.coordinator.told_too_much = self._told_too_much
        self.reconciliation.told_too_much = self._told_too_much
        self.contracts.endings_above.say_again = self._say_again
        desk.state.renumbering = self.coordinator.park_all

    def resume(self) -> None:
        """After a start."""
        self.desk.unsettle()
        self.parting.resume()
        self.contracts.resume()
        self.failures.resume()
        for number in self.desk.state.file_channels.gone():
            self.failures.channel_changed(number)

    def _child_joined(self, child: str) -> None:
        self.failures.child_joined(child)
        self.reconciliation.child_joined(child)
        self.borders.child_joined(child)
        self.releases.child_joined(child)
        self.commits.child_joined(child)
        self.moved_parts.child_joined(child)
        self.coordinator.child_joined(child)
        self.lookups.child_joined(child)
        self.flooding.child_joined(child)
        self.watches.child_joined(child)
        self.failures.try_again(is_new=True)

    def _child_left(self, child: str) -> None:
        self.flooding.child_left(child)
        self.borders.child_left(child)
        self.reconciliation.child_left(child)

    def _told_too_much(self, child: str) -> None:
        most = self.desk.settings.unknown_child_max
        text = f"broker {child} holds more than {most} stretches that nobody here knows of"
        self.membership.send_away(child, LimitReached(text))

    def _say_again(self, child: str) -> None:
        text = f"broker {child} has ended more than was kept while the parent was away"
        self.membership.send_away(child, LimitReached(text, hint="it joins, and says it again"))

    def _clouds_changed(self, child: str) -> None:
        self.borders.lay_anew([child])
        self.watches.say_all(child)

    def _moved(self) -> None:
        """Whatever was ordered may go by other numbers now, and floods by another depth."""
        self.borders.lay_anew(sorted(self.desk.joined))
        self.flooding.moved()

    def _parent_joined(self) -> None:
        self.borders.parent_joined()
        self.graph.tell_parent(is_forced=True)
        self.stretches.parent_joined()
        self.moved_parts.parent_joined()
        self.failures.parent_joined()
        self.leases.parent_joined()
        self.contracts.parent_joined()
        self.watches.parent_joined()
