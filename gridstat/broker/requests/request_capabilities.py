"""Registrations of publications and contracts, which several modules of this folder serve."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.effects.contract_effects import ContractEffects
from gridstat.broker.effects.registration_effects import PublicationChangeEffects
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.snapshot import contract_snapshot, publication_snapshot
from gridstat.broker.requests.pattern_matching import MATCH_TIMER
from gridstat.broker.requests.pending_grants import GRANT_RETRY_TIMER
from gridstat.broker.requests.publication_changes import CHANGE_TIMER
from gridstat.broker.requests.room_waits import ROOM_TIMER
from gridstat.broker.routers.path_moves import RETIRE_TIMER
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    FindVariables,
    Publish,
    ReportLedger,
    ResolveName,
    Subscribe,
    Unpublish,
    Unsubscribe,
)

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.registration_effects import RegistrationEffects
    from gridstat.broker.requests.contract_changes import ContractChanges
    from gridstat.broker.requests.pattern_matching import PatternMatching
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.publication_changes import PublicationChanges
    from gridstat.broker.requests.publications import Publications
    from gridstat.broker.requests.queries import Queries
    from gridstat.broker.requests.subscriptions import Subscriptions
    from gridstat.broker.routers.path_moves import PathMoves


def publications_capability(
    context: BrokerContext,
    effects: RegistrationEffects,
    publications: Publications,
    changes: PublicationChanges,
    queries: Queries,
) -> LeafCapability:
    """Register publications: their variables, changes of period, and look-ups by name."""
    change_effects = PublicationChangeEffects(
        context.registry, context.reservations, context.tables, effects
    )
    return LeafCapability(
        name="publications",
        operations={**effects.publication_operations(), **change_effects.operations()},
        snapshot=partial(publication_snapshot, context.registry),
        resume=changes.resume,
        endpoint_commands={
            Publish: publications.publish,
            Unpublish: publications.unpublish,
            ChangePublication: changes.change,
        },
        endpoint_queries={FindVariables: queries.find, ResolveName: queries.resolve},
        asks_about=frozenset({ChangePublication}),
        named_timers={CHANGE_TIMER: changes.retire_old},
    )


def contracts_capability(
    context: BrokerContext,
    subscriptions: Subscriptions,
    changes: ContractChanges,
    grants: PendingGrants,
    moves: PathMoves,
    queries: Queries,
) -> LeafCapability:
    """Register contracts inside the cloud: requests, patterns, live changes, and ledgers."""
    effects = ContractEffects(context.registry, context.reservations, context.tables)
    return LeafCapability(
        name="contracts",
        operations=effects.operations(),
        snapshot=partial(contract_snapshot, context.registry),
        resume=partial(_resume_contracts, moves, subscriptions.matching),
        endpoint_commands={
            Subscribe: subscriptions.subscribe,
            Unsubscribe: changes.unsubscribe,
            ChangeSubscription: changes.change,
        },
        endpoint_queries={ReportLedger: queries.keep_ledger},
        timers={
            RETIRE_TIMER: moves.retire_due,
            MATCH_TIMER: subscriptions.matching.match_next,
            GRANT_RETRY_TIMER: grants.retry,
            ROOM_TIMER: subscriptions.waits.look_again,
        },
    )


def _resume_contracts(moves: PathMoves, matching: PatternMatching) -> None:
    moves.resume()
    matching.schedule()
