"""Cached serving channels of a variable: always those that would serve it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.resources import Claim
from tests.unit.broker.clouds import LINE, cloud, variable

PATHS = ((("a", "b", "c"), (1, 3)), (("a", "b"), (1,)), (("b", "c"), (3,)), (("b",), ()))
EVERYS: tuple[dict[int, int], ...] = ({0: 1}, {0: 2}, {0: 6}, {2: 3}, {0: 4, 2: 2})
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=20
)


@given(steps=STEPS)
def test_serving_channels_are_those_that_serve_after_any_claims(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    resources = cloud(LINE)
    held: list[Claim] = []
    for path, taken, asked, is_end in steps:
        if is_end and held:
            resources.give_back([held.pop(taken % len(held))])
        else:
            routers, channel_ids = PATHS[path]
            held.append(Claim(variable(1, 30), routers, channel_ids, EVERYS[taken], ("s",)))
            resources.take(held[-1:])
        everys = EVERYS[asked]
        serving = {number for number in (1, 3) if resources.channel(number).serves(1, everys)}
        assert resources.serving_channels(1, everys) == serving
        assert resources.serving_channels(1, everys) == serving
    carried = {number for claim in held for number in claim.channel_ids}
    assert resources.carriers(1) == tuple(sorted(carried))
