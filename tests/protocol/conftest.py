"""The two subjects of the forwarding tests: the reference, and the compiled core."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

import pytest

from gridstat.core.reference import ReferenceCore

if TYPE_CHECKING:
    from tests.protocol.grids import MakeCore


@pytest.fixture(params=["reference", "compiled"], scope="session")
def subject(request: pytest.FixtureRequest) -> MakeCore:
    """Makes a core from its limits."""
    if request.param == "reference":
        return ReferenceCore
    return cast("MakeCore", importlib.import_module("gridstat.core._core").Core)
