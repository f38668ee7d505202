"""The data plane: a status router around the compiled core.

May import model, net and core. Paths as commanded (`path_table.py`) become flat rows
(`forwarding_table.py`), and `status_router.py` hands their differences to the core.
"""

from gridstat.core.rows import BASELINE, ChannelSpec, Limits
from gridstat.router.commit_queue import CommitQueue
from gridstat.router.path_table import CarriedVariable, Path, PathTable
from gridstat.router.status_router import StatusRouter, TableChange

__all__ = [
    "BASELINE",
    "CarriedVariable",
    "ChannelSpec",
    "CommitQueue",
    "Limits",
    "Path",
    "PathTable",
    "StatusRouter",
    "TableChange",
]
