"""Files become settings, settings become plain values; nothing else ever sees a setting.

May import model and `console.grid`. Start reading at `toml_file.py`, then `cloud_file.py` (a
broker's), `router_file.py` (a router's) and `grid_file.py` (the whole of `gridstat up`).
"""
