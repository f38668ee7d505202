"""Numbers of disjoint paths, against small graphs that can be counted by hand."""

from __future__ import annotations

from gridstat.model.paths.counting import Steps, count_link_disjoint, count_node_disjoint


def graph(*ways: str) -> Steps:
    steps: dict[str, list[tuple[str, object]]] = {}
    for number, way in enumerate(ways):
        steps.setdefault(way[0], []).append((way[1], number))
    return steps


def links(steps: Steps, starts: str, end: str, count_max: int = 4) -> int:
    return count_link_disjoint(steps, frozenset(starts), end, count_max)


def nodes(steps: Steps, starts: str, end: str, count_max: int = 4) -> int:
    return count_node_disjoint(steps, frozenset(starts), end, count_max)


def test_paths_through_one_router_share_no_channel() -> None:
    steps = graph("am", "bm", "mx", "my", "xz", "yz")
    assert links(steps, "ab", "z") == 2
    assert nodes(steps, "ab", "z") == 1


def test_a_path_found_first_gives_way_to_two_others() -> None:
    steps = graph("ap", "aq", "pq", "pz", "qz", "qr", "rz")
    assert links(steps, "a", "z") == 2
    assert nodes(steps, "a", "z") == 2
    crossing = graph("as", "at", "su", "sv", "tv", "uz", "vz")
    assert nodes(crossing, "a", "z") == 2


def test_counting_ends_at_the_bound() -> None:
    steps = graph("az", "az", "az", "ap", "pz")
    assert links(steps, "a", "z") == 4
    assert links(steps, "a", "z", 3) == 3


def test_without_a_path_nothing_is_counted() -> None:
    assert links(graph("za"), "a", "z") == 0
    assert nodes(graph("za"), "a", "z") == 0
