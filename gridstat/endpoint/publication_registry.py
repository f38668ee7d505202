"""Publications of a connection: registers them with the cloud and keeps them by name."""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from gridstat.endpoint.change import CODE_PURGED
from gridstat.endpoint.change_notifier import FORGOTTEN, refusal_reason
from gridstat.endpoint.options import refusal
from gridstat.endpoint.publisher import Publication
from gridstat.endpoint.registrations import WITHDRAWN_MAX
from gridstat.endpoint.request_client import awaited, spread
from gridstat.endpoint.session_events import PublicationRestored
from gridstat.model.errors import GridStatError, LayoutError, Misuse
from gridstat.model.exact_numbers import exact_stamp
from gridstat.model.status import U64_MAX, BuiltinType
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    EventsPoliced,
    PublicationRequest,
    Publish,
    PublishedOutcome,
    RefusedOutcome,
    Unpublish,
    Unpublished,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from numpy.typing import ArrayLike, NDArray

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.change_notifier import ChangeNotifier
    from gridstat.endpoint.change_stream import ChangeFollowers
    from gridstat.endpoint.outgoing_channels import OutgoingChannels
    from gridstat.endpoint.request_client import RequestClient
    from gridstat.model.derived import Derivation
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome

    Wanted = tuple[StatusVariable, Sequence[Derivation]]


