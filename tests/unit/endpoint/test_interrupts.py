"""Ctrl-C while the cloud is asked: nothing that it grants stays without an owner."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.options import SubscriptionSpec
from gridstat.endpoint.publication_registry import PublicationRegistry
from gridstat.endpoint.request_client import awaited
from gridstat.model.qos import ModalQos
from gridstat.net.command.endpoint_messages import (
    SUBSCRIPTIONS_AT_ONCE,
    DoneOutcome,
    PublishedOutcome,
    Unpublish,
    Unsubscribe,
)
from tests.unit.endpoint.paper_grid import PaperClock, PaperCloud, PaperGrid, granted, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.endpoint.outgoing_channels import OutgoingChannels
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

Result = TypeVar("Result")


class Interrupted(Future[Result]):
    """Future whose first wait is interrupted by Ctrl-C."""

    was_waited_for = False

    def result(self, timeout: float | None = None) -> Result:
        if not self.was_waited_for:
            self.was_waited_for = True
            raise KeyboardInterrupt
        return super().result(timeout)


@dataclass(slots=True)
class InterruptedCloud(PaperCloud):
    """Answers as ever, but Ctrl-C comes before one of the answers is taken."""

    at: int = 0

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        answered = PaperCloud.ask(self, command, use)
        if len(self.asked) - 1 != self.at:
            return answered
        found: Future[Result] = Interrupted()
        found.set_result(answered.result())
        return found


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaperGrid]:
    monkeypatch.setattr("tests.unit.endpoint.paper_grid.PaperCloud", InterruptedCloud)
    found = PaperGrid()
    yield found
    found.close()


def test_a_question_that_is_not_answered_yet_is_cancelled() -> None:
    asked: Future[int] = Interrupted()
    back: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        awaited(asked, back.append)
    assert asked.cancelled()
    assert back == []


def test_subscriptions_that_were_granted_meanwhile_are_given_back(grid: PaperGrid) -> None:
    grid.cloud.ready.append((granted(variable(), 5),))
    with pytest.raises(KeyboardInterrupt):
        grid.book.subscribe([SubscriptionSpec("c1/a/v", ModalQos())])
    assert grid.cloud.asked[1:] == [Unsubscribe(subscription_ids=(5,))]
    assert grid.receiver.expected == {}


def test_of_many_requests_the_answered_ones_are_given_back_too(grid: PaperGrid) -> None:
    names = [variable(f"c1/a/v{n}", n + 1) for n in range(1_001)]
    ends = [*range(SUBSCRIPTIONS_AT_ONCE, 1_000, SUBSCRIPTIONS_AT_ONCE), 1_000, 1_001]
    some = [names[first:end] for first, end in pairwise([0, *ends])]
    cast("InterruptedCloud", grid.cloud).at = len(some) - 1
    grid.cloud.ready += [tuple(granted(each, each.variable_id) for each in batch) for batch in some]
    with pytest.raises(KeyboardInterrupt):
        grid.book.subscribe([SubscriptionSpec(each.name, ModalQos()) for each in names])
    given = [each for each in grid.cloud.asked if isinstance(each, Unsubscribe)]
    assert sorted(number for each in given for number in each.subscription_ids) == list(
        range(1, 1_002)
    )
    assert grid.receiver.expected == {}


def test_a_pattern_that_was_granted_meanwhile_is_given_back(grid: PaperGrid) -> None:
    grid.cloud.ready.append((granted(variable(), 9),))
    grid.cloud.ready.append((DoneOutcome(),))
    with pytest.raises(KeyboardInterrupt):
        grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    assert grid.cloud.asked[1:] == [Unsubscribe(subscription_ids=(9,))]


def test_publications_that_were_registered_meanwhile_are_withdrawn() -> None:
    cloud = InterruptedCloud(ready=[(PublishedOutcome(variable=variable()),)])
    notifier = ChangeNotifier(lambda work: work(), PaperClock())
    book = PublicationRegistry(cloud, cast("OutgoingChannels", None), notifier)
    with pytest.raises(KeyboardInterrupt):
        book.publish([(variable(), ())])
    assert cloud.asked[1:] == [Unpublish(names=("c1/a/v",))]
