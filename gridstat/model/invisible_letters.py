"""Letters, marks and signs without a shape: no name may have one, and no screen shows one."""

from __future__ import annotations

from typing import Final

_SHAPELESS: Final = (
    (0x034F, 0x034F),  # Grapheme joiner.
    (0x115F, 0x1160),  # Fillers of Hangul; 3164 and FFA0 too.
    (0x17B4, 0x17B5),  # Inherent vowels of Khmer.
    (0x180B, 0x180F),  # Selectors of Mongolian.
    (0x2800, 0x2800),  # Braille without a dot.
    (0x2D7F, 0x2D7F),  # Joiner of Tifinagh.
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # Variation selectors; the others are among the tags at the end.
    (0xFFA0, 0xFFA0),
    (0xFFFC, 0xFFFC),  # Place of an object.
    (0x1107F, 0x1107F),  # Joiner of Brahmi numbers.
    (0x13440, 0x13442),  # Mirror and blanks of hieroglyphs.
    (0x16FE4, 0x16FE4),  # Filler of Khitan.
    (0x1BC9D, 0x1BC9D),  # Selector of Duployan.
    (0x1D159, 0x1D159),  # Null notehead.
    (0x1DA9B, 0x1DAAF),  # Modifiers of SignWriting.
    (0xE0000, 0xE0FFF),
)
INVISIBLE: Final = frozenset(
    chr(code) for first, last in _SHAPELESS for code in range(first, last + 1)
)
"""Letters, marks and signs of Unicode that have no shape: Python counts them as printable.

Signs that stack the letters beside them, as in Khmer, are not among them: the stack is visible.
"""
