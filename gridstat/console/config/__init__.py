"""Files become settings, settings become plain values; nothing else ever sees a setting.

May import model and `console.grid`. Start reading at `grid_file.py`.
"""

from gridstat.console.config.grid_file import default_grid_text, load_default_grid, load_grid

__all__ = ["default_grid_text", "load_default_grid", "load_grid"]
