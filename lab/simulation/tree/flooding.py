"""Floods of the operators of a simulated tree, and checks of their results at rest.

Each broker has an operator, who sends one command after another, and again on every new session
until it is answered. A flood that was answered as done holds as long as the variable is published;
a refused command changed nothing, unless it was sent twice: then the broker may have received the
first copy. A broker that loses its journal forgets all floods of its operator, those included whose
answer arrives after the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.model.flooding import checked_modes
from gridstat.model.identifiers import VariableId
from gridstat.net.command.endpoint_messages import PublicationRequest, Publish, Unpublish
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from lab.simulation.modes import MODES, MODES_UNDEFINED, check_refusal, check_written
from lab.simulation.operator_node import OperatorNode
from lab.simulation.tree.swarm import FloodWork
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.broker.floods.flooding_operations import FloodingHeld
    from gridstat.broker.floods.leaf_flooding_operations import FloodingSet
    from gridstat.net.command.operator_messages import OperatorAnswer
    from lab.simulation.network import Session
    from lab.simulation.tree.grid import TreeGrid

ASKED: Final = "what floods was asked for"
DONE: Final = "a flood that was answered as done holds"
OPERATORS_FROM: Final = 10_000
"""First node number of the operators; no other node has these numbers."""
EVERYS: Final = (1, 1, 2, 3)
MODAL_SHARE: Final = 0.3
UNDEFINED_SHARE: Final = 0.1
ANYWHERE_SHARE: Final = 0.1
"""Share of floods at a broker that may have nothing to do with the variable."""

Terms = dict[int, int]
"""Divisor of the flood in each mode."""


@dataclass(slots=True)
class PossibleFloods:
    """Floods that the operator of one broker may have set for one variable.

    `variable_id` is that of the publication in the answer; 0 if there was no answer.
    """

    possible: list[Terms] = field(default_factory=lambda: [{}])
    variable_id: int = 0


class TreeFlooding:
    """Operators of a tree; `done` and `refused` count answers, so that tests can check for both."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._world = grid.world
        self._operators: dict[str, OperatorNode] = {}
        self._possible_floods: dict[tuple[str, str], PossibleFloods] = {}
        self._sessions_lost: dict[str, Session] = {}
        """Session of an operator with the process whose journal was lost since."""
        self.done = 0
        self.refused = 0
        grid.on_journal_lost.append(self.journal_lost)

    def plan(self, start_ns: int) -> None:
        """Schedule the beginnings and ends of the swarm's floods, counted from `start_ns`."""
        if not self._grid.swarm.floods:
            return
        for number, broker in enumerate(self._grid.brokers, start=OPERATORS_FROM):
            node = self._operators[broker] = OperatorNode(self._grid.network, number, broker)
            self._grid.network.nodes[node.peer] = node
            node.start()
        for at_ns, work in self._grid.swarm.floods:
            self._world.at(start_ns + at_ns, self._do, work)

    def journal_lost(self, broker: str) -> None:
        """Forget the floods of a broker that begins anew, and what it may have answered."""
        for key in [key for key in self._possible_floods if key[0] == broker]:
            del self._possible_floods[key]
        self._sessions_lost.pop(broker, None)
        node = self._operators.get(broker)
        session = None if node is None else node.session
        if session is not None:
            self._sessions_lost[broker] = session

    def unrest(self) -> str | None:
        for broker, node in self._operators.items():
            if not node.is_idle:
                return f"the operator of {broker} waits for an answer"
        return None

    def end_refused(self) -> None:
        """End the floods for which a child has no capacity, as their brokers list.

        No capacity is kept for a second variable of a name while the first one still floods, so a
        child may refuse what all children had room for.
        """
        for broker, machine in self._grid.qos_brokers().items():
            flooding = machine.parts.flooding
            for name, held in flooding.floods.items():
                if held.own and flooding.refusing(name):
                    number = self._operators[broker].next_id()
                    self._ask(broker, RemoveFlooding(request_id=number, name=name))

    # Commands.

    def _do(self, work: FloodWork) -> None:
        if work is FloodWork.END and self._end():
            return
        if work is FloodWork.ANEW and self._publish_anew():
            return
        self._begin()

    def _begin(self) -> None:
        """Flood some published variable from some broker above it."""
        nodes = self._grid.endpoints.values()
        names = [name for node in nodes for name in node.application.publications]
        if not names:
            return
        self._begin_with(names[self._world.between(0, len(names) - 1)])

    def _publish_anew(self) -> bool:
        """Withdraw and publish again a variable that floods; return whether there was one.

        Variables with contracts are left out; other seeds cover those.
        """
        flooded = {
            name for (_, name), floods in self._possible_floods.items() if any(floods.possible)
        }
        for node in self._grid.endpoints.values():
            flooded -= {contract.name for contract in node.application.contracts.values()}
        known = [
            (node, name)
            for node in self._grid.endpoints.values()
            for name in node.application.publications
            if name in flooded
        ]
        if not known:
            return False
        node, name = known[self._world.between(0, len(known) - 1)]
        variable = replace(node.application.publications[name], variable_id=VariableId(0))
        node.application.ask(Unpublish(names=(name,)))
        node.application.ask(Publish(publications=(PublicationRequest(variable=variable),)))
        self._begin_with(name)
        return True

    def _begin_with(self, name: str) -> None:
        world, plan = self._world, self._grid.swarm.plan
        brokers = list(plan.scope(cloud_of(name)))
        if world.chance(ANYWHERE_SHARE):
            brokers = list(plan.brokers)
        broker = brokers[world.between(0, len(brokers) - 1)]
        command = SetFlooding(
            request_id=self._operators[broker].next_id(),
            name=name,
            modes=self._modes(),
            every=EVERYS[world.between(0, len(EVERYS) - 1)],
        )
        self._ask(broker, command)

    def _modes(self) -> tuple[int, ...]:
        """Draw modes: mostly none, which stands for all; some defined ones, or an undefined one."""
        world = self._world
        if world.chance(UNDEFINED_SHARE):
            return MODES_UNDEFINED[: world.between(1, len(MODES_UNDEFINED))]
        if world.chance(MODAL_SHARE):
            return tuple(mode for mode in MODES if world.chance(0.5))
        return ()

    def _end(self) -> bool:
        """End some flood that an operator has probably set; return whether there was one."""
        known = [key for key, floods in self._possible_floods.items() if any(floods.possible)]
        if not known:
            return False
        world = self._world
        broker, name = known[world.between(0, len(known) - 1)]
        modes = tuple(mode for mode in MODES if world.chance(0.5)) if world.chance(0.3) else ()
        command = RemoveFlooding(
            request_id=self._operators[broker].next_id(), name=name, modes=modes
        )
        self._ask(broker, command)
        return True

    def _ask(self, broker: str, command: SetFlooding | RemoveFlooding) -> None:
        if self._world.is_traced:
            self._world.tell(f"operator/{broker}", f"WANTS {command}")
        self._operators[broker].ask(command, partial(self._answered, broker, command))

    def _answered(
        self, broker: str, command: SetFlooding | RemoveFlooding, answer: OperatorAnswer
    ) -> None:
        if answer.refused is None:
            self.done += 1
            if isinstance(command, SetFlooding):
                check_written(int(answer.facts.get("variable_id", 0)), command.modes)
        else:
            self.refused += 1
            check_refusal(command.modes, answer.refused)
        if self._is_of_lost_journal(broker):
            return
        floods = self._possible_floods.setdefault((broker, command.name), PossibleFloods())
        after = [_after(command, terms) for terms in floods.possible]
        if answer.refused is not None:
            if self._operators[broker].was_repeated:
                floods.possible += [terms for terms in after if terms not in floods.possible]
                floods.variable_id = 0
            return
        number = int(answer.facts.get("variable_id", 0))
        if number != floods.variable_id:
            # The variable was perhaps published again, and nothing of its former flood is left.
            after += [_after(command, {})]
        floods.possible = [terms for at, terms in enumerate(after) if terms not in after[:at]]
        floods.variable_id = number

    def _is_of_lost_journal(self, broker: str) -> bool:
        """Return whether an answer that arrives now is older than the loss of the journal."""
        session = self._sessions_lost.get(broker)
        return session is not None and session is self._operators[broker].session

    # Checks.

    def check(self) -> None:
        """Check at rest that exactly the floods hold that operators set."""
        leaves, brokers = self._grid.leaves(), self._grid.qos_brokers()
        published = {
            name: int(found.variable.variable_id)
            for leaf in leaves.values()
            for name, found in leaf.registry.publications.items()
        }
        for broker in self._grid.brokers:
            held: dict[str, FloodingHeld] | dict[str, FloodingSet] = (
                leaves[broker].floods.variables
                if broker in leaves
                else brokers[broker].parts.flooding.floods
            )
            names = [*held, *(name for known, name in self._possible_floods if known == broker)]
            for name in sorted(set(names)):
                found = held.get(name)
                self._check_one(broker, name, found, published.get(name, 0))

    def _check_one(
        self, broker: str, name: str, held: FloodingHeld | FloodingSet | None, number: int
    ) -> None:
        own: Terms = {}
        flooded = 0
        if held is not None:
            own = {mode: term.every for mode, term in held.own.items()}
            check_written(int(held.variable.variable_id), held.modes)
            flooded = int(held.variable.variable_id)
        floods = self._possible_floods.get((broker, name), PossibleFloods())
        if own and (own not in floods.possible or flooded != number):
            raise PropertyBroken(
                ASKED, f"{name} floods at {broker} {own}, asked was {floods}, published {number}"
            )
        is_certain = floods.variable_id and floods.variable_id == number
        if is_certain and own not in floods.possible:
            raise PropertyBroken(DONE, f"{name} floods at {broker} {own}, asked was {floods}")


def _after(command: SetFlooding | RemoveFlooding, terms: Terms) -> Terms:
    if isinstance(command, SetFlooding):
        return {**terms, **dict.fromkeys(checked_modes(command.modes), command.every)}
    return {
        mode: every for mode, every in terms.items() if command.modes and mode not in command.modes
    }
