"""`gridstat flood` and `gridstat subscribe --flooded` as people type them, without a cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gridstat.console.access import Access, KnownBroker
from gridstat.console.cli.flood import (
    broker_of,
    command_of,
    flood,
    flood_lines,
    listed,
    mode_numbers,
)
from gridstat.model.errors import Misuse, UnknownName
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding

NAME = "c2/hill/pmu/frequency"


def access() -> Access:
    folder = Path("nowhere")
    return Access(
        folder=folder,
        cloud="c1",
        broker=("127.0.0.1", 1),
        name_service=("127.0.0.1", 2),
        edges={},
        certificates=CertificateFolder(folder),
        tree={
            "root": KnownBroker(("127.0.0.1", 3)),
            "c1": KnownBroker(("127.0.0.1", 1), "root"),
            "c2": KnownBroker(("127.0.0.1", 4), "root"),
        },
    )


def test_words_become_commands() -> None:
    modes = mode_numbers("2,3")
    assert command_of(NAME, modes, 4, is_stop=False, is_list=False) == SetFlooding(
        request_id=0, name=NAME, modes=(2, 3), every=4
    )
    assert command_of(NAME, (), 1, is_stop=True, is_list=False) == RemoveFlooding(
        request_id=0, name=NAME
    )
    assert command_of("", (), 1, is_stop=False, is_list=True) == ListFlooding(request_id=0)


@pytest.mark.parametrize(
    ("name", "is_stop", "is_list"), [("", False, False), ("", True, False), (NAME, False, True)]
)
def test_words_that_make_no_sense_are_refused_with_a_hint(
    name: str, is_stop: bool, is_list: bool
) -> None:
    with pytest.raises(Misuse) as caught:
        command_of(name, (), 1, is_stop=is_stop, is_list=is_list)
    assert caught.value.hint
    with pytest.raises(Misuse, match="are not numbers"):
        mode_numbers("two")


@pytest.mark.parametrize(
    ("name", "is_stop", "text"),
    [
        (NAME, False, "--list takes no variable"),
        ("", True, "--list does not go with --stop"),
        (NAME, True, "--list does not go with --stop"),
    ],
)
def test_a_list_says_what_it_does_not_go_with(name: str, text: str, *, is_stop: bool) -> None:
    with pytest.raises(Misuse) as caught:
        command_of(name, (), 1, is_stop=is_stop, is_list=True)
    assert caught.value.args[0] == text
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "modes", "every", "is_list"),
    [(NAME, (), 10, False), (NAME, (2,), 10, False), ("", (2,), 1, True), ("", (), 10, True)],
)
def test_words_that_would_be_passed_over_are_refused_with_a_hint(
    name: str, modes: tuple[int, ...], every: int, *, is_list: bool
) -> None:
    with pytest.raises(Misuse, match=r"--every") as caught:
        command_of(name, modes, every, is_stop=not is_list, is_list=is_list)
    assert caught.value.hint


def test_the_broker_that_is_asked_is_the_named_one_or_that_of_the_variables_cloud() -> None:
    assert broker_of(access(), NAME, "").broker == ("127.0.0.1", 4)
    assert broker_of(access(), NAME, "root").broker == ("127.0.0.1", 3)
    assert broker_of(access(), "", "").broker == ("127.0.0.1", 1)
    with pytest.raises(UnknownName, match="no broker nobody"):
        broker_of(access(), NAME, "nobody")


def term(mode: int, every: int, **facts: Any) -> dict[str, Any]:
    plain = {"asked_by": "operator", "overrides_operator": False}
    return {"mode": mode, "level": 1, "every": every, **plain, **facts}


def test_a_flood_in_a_mode_that_is_not_defined_is_listed_as_such() -> None:
    assert list(flood_lines({"name": NAME, "modes": [term(3, 1, is_defined=False)]})) == [
        f"{NAME} floods in mode 3 (not defined: it is never active, and can be stopped), "
        "every event, from depth 1 down"
    ]


def test_people_are_told_in_sentences() -> None:
    facts = {
        "name": NAME,
        "modes": [term(0, 1), term(2, 4, asked_by="parent", overrides_operator=True)],
        "unconfirmed": ["c2/e0"],
        "refusing": {"west": "channel c2/e0→c3/e0 is full", "east": "nobody publishes it"},
        "floodless": ["c2/e1"],
    }
    assert list(flood_lines(facts)) == [
        f"{NAME} floods in all modes, every event, from depth 1 down",
        f"{NAME} floods in mode 2, one slot in 4, from depth 1 down, as a broker above wants "
        "instead of what was asked here",
        "  not yet confirmed by c2/e0",
        "  refused by east: nobody publishes it",
        "  refused by west: channel c2/e0→c3/e0 is full",
        "  of a release that floods nothing: c2/e1",
    ]
    assert list(flood_lines({"name": NAME, "modes": []})) == [f"{NAME} does not flood"]
    assert list(listed({"floods": []})) == ["nothing floods"]
    assert len(list(listed({"floods": [facts, facts]}))) == 12


def test_the_list_of_floods_is_asked_for_page_by_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {"": ("c1/a", "c1/a"), "c1/a": ("c1/b", "")}

    def ask(
        _access: Access, command: ListFlooding, _within_s: float, *, who: str
    ) -> dict[str, Any]:
        name, onward = pages[command.after]
        return {"floods": [{"name": name, "modes": []}], "next": onward}

    monkeypatch.setattr("gridstat.console.cli.flood.ask_once", ask)
    monkeypatch.setattr("gridstat.console.cli.flood.load_access", lambda _: access())
    flood(listing=True)
    assert capsys.readouterr().out == "c1/a does not flood\nc1/b does not flood\n"


def test_a_flood_is_waited_for_as_long_as_a_tree_of_brokers_may_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wait for a tree of height 3: 15 s to look up, and 20 s each to reserve and to commit."""
    asked: list[float | None] = []

    def ask(
        _access: Access, _command: object, within_s: float | None = None, *, who: str
    ) -> dict[str, Any]:
        asked.append(within_s)
        return {"name": NAME, "modes": []}

    monkeypatch.setattr("gridstat.console.cli.flood.ask_once", ask)
    monkeypatch.setattr("gridstat.console.cli.flood.load_access", lambda _: access())
    flood(NAME)
    assert asked[0] is not None
    assert asked[0] >= 15 + 20 + 20
    assert capsys.readouterr().out == f"{NAME} does not flood\n"
