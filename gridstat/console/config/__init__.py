"""Files become settings, settings become plain values; nothing else ever sees a setting.

May import model and `console.grid`. Start reading at `grid_file.py`.
"""

from gridstat.console.config.grid_file import (
    DEFAULT_GRID_FILE,
    default_grid_text,
    grid_from_text,
    load_grid,
    read_grid_text,
)

__all__ = [
    "DEFAULT_GRID_FILE",
    "default_grid_text",
    "grid_from_text",
    "load_grid",
    "read_grid_text",
]
