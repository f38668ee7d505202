"""Commands of operators to a broker above clouds: the dispatcher, and the answers.

Each capability handles the commands that it has registered. Commands are idempotent: a repeated
command gets the answer of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.requests.outcomes import refused
from gridstat.model.errors import GridStatError, LayoutError, StorageFailed
from gridstat.net.command.operator_messages import OperatorAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.tree_capability import Facts, TreeCapabilities
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import TreeOperation
    from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand


class TreeOperatorCommands:
    """Dispatches each command by its type, and sends the answers of capabilities."""

    def __init__(self, context: TreeContext, capabilities: TreeCapabilities) -> None:
        self._context = context
        self._capabilities = capabilities

    def take(self, peer: str, command: OperatorCommand | TreeCommand) -> None:
        try:
            self._do(peer, command)
        except GridStatError as error:
            self.refuse(peer, command.request_id, error)

    def _do(self, peer: str, command: OperatorCommand | TreeCommand) -> None:
        handle = self._capabilities.operator_commands.get(type(command))
        if handle is None:
            name = type(command).__name__
            raise LayoutError(
                f"{self._context.settings.name} is a broker above clouds, and does not "
                f"support {name}",
                hint="send the command to the broker of the cloud concerned",
            )
        handle(peer, command)

    # Answers.

    def is_refused(self, peer: str, command: OperatorCommand | TreeCommand) -> bool:
        """Refuse a command to which a capability objects; return whether one does."""
        refusal = self._capabilities.objection(command)
        if refusal is not None:
            answer = OperatorAnswer(request_id=command.request_id, refused=refusal)
            self._context.send(peer, answer)
        return refusal is not None

    def commit(
        self, peer: str, request_id: int, operation: TreeOperation, then: Callable[[], None]
    ) -> None:
        """Make the change of a command durable, then continue; refuse if it cannot be written."""

        def failed(reason: str) -> None:
            self.refuse(peer, request_id, StorageFailed(f"nothing was changed: {reason}"))

        self._context.decide([operation], then, failed)

    def answer(self, peer: str, request_id: int, facts: Facts) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def refuse(self, peer: str, request_id: int, error: GridStatError) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=refused(error)))
