"""Finding variables beyond what one answer holds: pages, each behind the last name of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.endpoint.variable_search import find_all
from gridstat.model.errors import LayoutError, LimitReached
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import FindVariables, FoundOutcome
from gridstat.net.command.session_messages import MANY_MAX

FIRST = StatusVariable(VariableId(1), "c1/v00000", BuiltinType.FLOAT64, Period(1, 30))
ALL = [
    replace(FIRST, variable_id=VariableId(number + 1), name=f"c1/v{number:05}")
    for number in range(2 * MANY_MAX + 345)
]


class Broker:
    """Answers as a broker does; an old one knows nothing of `after`."""

    def __init__(self, *, is_old: bool = False) -> None:
        self.asked: list[FindVariables] = []
        self._is_old = is_old

    def ask(self, command: FindVariables) -> FoundOutcome:
        self.asked.append(command)
        after = "" if self._is_old else command.after
        found = [each for each in ALL if each.name > after]
        limit = min(command.limit, MANY_MAX)
        return FoundOutcome(tuple(found[:limit]), is_complete=len(found) <= limit)


def test_more_variables_than_one_answer_holds_are_found_page_by_page() -> None:
    broker = Broker()
    assert find_all(broker.ask, "c1/**", after="", limit=0) == ALL
    assert [each.after for each in broker.asked] == ["", ALL[999].name, ALL[1_999].name]
    assert {each.limit for each in broker.asked} == {MANY_MAX}


@pytest.mark.parametrize("limit", [1, 999, 1_000, 1_001, 2_345, 9_999])
def test_a_page_begins_behind_a_name_and_has_a_bound(limit: int) -> None:
    broker = Broker()
    found = find_all(broker.ask, "c1/**", after="c1/v00009", limit=limit)
    assert found == ALL[10 : 10 + limit]
    assert len(broker.asked) <= 1 + limit // MANY_MAX


def test_a_broker_from_before_there_were_pages_is_not_asked_for_ever() -> None:
    broker = Broker(is_old=True)
    with pytest.raises(LimitReached, match="more variables than this broker returns"):
        find_all(broker.ask, "c1/**", after="", limit=0)
    assert len(broker.asked) == 2


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(LayoutError, match="a limit of -1"):
        find_all(Broker().ask, "c1/**", after="", limit=-1)


def test_an_empty_page_that_is_not_the_last_is_no_end() -> None:
    def ask(command: FindVariables) -> FoundOutcome:
        first = () if command.after else tuple(ALL[:10])
        return FoundOutcome(first, is_complete=False)

    with pytest.raises(LimitReached, match="after c1/v00009, and the broker returns none of them"):
        find_all(ask, "c1/**", after="", limit=0)
