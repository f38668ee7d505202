"""Labels of paths: those over channels beside each other differ, all others stay as they were."""

from __future__ import annotations

import pytest

from gridstat.model.path_label import named_channels, path_label, path_steps, path_text

WAY = ("c1/e0", "c1/i0", "c1/e1")


@pytest.mark.parametrize("names", [(), ("", ""), ("",)])
def test_a_path_without_named_channels_is_labelled_by_its_routers(names: tuple[str, ...]) -> None:
    assert path_label(WAY, names) == "c1/e0>c1/i0>c1/e1"
    assert path_text(WAY, names) == "c1/e0 → c1/i0 → c1/e1"


def test_the_name_of_a_channel_stands_before_the_router_that_it_leads_to() -> None:
    assert path_label(WAY, ("", "north")) == "c1/e0>c1/i0>#north>c1/e1"
    assert path_text(WAY, ("", "north")) == "c1/e0 → c1/i0 →#north c1/e1"
    assert path_steps(WAY, ("south", "")) == ["c1/e0", "#south", "c1/i0", "c1/e1"]
    assert path_label(WAY, ["south"]) == "c1/e0>#south>c1/i0>c1/e1"


def test_names_beyond_the_last_router_are_nobody_s() -> None:
    assert path_label((), ("north",)) == path_text((), ("north",)) == ""
    assert path_label(WAY[:1], ("north", "south")) == "c1/e0"


def test_channels_of_which_none_has_a_name_are_not_listed() -> None:
    assert named_channels(["", ""]) == ()
    assert named_channels(["", "north"]) == ("", "north")
