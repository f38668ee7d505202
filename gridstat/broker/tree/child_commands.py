"""Children of a broker above clouds, as operators change and inspect them.

`membership.py` has the sessions with children, `children.py` what is durable about them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.broker.tree.tree_operations import (
    ChildAdded,
    ChildRemoved,
    ChildReported,
    Placed,
    TreeTermBegan,
    Unplaced,
)
from gridstat.model.cloud import check_name
from gridstat.model.errors import LayoutError, StillInUse, UnknownName
from gridstat.net.command.operator_messages import AddChild, RemoveChild
from gridstat.net.command.tree_messages import CloudsChanged

if TYPE_CHECKING:
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_capability import Facts, TreeCapabilities
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operator_commands import TreeOperatorCommands


class ChildCommands:
    """A child is not removed while contracts or channels depend on it."""

    def __init__(
        self,
        context: TreeContext,
        operators: TreeOperatorCommands,
        capabilities: TreeCapabilities,
        membership: Membership,
        borders: TreeBorders,
    ) -> None:
        self._context = context
        self._operators = operators
        self._capabilities = capabilities
        self._membership = membership
        self._borders = borders

    def capability(self) -> TreeCapability:
        """Return the registration of the children, and of this broker's term and place."""
        state = self._context.state
        return TreeCapability(
            name="children",
            child_messages={CloudsChanged: FromChild(self._membership.change_clouds)},
            operator_commands={AddChild: self._add, RemoveChild: self._remove},
            asks_about=frozenset({RemoveChild}),
            survey=self._facts,
            operations={
                TreeTermBegan: state.begin_term,
                Placed: state.place,
                Unplaced: state.place,
                ChildReported: state.families.apply,
                ChildAdded: state.families.apply,
                ChildRemoved: state.families.apply,
            },
            snapshot=state.place_operations,
            orphaned=state.orphaned_place,
        )

    def _add(self, peer: str, command: AddChild) -> None:
        name = check_name(command.name)
        if "/" in name or name in {self._context.settings.name, self._context.settings.parent}:
            raise LayoutError(f"{name} cannot be a child of {self._context.settings.name}")
        done = partial(self._operators.answer, peer, command.request_id, {"child": name})
        if name in self._context.state.families.children:
            done()
        else:
            self._operators.commit(peer, command.request_id, ChildAdded(name=name), done)

    def _remove(self, peer: str, command: RemoveChild) -> None:
        name = command.name
        if name not in self._context.state.families.children:
            raise UnknownName(f"{name[:80]} is not a child of {self._context.settings.name}")
        if self._operators.is_refused(peer, command):
            return
        attached = self._borders.own_at(name)
        if attached:
            labels = ", ".join(channel.label for channel in attached[:8])
            raise StillInUse(
                f"{len(attached)} channels lead from or to {name}: {labels}",
                hint="remove them first",
            )
        removed = partial(self._removed, peer, command)
        self._operators.commit(peer, command.request_id, ChildRemoved(name=name), removed)

    def _removed(self, peer: str, command: RemoveChild) -> None:
        self._capabilities.child_removed(command.name)
        self._membership.dismiss(command.name)
        self._operators.answer(peer, command.request_id, {})

    def _facts(self) -> Facts:
        state, settings = self._context.state, self._context.settings
        placed = state.placed
        return {
            "broker": settings.name,
            "term": state.term,
            "parent": settings.parent,
            "is_joined": self._context.is_parent_joined,
            "depth": state.depth,
            "above": list(placed.above) if placed is not None else [],
            "children": [
                {
                    "name": name,
                    "is_joined": name in self._context.joined,
                    "term": child.term,
                    "height": child.height,
                    "clouds": list(child.clouds),
                    "contracts": len(state.holdings.of_child(name)),
                }
                for name, child in sorted(state.families.children.items())
            ],
        }
