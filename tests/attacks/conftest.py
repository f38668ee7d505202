"""Fixtures of the attacks on listeners."""

from __future__ import annotations

import pytest

from tests.protocol.command_parties import Registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """Return certificates of all parties, of one authority."""
    return Registry(tmp_path_factory.mktemp("certificates"))