class PublicationRegistry:
    """Publications by name; a withdrawn one is removed."""

    def __init__(
        self, client: RequestClient, channels: OutgoingChannels, notifier: ChangeNotifier
    ) -> None:
        self._client = client
        self._notifier = notifier
        self._channels = channels
        self._publications: dict[str, Publication] = {}
        self._by_identifier: dict[int, Publication] = {}
        """Cache of publications by identifier; identifiers change with periods."""
        self._withdrawn: dict[int, Unpublished] = {}
        """Notices by identifier, for an answer that comes after the notice."""

    @property
    def is_empty(self) -> bool:
        """True if there is none."""
        return not self._publications

    def publish(
        self, wanted: Sequence[Wanted], on_change: OnChange | None = None
    ) -> list[Publication | GridStatError]:
        """Register variables, many in one request; each has its own answer, in order."""
        found: list[Publication | GridStatError] = []
        try:
            for at in range(0, len(wanted), MANY_MAX):
                asked = self._ask_for(wanted[at : at + MANY_MAX], on_change)
                some = awaited(asked, self.give_back)
                found += some
        except BaseException:
            self.give_back(found)
            raise
        return found

    def _ask_for(
        self, wanted: Sequence[Wanted], on_change: OnChange | None
    ) -> Future[list[Publication | GridStatError]]:
        requests = tuple(PublicationRequest(variable=variable) for variable, _ in wanted)

        def use(
            outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]
        ) -> list[Publication | GridStatError]:
            return [
                self._published(outcome, derived, on_change)
                for (_, derived), outcome in zip(wanted, spread(outcomes, wanted), strict=True)
            ]

        return self._client.ask(Publish(publications=requests), use)

    def change_period(self, publication: Publication, period: Period, phase_ns: int) -> None:
        """Request another period, which holds from the announced time on."""
        if not 0 <= phase_ns <= U64_MAX:
            raise LayoutError(f"phase_ns is {phase_ns}, and must be 0 to {U64_MAX}")
        command = ChangePublication(name=publication.name, period=period, phase_ns=phase_ns)

        def use(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> None:
            (outcome,) = outcomes
            if isinstance(outcome, RefusedOutcome):
                raise refusal(outcome)
            assert isinstance(outcome, PublishedOutcome), "a change is answered as a publication"
            publication.changed(outcome)

        self._client.ask(command, use).result()

    def unpublish(self, publication: Publication) -> None:
        """Withdraw a publication; the cloud always agrees."""
        for asked in self.give_back([publication]):
            asked.result()

    def give_back(self, found: Sequence[Publication | GridStatError]) -> list[Future[None]]:
        """Withdraw several without waiting for the answers."""
        names = [each.name for each in found if isinstance(each, Publication)]
        for name in names:
            publication = self._publications.pop(name, None)
            if publication is not None:
                publication.end()
        return [
            self._client.ask(Unpublish(names=tuple(names[at : at + MANY_MAX])), lambda *_: None)
            for at in range(0, len(names), MANY_MAX)
        ]

    def restored(self, event: PublicationRestored) -> None:
        """Handle the restoration, or refusal, of a publication that the cloud had forgotten."""
        publication = self._publications.get(event.name)
        if publication is None:
            return
        was_registered, before = publication.is_registered, publication.error_code
        publication.restored(event.outcome)
        if isinstance(event.outcome, RefusedOutcome):
            if event.outcome.code != before:
                reason = refusal_reason(event.outcome)
                self._notifier.publication_purged(publication, reason, event.outcome.code)
        elif not was_registered:
            self._notifier.publication_restored(publication)

    def withdrawn(self, notice: Unpublished) -> None:
        """Handle that the cloud has withdrawn a publication; it is requested again later."""
        if len(self._withdrawn) >= WITHDRAWN_MAX:
            self._withdrawn.clear()
        self._withdrawn[notice.variable_id] = notice
        publication = self._publications.get(notice.name)
        if publication is not None and publication.has_identifier(notice.variable_id):
            refused = RefusedOutcome(code=notice.code, reason=notice.reason)
            self.restored(PublicationRestored(notice.name, refused))

    def registrations_lost(self) -> None:
        """Mark all publications as lost; each is registered again, or refused for now."""
        for publication in tuple(self._publications.values()):
            publication.lost()
            self._notifier.publication_purged(publication, FORGOTTEN, CODE_PURGED)

    def policed(self, notice: EventsPoliced) -> None:
        """Note that an edge router policed events of a publication."""
        publication = self._by_identifier.get(notice.variable_id)
        if publication is None or not publication.has_identifier(notice.variable_id):
            self._by_identifier = {
                variable_id: each
                for each in tuple(self._publications.values())
                for variable_id in each.identifiers()
            }
            publication = self._by_identifier.get(notice.variable_id)
        if publication is not None and publication.note_policed(notice):
            self._notifier.publication_policed(publication, notice.edge, notice.counts)

    def followers(self) -> list[ChangeFollowers]:
        """Return the followers of each publication."""
        return [each.followers for each in tuple(self._publications.values())]

    def end(self) -> None:
        """End all publications; the connection is closed."""
        for publication in self._publications.values():
            publication.end()
        self._publications.clear()

    def send_many(
        self,
        publications: Sequence[Publication],
        values: ArrayLike,
        created_ns: ArrayLike | None = None,
    ) -> int:
        """Send one value of each publication, packed; return how many were sent."""
        column = np.asarray(values)
        if column.shape != (len(publications),):
            raise LayoutError(f"{len(publications)} publications and values of {column.shape}")
        if not len(publications):
            return 0
        common = publications[0].column()
        if any(publication.column() is not common for publication in publications):
            common = None
        if common is not None and created_ns is None:
            return self._send_now(publications, _column_of(common.kind, column), common.flags)
        stamps = _stamps(time.time_ns() if created_ns is None else created_ns, len(publications))
        if common is not None:
            identifiers = _identifiers_at(publications, stamps.tolist())
            return self._channels.send_many(
                identifiers, _column_of(common.kind, column), stamps, common.flags
            )
        return sum(
            publication.send(value, created_ns=int(stamp_ns))
            for publication, value, stamp_ns in zip(
                publications, column.tolist(), stamps.tolist(), strict=True
            )
        )

    def _send_now(self, publications: Sequence[Publication], column: np.ndarray, flags: int) -> int:
        """Send with stamps taken last, so that no event's latency includes the preparation.

        Should a period change in between, the earlier stamp holds, by which it was looked up.
        """
        looked_ns = time.time_ns()
        identifiers = _identifiers_at(publications, repeat(looked_ns))
        changes_ns = min(publication.changes_ns for publication in publications)
        stamps = np.empty(len(publications), np.uint64)
        now_ns = time.time_ns()
        stamps.fill(now_ns if now_ns < changes_ns else looked_ns)
        return self._channels.send_many(identifiers, column, stamps, flags)

    def _published(
        self, outcome: Outcome, derived: Sequence[Derivation], on_change: OnChange | None
    ) -> Publication | GridStatError:
        if isinstance(outcome, RefusedOutcome):
            return refusal(outcome)
        if not isinstance(outcome, PublishedOutcome):
            return Misuse(f"the cloud answered {type(outcome).__name__} to a publication")
        followers = self._notifier.new_followers(on_change)
        publication = Publication(self, self._channels, outcome, derived, followers)
        self._publications[publication.name] = publication
        withdrawn = self._withdrawn.get(outcome.variable.variable_id)
        if withdrawn is not None:
            self.withdrawn(withdrawn)
        return publication


def _identifiers_at(
    publications: Iterable[Publication], stamps_ns: Iterable[int]
) -> NDArray[np.uint32]:
    # The stamps may be an infinite iterator.
    pairs = zip(publications, stamps_ns, strict=False)
    return np.array([each.identifier_at(stamp_ns) for each, stamp_ns in pairs], np.uint32)


def _stamps(created_ns: ArrayLike, count: int) -> NDArray[np.uint64]:
    """Return one stamp for each event, from one for all or one for each."""
    given = np.asarray(created_ns)
    if given.dtype.kind not in "ui" or (given.dtype.kind == "i" and given.size and given.min() < 0):
        # Raises for wrong types; accepts whole numbers too large for NumPy's usual type.
        given = np.array([exact_stamp(each) for each in given.ravel()], np.uint64).reshape(
            given.shape
        )
    if given.shape not in ((), (count,)):
        raise LayoutError(f"{count} publications and stamps of {given.shape}")
    return np.broadcast_to(given.astype(np.uint64), (count,))


def _column_of(kind: BuiltinType, column: np.ndarray) -> np.ndarray:
    """Return the values as the senders need them; raise if they are of another type."""
    if kind is BuiltinType.FLOAT64 and column.dtype.kind in "iuf":
        return column.astype(np.float64)
    if kind is BuiltinType.INT64 and column.dtype.kind in "iu":
        return column
    if kind is BuiltinType.BOOL and column.dtype.kind == "b":
        return column
    raise LayoutError(f"values of {column.dtype.name} for variables of {kind.value}")
