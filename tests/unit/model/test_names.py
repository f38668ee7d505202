"""Names of variables, routers, end-points and clouds: the characters that they may have."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.cloud import Router, check_name, check_pattern
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Callable

LEGAL = [
    "c1",
    "c1/north-3/pmu_1/voltage.magnitude",
    "c1/10.0.0.1:7100",
    "c1/...",
    "c1/.hidden",
    "c1/-dash",
    "Österreich/Kärnten/Straße",
    "東京/変電所-1/電圧",
    "россия/подстанция",
    "भारत/बिजली",  # Vowel signs are marks that no letter can be composed with.
    "c1/q\u0307",  # q has no composed form with this mark.
]
ILLEGAL = [
    "",
    "/",
    "/c1",
    "c1/",
    "c1//x",
    ".",
    "..",
    "c1/./x",
    "c1/../x",
    "c1/..",
    "c1/mallory/[/x]",
    "c1/a b",
    "c1/a\tb",
    "c1/a\x1b[2J",
    "c1/a\\b",
    "c1/a+b",
    "c1/a@b",
    "c1/a%2fb",
    "c1/*",
    "c1/a\u200bb",  # Zero width space.
    "c1/a\u202eb",  # Override of the writing direction.
    "c1/a\u3164b",  # Hangul filler: a letter without a shape.
    "c1/\u0301a",  # A mark without a letter before it.
    "c1/1\u0301",
    "c1/e\u0301",  # NFC writes one letter.
    "c1/\u212b",  # Ångström sign: NFC writes the letter Å.
    "c1/₁",
    "c1/⚡",
    "c1/\ud800",
    "c1/x\udc80y",
    "a" * 256,
    "/".join("a" * 17),
]


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("check", [check_name, check_pattern])
def test_a_name_of_letters_digits_and_four_signs_is_legal_in_any_script(
    check: Callable[[str], str], name: str
) -> None:
    assert check(name) == name


@pytest.mark.parametrize("name", ILLEGAL)
def test_any_other_name_is_refused_by_a_layout_error_that_can_be_printed(name: str) -> None:
    with pytest.raises(LayoutError) as refused:
        check_name(name)
    str(refused.value).encode()


@pytest.mark.parametrize("name", [name for name in ILLEGAL if "*" not in name])
def test_a_pattern_has_no_part_that_is_no_name(name: str) -> None:
    with pytest.raises(LayoutError) as refused:
        check_pattern(name)
    str(refused.value).encode()


@pytest.mark.parametrize("pattern", ["**", "*", "c1/**", "c1/*/x", "c1/*/**", "東京/*"])
def test_a_pattern_may_have_stars_as_whole_parts(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["c1/[/*", "c1/**/x", "c1/a*", "c1/../*", "c1/\ud800/*"])
def test_a_pattern_with_other_signs_or_stars_elsewhere_is_refused(pattern: str) -> None:
    with pytest.raises(LayoutError):
        check_pattern(pattern)


@given(st.text(max_size=20))
def test_a_legal_name_is_in_nfc_and_has_no_sign_that_a_screen_or_a_file_system_obeys(
    name: str,
) -> None:
    try:
        check_name(name)
    except LayoutError:
        return
    assert unicodedata.normalize("NFC", name) == name
    assert name.isprintable()
    assert not set(name) & set("[]\\<>|\"'`$;&*?{}()~#%+@! ")
    assert not {"", ".", ".."} & set(name.split("/"))


def test_a_router_of_an_old_journal_keeps_the_name_that_was_legal_then() -> None:
    assert Router("c1/north[3]").name == "c1/north[3]"
    with pytest.raises(LayoutError):
        Router("c1//x")
