"""One bound for the routers of a path in grants and in reports."""

from __future__ import annotations

import pytest

from gridstat.endpoint.path_ledger import PathLedger
from gridstat.model.cloud import NAME_BYTES_MAX
from gridstat.model.errors import MalformedFrame
from gridstat.model.qos import PATH_ROUTERS_MAX, REDUNDANCY_MAX
from gridstat.net.command.endpoint_messages import (
    LEDGER_PATHS_MAX,
    LEDGER_ROUTERS_MAX,
    LedgerEntry,
    PathEntry,
    ReportLedger,
)
from gridstat.net.command.frames import FRAME_BYTES_MAX, decode_command, encode_body


def routers(count: int) -> tuple[str, ...]:
    return tuple(f"c1/r{at}" for at in range(count))


def report(*paths: PathEntry) -> ReportLedger:
    return ReportLedger(entries=(LedgerEntry(subscription_id=1, paths=paths),))


@pytest.mark.parametrize("count", [64, 65, 80, PATH_ROUTERS_MAX, LEDGER_ROUTERS_MAX])
def test_a_path_of_many_routers_can_be_reported(count: int) -> None:
    told = report(PathEntry(name="path 1", routers=routers(count)))
    assert decode_command(encode_body(told)) == told


def test_a_path_of_more_routers_than_can_be_granted_is_malformed() -> None:
    told = report(PathEntry(name="path 1", routers=routers(LEDGER_ROUTERS_MAX + 1)))
    with pytest.raises(MalformedFrame):
        decode_command(encode_body(told))


def test_a_path_of_an_older_contract_without_a_bound_does_not_spoil_a_whole_report() -> None:
    ledger = PathLedger("path 1", routers(LEDGER_ROUTERS_MAX + 100), 3, 3)
    read = decode_command(encode_body(report(ledger.entry())))
    assert isinstance(read, ReportLedger)
    assert read.entries[0].paths[0].routers == routers(LEDGER_ROUTERS_MAX)
    assert read.entries[0].paths[0].delivered == 3


def test_the_longest_ledger_fits_into_a_frame() -> None:
    """Encode the ledger of a contract whose paths were all replaced several times."""
    names = tuple(f"{at:04}".ljust(NAME_BYTES_MAX, "r") for at in range(LEDGER_ROUTERS_MAX))
    paths = tuple(PathEntry(name=f"path {at}", routers=names) for at in range(LEDGER_PATHS_MAX))
    assert len(paths) > REDUNDANCY_MAX
    assert len(encode_body(report(*paths))) < FRAME_BYTES_MAX * 3 // 4
