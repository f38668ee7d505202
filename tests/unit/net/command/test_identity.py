"""Identities: role and name, the same from a peer's string and from a certificate's URI."""

from __future__ import annotations

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import LayoutError
from gridstat.net.command.identity import Identity, Role, parse_peer, parse_uri

LETTERS = st.characters(categories=("Lu", "Ll"), include_characters="0123456789_-:")
PARTS = st.text(LETTERS, min_size=1, max_size=12).map(lambda text: normalize("NFC", text))
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def test_a_router_is_known_by_role_and_full_name() -> None:
    identity = parse_uri("gridstat://router/c1/e0")
    assert identity == Identity(Role.ROUTER, "c1/e0")
    assert identity.peer == "router/c1/e0"
    assert identity.cloud == "c1"
    assert identity.file_stem == "router-c1__e0"


@given(st.sampled_from(Role), NAMES)
def test_an_identity_survives_its_uri_and_its_peer_string(role: Role, name: str) -> None:
    identity = Identity(role, name)
    assert identity.uri.isascii()
    assert parse_uri(identity.uri) == identity
    assert parse_peer(identity.peer) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "https://router/c1/e0",
        "gridstat://router",
        "gridstat://router/",
        "gridstat://ROUTER/c1/e0",
        "gridstat://manager/c1/e0",
        "gridstat://router/c1//e0",
        "gridstat://router/c1/%20",
        "gridstat://router/c1/%2A",
        "gridstat://router/c1/%FF",
        "gridstat://router/c1/%5B/x%5D",
        "gridstat://router/c1/..",
        "gridstat://router/c1/e%CC%81",
        "",
    ],
)
def test_a_uri_that_names_nobody_is_refused(uri: str) -> None:
    with pytest.raises(LayoutError):
        parse_uri(uri)


def test_an_unknown_role_is_told_the_known_ones() -> None:
    with pytest.raises(LayoutError, match="broker, router, endpoint, operator"):
        parse_peer("boss/c1")
