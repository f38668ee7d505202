"""Inspection of a broker above clouds: the survey of its scope, and the paths of contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.broker.tree.tree_capability import TreeCapability
from gridstat.broker.tree.tree_operations import Stage, body_of
from gridstat.model.errors import NoSuchVariable
from gridstat.net.command.operator_messages import Explain, Survey

if TYPE_CHECKING:
    from gridstat.broker.tree.replanning import Replanning
    from gridstat.broker.tree.tree_capability import Facts, TreeCapabilities
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_operator_commands import TreeOperatorCommands

EXPLAINED_MAX: Final = 10_000
"""Maximum number of contracts that one explanation examines."""
EXPLAINED_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of one explanation; a frame holds this and one contract of maximum length."""


class ScopeInspection:
    """A survey has all facts except the contracts, of which there may be a million."""

    def __init__(
        self,
        context: TreeContext,
        operators: TreeOperatorCommands,
        capabilities: TreeCapabilities,
        replanning: Replanning,
    ) -> None:
        self._context = context
        self._operators = operators
        self._capabilities = capabilities
        self._replanning = replanning

    def capability(self) -> TreeCapability:
        """Return the registration of the commands that change nothing."""
        return TreeCapability(
            name="inspection",
            operator_commands={Survey: self._survey, Explain: self._explain},
            survey=self._facts,
        )

    def _survey(self, peer: str, command: Survey) -> None:
        self._operators.answer(peer, command.request_id, self._capabilities.survey())

    def _facts(self) -> Facts:
        return {"journal": self._context.outside.journal_figures()}

    def _explain(self, peer: str, command: Explain) -> None:
        self._operators.answer(peer, command.request_id, self._explanation(command.name))

    def _explanation(self, name: str) -> Facts:
        """Return the segments and owners of a contract, or of all contracts on a variable."""
        holdings = self._context.state.holdings
        if "#" in name:
            found = list(holdings.of(name))
        else:
            child = self._context.state.families.child_at(name)
            contracts = sorted(holdings.of_child(child or ""))[:EXPLAINED_MAX]
            found = [
                holding
                for contract in contracts
                for holding in holdings.of(contract)
                if body_of(holding).variable.name == name
            ]
        if not found:
            raise NoSuchVariable(f"nothing of {name[:80]} is held here")
        shown: list[Facts] = []
        size_bytes = 0
        for one in found:
            facts = self._contract_facts(one)
            size_bytes += len(msgspec.msgpack.encode(facts))
            if shown and size_bytes > EXPLAINED_BYTES_MAX:
                break
            shown.append(facts)
        return {"name": name, "contracts": shown, "left_out": len(found) - len(shown)}

    def _contract_facts(self, holding: Holding) -> Facts:
        body = self._context.state.holdings.body(holding)
        stage = self._context.state.holdings.stage(holding)
        return {
            "contract": holding.contract,
            "generation": holding.generation,
            "owner": self._context.settings.name if holding.is_owned else "above",
            "stage": Stage(stage).name.lower(),
            "variable": body.variable.name,
            "subscriber": body.subscriber,
            "is_node_disjoint": body.is_node_disjoint,
            "degraded": list(body.degraded),
            "troubles": self._replanning.troubles(holding.contract),
            "paths": [
                {
                    "latency_us": path.latency_us,
                    "pieces": [
                        {
                            "owner": piece.owner,
                            "routers": list(piece.routers),
                            "channel_names": list(piece.channel_names),
                            "latency_us": piece.latency_us,
                            "detection_ms": piece.detection_ms,
                        }
                        for piece in path.pieces
                    ],
                }
                for path in body.paths
            ],
        }
