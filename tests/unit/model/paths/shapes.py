"""Small clouds, drawn as text: a channel is `a-b` both ways or `a>b` one way."""

from __future__ import annotations

import time

from gridstat.model.paths import Arc, Found, NotFound, PathGraph, disjoint_paths

WIDE_US = 1_000_000


def cloud(drawing: str, **router_latency_us: int) -> PathGraph:
    """Parse channels of ends, cost and latency, such as `a>b:3:10`; both default to 1.

    Channels are numbered from 1 in the order drawn; a two-way word makes two.
    """
    arcs: list[Arc] = []
    for word in drawing.split():
        ends, *numbers = word.split(":")
        cost, latency_us = [*map(int, numbers), 1, 1][:2]
        one, other = ends.split("-" if "-" in ends else ">")
        arcs.append(Arc(len(arcs) + 1, one, other, cost, latency_us))
        if "-" in ends:
            arcs.append(Arc(len(arcs) + 1, other, one, cost, latency_us))
    return PathGraph(arcs, router_latency_us)


def search(
    graph: PathGraph, sources: str, targets: str, *bounds_us: int, **masks: object
) -> Found | NotFound:
    """A search between routers of one letter each."""
    return disjoint_paths(
        graph,
        list(sources),
        list(targets),
        bounds_us or (WIDE_US,),
        clock=time.thread_time,
        **masks,  # type: ignore[arg-type]
    )


def ways(answer: Found | NotFound) -> list[str]:
    """Return the routers of each path as one text."""
    assert isinstance(answer, Found), answer
    return ["".join(path.routers) for path in answer.paths]
