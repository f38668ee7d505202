"""Text as a terminal may show it: whatever has no shape of its own is shown as an escape."""

from __future__ import annotations

import re
import unicodedata

import pytest

from gridstat.console.shown_text import shown_text

SHAPELESS = [
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x2800, 0x2D7F, 0x3164, 0xFE0F, 0xFFA0),
    *(0xFFFC, 0x1107F, 0x13440, 0x13441, 0x13442, 0x16FE4, 0x1BC9D, 0x1D159, 0x1DA9B, 0x1DAAF),
    *(0xE0041, 0xE0100),
]
"""Characters that nobody sees: joiners, fillers, blanks, selectors and modifiers."""
NAMED_SHAPELESS = re.compile(
    r"\b(BLANK|(CONSONANT|NUMBER|GRAPHEME) JOINER|SCRIPT FILLER|HANGUL.* FILLER"
    r"|(VARIATION|LETTER) SELECTOR|VOWEL INHERENT|NULL NOTEHEAD|OBJECT REPLACEMENT"
    r"|MIRROR HORIZONTALLY|(FILL|ROTATION) MODIFIER|INVISIBLE)\b"
)
"""Names in Unicode of characters without a shape, whatever version of Unicode Python has."""
VISIBLE_BLANK = "\u2422"
"""BLANK SYMBOL, a crossed b that stands for a blank."""


@pytest.mark.parametrize("code", SHAPELESS, ids=hex)
def test_a_character_without_a_shape_is_shown_as_an_escape(code: int) -> None:
    escape = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    assert shown_text(f"c1/a{chr(code)}b") == f"c1/a{escape}b"


def test_no_character_whose_name_says_that_it_has_no_shape_is_left_as_it_is() -> None:
    left = {
        each: unicodedata.name(each)
        for each in map(chr, range(0x110000))
        if NAMED_SHAPELESS.search(unicodedata.name(each, "")) and shown_text(each) == each
    }
    assert left.keys() == {VISIBLE_BLANK}


@pytest.mark.parametrize("text", ["c1/Umspannwerk Süd", "Ω 電圧 напряжение", "⠁ 가 ក្ខ 🔌"])
def test_letters_and_signs_of_all_scripts_are_shown_as_they_are(text: str) -> None:
    assert shown_text(text) == text
