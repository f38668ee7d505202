"""Shortest and disjoint paths within latency bounds.

Start reading at `search.py`; `graph.py` is the searched graph, `flow.py` finds disjoint paths
without bounds, `branching.py` finds them with bounds.
"""

from gridstat.model.paths.graph import Arc, PathGraph
from gridstat.model.paths.path_answers import Found, FoundPath, NotFound
from gridstat.model.paths.search import disjoint_paths

__all__ = ["Arc", "Found", "FoundPath", "NotFound", "PathGraph", "disjoint_paths"]
