"""Lists of floods in pages: each fits into a frame, and together they are all."""

from __future__ import annotations

from typing import Any

from gridstat.broker.floods.flooding_changes import REASON_MAX
from gridstat.broker.floods.flooding_pages import REFUSING_MAX, page_of, refusing_facts
from gridstat.model.qos import MODES_MAX
from gridstat.net.command.frames import frame
from gridstat.net.command.operator_messages import OperatorAnswer
from gridstat.net.command.session_messages import MANY_MAX

NAMES = [f"c1/{'x' * 200}/{number:04}" for number in range(MANY_MAX)]
WHY = "\N{GREEK SMALL LETTER ALPHA}" * REASON_MAX


def facts_of(name: str) -> dict[str, Any]:
    """Return facts of the greatest possible length."""
    term = {"level": 200, "every": 4 * 10**9, "asked_by": "operator", "overrides_operator": False}
    return {
        "name": name,
        "variable_id": 1 << 31,
        "modes": [{"mode": mode, **term} for mode in range(MODES_MAX)],
        "refusing": refusing_facts({f"child{at:03}": WHY for at in range(2 * REFUSING_MAX)}),
    }


def test_the_longest_list_of_floods_comes_in_pages_that_fit_into_frames() -> None:
    seen: list[str] = []
    after, is_last = "", False
    while not is_last:
        page = page_of(reversed(NAMES), after, facts_of)
        assert frame(OperatorAnswer(request_id=1, facts=page))
        seen += [found["name"] for found in page["floods"]]
        after, is_last = page["next"], not page["next"]
    assert seen == NAMES


def test_of_many_children_that_refuse_it_is_said_how_many_more_there_are() -> None:
    found = refusing_facts({f"c{at:03}": "full" for at in range(REFUSING_MAX + 3)})
    assert len(found) == REFUSING_MAX + 1
    assert found["others"] == "3 more do not flood it either"
    assert refusing_facts({"c1": "full"}) == {"c1": "full"}
