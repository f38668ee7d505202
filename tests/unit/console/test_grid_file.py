"""A good file becomes a grid; a bad one becomes one message with file, key and hint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gridstat.console.config import default_grid_text, grid_from_text, load_grid
from gridstat.console.config.complaints import known_keys
from gridstat.console.config.settings import TABLES
from gridstat.console.grid import Endpoint, EventChannel, matches
from gridstat.model.errors import ConfigurationError
from gridstat.model.rate_law import Period

ROUTERS = '[[router]]\nname = "west"\n[[router]]\nname = "east"\n'
CHANNEL = '[[channel]]\nfrom = "west"\nto = "east"\n'
PMU = (
    '[[pmu]]\nname = "north/hill/pmu-1"\nrouter = "west"\nrate = "30/s"\n'
    'quantities = ["frequency"]\n'
)
SUBSCRIBER = '[[subscriber]]\nname = "display"\nrouter = "east"\nvariables = ["**"]\n'
WHOLE = ROUTERS + CHANNEL + PMU + SUBSCRIBER
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


def complaint(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        grid_from_text(text, file="grid.toml")
    return str(caught.value)


def test_a_file_becomes_plain_values() -> None:
    grid = grid_from_text(WHOLE, file="grid.toml")
    assert [router.name for router in grid.routers] == ["west", "east"]
    assert grid.routers[0].endpoint == Endpoint("127.0.0.1", 0, 0)
    assert grid.channels == (EventChannel("west", "east"),)
    assert grid.pmus[0].period == Period(1, 30)
    assert grid.subscribers[0].every == 1


def test_the_built_in_grid_is_a_good_file() -> None:
    grid = grid_from_text(default_grid_text(), file="default_grid.toml")
    assert len(grid.routers) == 3
    assert {pmu.period for pmu in grid.pmus} == {Period(1, 30), Period(1, 60)}
    assert len({subscriber.every for subscriber in grid.subscribers}) == 4


def test_the_annotated_file_in_the_reference_is_a_good_file() -> None:
    [text] = re.findall(r"```toml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    grid = grid_from_text(text, file="config.md")
    assert grid.channels
    assert grid.subscribers


def test_every_key_of_the_settings_stands_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    written = set(re.findall(r"^(\w+) = ", text, re.MULTILINE))
    tables = {name: known_keys((name, 0)) for name in TABLES}
    assert {"name", "host"} <= written
    assert {name: set(keys) - written for name, keys in tables.items()} == {
        key: set() for key in tables
    }


@pytest.mark.parametrize(
    ("rate", "period"),
    [("30/s", Period(1, 30)), ("1/5s", Period(5, 1)), ("30000/1001s", Period(1_001, 30_000))],
)
def test_a_rate_is_an_exact_period(rate: str, period: Period) -> None:
    grid = grid_from_text(WHOLE.replace("30/s", rate), file="grid.toml")
    assert grid.pmus[0].period == period


def test_the_environment_moves_a_whole_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDSTAT_GRID_HOST", "::1")
    grid = grid_from_text(WHOLE, file="grid.toml")
    assert grid.routers[0].endpoint.host == "::1"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        (WHOLE.replace('"west"\n[[router]]', '"west"\ndata_prt = 1\n[[router]]'),
         'router[0].data_prt ("west"): unknown key', "did you mean `data_port`?"),
        (WHOLE.replace('"west"\n[[router]]', '"west"\ndata_port = 70000\n[[router]]'),
         'router[0].data_port ("west"): 70000', "1 to 65535"),
        (WHOLE.replace('"west"\n[[router]]', '"west"\ndata_port = "80"\n[[router]]'),
         "router[0].data_port (\"west\"): '80' is not a whole number", "without quotes"),
        (WHOLE.replace('"west"\n[[router]]', '"west"\nhost = "localhost"\n[[router]]'),
         "router[0].host (\"west\"): 'localhost': not an IP address", "127.0.0.1"),
        (WHOLE.replace('rate = "30/s"', 'rate = "30 Hz"'),
         "pmu[0].rate (\"north/hill/pmu-1\"): '30 Hz': not a rate", "write `30/s`"),
        (WHOLE.replace('rate = "30/s"\n', ""), 'pmu[0].rate ("north/hill/pmu-1"): missing',
         "needed in every [[pmu]]"),
        (WHOLE.replace('"frequency"', '"current"'), "pmu[0].quantities[0]", "voltage-magnitude"),
        (WHOLE.replace("north/hill/pmu-1", "pmu-1"), "pmu[0].name", "three levels"),
        (WHOLE.replace('to = "east"', 'to = "south"'),
         'channel[0].to: there is no router "south"', "routers of this file: west, east"),
        (WHOLE.replace('to = "east"', 'to = "west"'), "channel[0].to", "joins two routers"),
        (WHOLE + CHANNEL, 'channel[1]: from "west" to "east" is already channel[0]', "way back"),
        (WHOLE + PMU, 'pmu[1].name: "north/hill/pmu-1" is already pmu[0]', "its own name"),
        (WHOLE.replace("**", "south/*"), "subscriber[0].variables[0]", "`*` stands within"),
        (WHOLE.replace('variables = ["**"]', 'variables = ["**"]\nevery = 0'),
         "subscriber[0].every", "the least that works is 1"),
        (WHOLE + "mtu_bytes = 3\n", "subscriber[0].mtu_bytes", "known here: name, router"),
        ("routers = 1\n" + WHOLE, "routers: unknown key", "did you mean `router`?"),
        ("router = 1\n", "router: 1 is not a list", "[[router]]"),
        ("", "router: missing", "[[router]]"),
        ("router = [", "grid.toml: not TOML", "mend that line"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_key_and_hint(text: str, key: str, hint: str) -> None:
    message = complaint(text)
    assert message.startswith(f"grid.toml: {key.removeprefix('grid.toml: ')}")
    assert hint in message
    assert "(4100)" in message


def test_two_users_of_one_port_are_told_apart() -> None:
    text = WHOLE.replace('"west"\n', '"west"\ndata_port = 9\n', 1) + "urgent_port = 9\n"
    message = complaint(text)
    assert 'subscriber[0].urgent_port ("display"): port 9 of 127.0.0.1 is already' in message
    assert "router[0].data_port" in message


def test_several_mistakes_are_one_message() -> None:
    text = WHOLE.replace('name = "west"', 'name = "west"\nhost = 1\ndata_port = -1', 1)
    assert "(and 1 more mistake in the file)" in complaint(text)


def test_a_missing_file_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file") as caught:
        load_grid(tmp_path / "none.toml")
    assert "--show-default" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("**", "a/b/c/d", True),
        ("a/*/c/d", "a/b/c/d", True),
        ("a/*", "a/b/c/d", False),
        ("**/d", "a/b/c/d", True),
        ("a/**", "ab/c", False),
        ("a.c", "abc", False),
    ],
)
def test_a_star_stands_within_a_level_and_two_for_any(
    pattern: str, name: str, *, is_match: bool
) -> None:
    assert matches(pattern, name) == is_match
