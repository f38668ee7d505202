"""The two subjects of the forwarding tests: the reference, and the compiled core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.core._core import Core
from gridstat.core.reference import ReferenceCore

if TYPE_CHECKING:
    from tests.protocol.grids import MakeCore


@pytest.fixture(params=["reference", "compiled"], scope="session")
def subject(request: pytest.FixtureRequest) -> MakeCore:
    """Makes a core from its limits."""
    return ReferenceCore if request.param == "reference" else Core
