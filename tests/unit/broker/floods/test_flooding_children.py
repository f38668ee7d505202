"""Messages of a child about floods: only of its own clouds and of current generations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gridstat.model.errors import BackPressured, ChannelFull, StillInUse
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import (
    ListFlooding,
    RemoveChannel,
    RemoveChild,
    RemoveFlooding,
    SetFlooding,
)
from gridstat.net.command.router_messages import FloodOrder
from gridstat.net.command.tree_messages import (
    BorderChannelReported,
    FloodingCommitted,
    FloodingEnded,
    FloodingRefused,
)
from tests.unit.broker.floods.test_flooding_faults import (
    BOTH,
    FLOOD,
    VOLTAGE,
    flooding_clouds,
    middle,
    two_clouds,
)
from tests.unit.broker.floods.test_tree_flooding import floods

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from tests.unit.broker.tree.family import Family

FULL = RefusedOutcome(code=ChannelFull.code, reason="full " * 1_000)


@pytest.fixture
def pair() -> Family:
    found = two_clouds(dict.fromkeys("ab", "root"))
    assert found.operate("root", FLOOD).refused is None
    return found


def say(family: Family, child: str, word: Message) -> None:
    family.brokers["root"].tell(Received(f"broker/{child}", word))
    family.settle()


def refusing(family: Family) -> dict[str, str]:
    (found,) = family.operate("root", ListFlooding(request_id=9)).facts["floods"]
    return dict(found["refusing"])


def refusal(family: Family, name: str = VOLTAGE, *, of: int | None = None) -> FloodingRefused:
    """Cloud b has no room for it."""
    number = family.brokers["root"].broker.parts.flooding.floods[VOLTAGE].number
    term = family.leaves["b"].broker.registry.term
    generation = number if of is None else of
    return FloodingRefused(term=term, name=name, generation=generation, refused=FULL)


def test_a_child_does_not_end_the_flood_of_another_ones_variable(pair: Family) -> None:
    term = pair.leaves["b"].broker.registry.term
    say(pair, "b", FloodingEnded(term=term, name=VOLTAGE))
    assert flooding_clouds(pair) == BOTH
    assert [note.word for note in pair.brokers["root"].notes[-1:]] == ["not_its_own"]


@pytest.mark.parametrize("is_named", [True, False])
def test_the_end_of_a_variable_ends_its_flood(pair: Family, *, is_named: bool) -> None:
    """Older releases do not say which variable of that name it was."""
    registry = pair.leaves["a"].broker.registry
    number = registry.publications[VOLTAGE].variable.variable_id if is_named else 0
    say(pair, "a", FloodingEnded(term=registry.term, name=VOLTAGE, variable_id=number))
    assert flooding_clouds(pair) == set()


def test_the_end_of_a_variable_does_not_end_the_flood_of_one_that_has_its_name_now(
    pair: Family,
) -> None:
    registry = pair.leaves["a"].broker.registry
    number = registry.publications[VOLTAGE].variable.variable_id + 1
    say(pair, "a", FloodingEnded(term=registry.term, name=VOLTAGE, variable_id=number))
    assert flooding_clouds(pair) == BOTH


def test_the_end_of_a_variable_is_not_lost_if_the_next_one_of_its_name_ends_during_a_change(
    pair: Family,
) -> None:
    registry = pair.leaves["a"].broker.registry
    number = registry.publications[VOLTAGE].variable.variable_id
    assert pair.operate("root", structs.replace(FLOOD, modes=(1,))).refused is None
    pair.separate("b")
    pair.ask("root", RemoveFlooding(request_id=5, name=VOLTAGE, modes=(1,)))
    assert pair.answers("root")[-1].request_id != 5, "the change waits for b"
    for ended in (number, number + 1):
        end = FloodingEnded(term=registry.term, name=VOLTAGE, variable_id=ended)
        pair.brokers["root"].tell(Received("broker/a", end))
    pair.heal()
    assert flooding_clouds(pair) == set()


def test_no_child_is_removed_while_anything_floods(pair: Family) -> None:
    """Refuse to remove a child, which would not receive the end of the flood."""
    removal = RemoveChild(request_id=4, name="b")
    refused = pair.operate("root", removal).refused
    assert refused is not None
    assert refused.code == StillInUse.code
    assert "flood" in refused.hint
    pair.disconnect("b")
    pair.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    pair.settle()
    refused = pair.operate("root", removal).refused  # It has not confirmed the end yet.
    assert refused is not None
    assert refused.code == StillInUse.code
    pair.connect("b")
    pair.settle()
    for way in (("a/0", "b/0"), ("b/0", "a/0")):
        leading = RemoveChannel(request_id=5, from_router=way[0], to_router=way[1])
        assert pair.operate("root", leading).refused is None
    assert pair.operate("root", removal).refused is None
    assert flooding_clouds(pair) == set()


def test_a_broker_that_starts_without_a_parent_floods_only_what_is_its_own() -> None:
    family = middle()
    assert family.operate("root", FLOOD).refused is None
    own = SetFlooding(request_id=1, name=VOLTAGE, modes=(2,), every=10)
    assert family.operate("p", own).refused is None
    family.disconnect("p")
    del family.parents["p"]
    family.brokers["p"].settings = replace(family.brokers["p"].settings, parent="")
    family.kill("p")
    family.settle()
    assert floods(family) == dict.fromkeys("ab", (FloodOrder(level=0, modes=0b100, every=10),))
    (account,) = {
        account.carriage.bytes.value
        for account in family.brokers["p"].broker.state.channels.accounts.values()
    }
    assert account == 504


def test_only_a_refusal_of_what_counts_is_kept_and_not_all_of_a_long_one(pair: Family) -> None:
    say(pair, "b", refusal(pair, of=7))
    for number in range(100):
        say(pair, "b", refusal(pair, f"b/pmu/v{number}"))
    assert refusing(pair) == {}
    assert "flooding_refused" not in {note.word for note in pair.brokers["root"].notes}
    say(pair, "b", refusal(pair))
    assert refusing(pair).keys() == {"b"}
    assert len(refusing(pair)["b"]) == 500


def test_a_refusal_goes_with_the_child(pair: Family) -> None:
    say(pair, "b", refusal(pair))
    pair.disconnect("b")
    assert refusing(pair) == {}


def test_a_refusal_goes_with_the_flood(pair: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the refusal also if the child never confirms the next change."""
    parent = pair.leaves["b"].broker._tree.session
    send = parent.send

    def send_some(message: Message) -> None:
        if not isinstance(message, FloodingCommitted):
            send(message)

    monkeypatch.setattr(parent, "send", send_some)
    say(pair, "b", refusal(pair))
    for command in (RemoveFlooding(request_id=2, name=VOLTAGE), FLOOD):
        pair.ask("root", command)
        pair.settle()
        pair.pass_time(60 * NS_PER_S)
    assert pair.answers("root")[-1].facts["unconfirmed"] == ["b"]
    assert refusing(pair) == {}


def press(family: Family, *, is_pressed: bool) -> None:
    """Cloud a says it of its channel to b."""
    leaf = family.leaves["a"].broker
    channels = family.brokers["root"].broker.state.channels
    number = channels.on["a/0", "b/0", ""]
    word = BorderChannelReported(
        term=leaf.registry.term, channel_id=number, is_up=True, is_pressed=is_pressed
    )
    say(family, "a", word)
    assert channels.account(number).is_back_pressured is is_pressed


def test_a_congested_channel_between_clouds_admits_no_flood_and_keeps_those_that_it_has() -> None:
    family = two_clouds(dict.fromkeys("ab", "root"))
    press(family, is_pressed=True)
    refused = family.operate("root", FLOOD).refused
    assert refused is not None
    assert refused.code == BackPressured.code
    assert refused.bottleneck == "channel a/0→b/0"
    assert flooding_clouds(family) == set()
    press(family, is_pressed=False)
    assert family.operate("root", FLOOD).refused is None
    press(family, is_pressed=True)
    assert family.operate("root", FLOOD).refused is None
    assert flooding_clouds(family) == BOTH
    assert family.operate("root", RemoveFlooding(request_id=1, name=VOLTAGE)).refused is None
    assert flooding_clouds(family) == set()
