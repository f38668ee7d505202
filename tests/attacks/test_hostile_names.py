"""Attack: names that are markup, path parts, look-alikes or no text at all.

Such a name is refused wherever a new one enters. One that an older release has written into the
journal still works, is reported at the start, and is shown as plain text.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gridstat.console.cli.command_errors import check_text
from gridstat.console.cli.top import print_survey
from gridstat.endpoint.options import alert_variable, check_pattern, periodic_variable
from gridstat.endpoint.variable_search import find_all
from gridstat.model.cloud import Router, RouterRole
from gridstat.model.errors import LayoutError, Misuse
from gridstat.model.status import BuiltinType
from gridstat.net.command.endpoint_messages import FindVariables, FoundOutcome, PublishedOutcome
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import AddRouter
from tests.unit.broker.conversation import Conversation, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, publish, subscribe, variable

MARKUP = "c1/north/pmu/[/x]"
HARMLESS = "c1/north/pmu/abcd"
HOSTILE = [MARKUP, f"{PMU}/..", f"{PMU}/a\u3164", f"{PMU}/e\u0301", f"{PMU}/a%2f"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_new_variable_with_a_hostile_name_is_refused(name: str) -> None:
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0")
    found = refusal(cloud.ask(PMU, "c1/e0", publish(variable(name))))
    assert found.code == LayoutError.code
    assert "letters of any script" in found.hint


@pytest.mark.parametrize("name", [*HOSTILE, "c1/[/x]/*", "c1/../**"])
def test_a_subscription_to_a_hostile_name_or_pattern_is_refused(name: str) -> None:
    cloud = Conversation().start()
    cloud.attach(CENTRE, "c1/e1")
    found = refusal(cloud.ask(CENTRE, "c1/e1", subscribe(name)))
    assert found.code == LayoutError.code


def test_a_new_router_with_a_hostile_name_is_refused() -> None:
    cloud = Conversation().start()
    router = Router("c1/[/x]", RouterRole.INNER)
    cloud.tell(Received("operator/c1/alice", AddRouter(request_id=1, router=router)))
    cloud.settle()
    (answer,) = cloud.operator_answers
    assert answer.refused is not None
    assert answer.refused.code == LayoutError.code
    assert "c1/[/x]" not in cloud.broker.registry.routers


def with_old_journal() -> Conversation:
    """A cloud whose journal was written by a release that allowed the markup as a name."""
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0")
    cloud.attach(CENTRE, "c1/e1")
    cloud.publish(HARMLESS, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e1", HARMLESS)
    cloud.journal[:] = [data.replace(HARMLESS.encode(), MARKUP.encode()) for data in cloud.journal]
    cloud.kill_broker()
    cloud.notes.clear()
    return cloud.start()


def test_an_old_journal_with_a_hostile_name_replays_and_the_name_is_reported() -> None:
    cloud = with_old_journal()
    registry = cloud.broker.registry
    assert MARKUP in registry.publications
    assert len(registry.subscriptions) == 1
    (note,) = [note for note in cloud.notes if note.word == "names_not_legal"]
    assert note.is_warning
    assert dict(note.facts)["names"] == MARKUP


def test_a_hostile_name_of_an_old_journal_can_be_published_and_subscribed_again() -> None:
    cloud = with_old_journal()
    cloud.attach(PMU, "c1/e0", incarnation="b")
    cloud.attach(CENTRE, "c1/e1", incarnation="b")
    (known,) = cloud.ask(PMU, "c1/e0", publish(variable(MARKUP)))
    assert isinstance(known, PublishedOutcome)
    cloud.subscribe(CENTRE, "c1/e1", MARKUP)


def test_a_hostile_name_of_an_old_journal_is_shown_as_it_is() -> None:
    cloud, out = with_old_journal(), io.StringIO()
    print_survey(Console(file=out, width=200), cloud.broker.survey())
    assert MARKUP in out.getvalue()


@pytest.mark.parametrize("text", ["\ud800", "a\udc80b"])
def test_a_lone_surrogate_is_refused_as_a_name_before_anything_is_sent(text: str) -> None:
    def ask(_: FindVariables) -> FoundOutcome:
        raise AssertionError("nothing is sent")

    name = f"c1/me/{text}"
    with pytest.raises(LayoutError):
        periodic_variable(name, BuiltinType.FLOAT64, {"rate": 1})
    with pytest.raises(LayoutError):
        alert_variable(name, BuiltinType.BOOL, 1.0)
    with pytest.raises(LayoutError):
        check_pattern(name, is_pattern=False)
    with pytest.raises(LayoutError):
        check_pattern(f"{name}/*", is_pattern=True)
    with pytest.raises(LayoutError):
        find_all(ask, f"{name}/*", after="", limit=0)
    with pytest.raises(Misuse):
        check_text({"names": [name]})
