"""The data plane: a status router around the compiled core.

May import model, net and core. `router_agent.py` handles the messages of broker and end-points;
`status_router.py` passes the ordered paths and channels to the core as flat rows.
"""

from gridstat.core.rows import BASELINE, ChannelSpec, Limits
from gridstat.router.commit_queue import CommitQueue
from gridstat.router.edge_router import EdgeBounds
from gridstat.router.path_table import CarriedVariable, Path, PathTable
from gridstat.router.router_agent import RouterAgent, RouterFacts
from gridstat.router.status_router import StatusRouter, TableChange

__all__ = [
    "BASELINE",
    "CarriedVariable",
    "ChannelSpec",
    "CommitQueue",
    "EdgeBounds",
    "Limits",
    "Path",
    "PathTable",
    "RouterAgent",
    "RouterFacts",
    "StatusRouter",
    "TableChange",
]
