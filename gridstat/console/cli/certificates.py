"""`gridstat certificates`: the grid's own authority, and a certificate for each party."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gridstat.console.cli.command_errors import print_plainly, reporting_errors
from gridstat.console.fitted_table import Column, FittedTable, print_table
from gridstat.console.terminals import TERMINALS, TERMINALS_MAX, terminal_names
from gridstat.net.command.certificate_authority import AUTHORITY_DAYS, CERTIFICATE_DAYS
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role, parse_peer

if TYPE_CHECKING:
    from gridstat.net.command.certificate_folder import CertificateFiles, CertificateSummary

HELP = """Make and show the certificates by which all parties of a grid know each other.

A party is written role/name: broker/c1, router/c1/e0, endpoint/c1/north/pmu-1, operator/c1/alice.
Keep ca.key away from the machines that run the grid; each of them needs ca.pem and its own pair.

Examples:

  gridstat certificates init

  gridstat certificates issue router/c1/e0 --host e0.example.org --host 10.0.0.7

  gridstat certificates terminals c1

  gridstat certificates show --json
"""
DEFAULT_FOLDER = Path("certificates")
TERMINAL_NUMBER_MAX = 9_999

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Where the files are.")]
Party = Annotated[str, typer.Argument(help="Who it is for, as role/name.", metavar="ROLE/NAME")]
Days = Annotated[int, typer.Option("--days", help="How long it is good for.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


@app.command("init", help="Make an authority: ca.pem for everybody, ca.key for you alone.")
@reporting_errors
def init(
    folder: Folder = DEFAULT_FOLDER,
    days: Days = AUTHORITY_DAYS,
    force: Annotated[
        bool, typer.Option("--force", help="Replace one; all its certificates become worthless.")
    ] = False,
    json: AsJson = False,
) -> None:
    certificates = CertificateFolder(folder)
    certificates.create_authority(days=days, replace=force)
    summary = certificates.summary(folder / "ca.pem")
    text = f"authority {folder / 'ca.pem'}, valid until {summary.not_after:%Y-%m-%d}"
    _print({"authority": str(folder / "ca.pem"), "key": str(folder / "ca.key")}, text, json=json)


@app.command("issue", help="Make a key and a certificate for one party.")
@reporting_errors
def issue(
    party: Party,
    folder: Folder = DEFAULT_FOLDER,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A DNS name or address of its host.")
    ] = None,
    days: Days = CERTIFICATE_DAYS,
    force: Annotated[
        bool, typer.Option("--force", help="Replace certificate and key if there are any.")
    ] = False,
    json: AsJson = False,
) -> None:
    certificates = CertificateFolder(folder)
    files = certificates.issue(parse_peer(party), hosts=host or (), days=days, replace=force)
    _print_files(certificates, files, json=json)


@app.command(
    "terminals",
    help="Make keys and certificates for the terminals of a cloud: the end-points "
    "CLOUD/terminal-1 to -8, as which commands attach without --as. Those that are "
    "there stay. A second host gets others: --first 9.",
)
@reporting_errors
def terminals(
    cloud: Annotated[str, typer.Argument(help="The cloud's name, as c1.")],
    folder: Folder = DEFAULT_FOLDER,
    first: Annotated[
        int, typer.Option("--first", min=1, max=TERMINAL_NUMBER_MAX, help="The first's number.")
    ] = 1,
    count: Annotated[
        int, typer.Option("--count", min=1, max=TERMINALS_MAX, help="How many.")
    ] = TERMINALS,
    json: AsJson = False,
) -> None:
    certificates = CertificateFolder(folder)
    for name in terminal_names(cloud, first=first, count=count):
        files = certificates.ensure(Identity(Role.ENDPOINT, name))
        _print_files(certificates, files, json=json)


@app.command("renew", help="Date a party's certificate anew; its key and hosts stay.")
@reporting_errors
def renew(
    party: Party,
    folder: Folder = DEFAULT_FOLDER,
    days: Days = CERTIFICATE_DAYS,
    json: AsJson = False,
) -> None:
    certificates = CertificateFolder(folder)
    _print_files(certificates, certificates.renew(parse_peer(party), days=days), json=json)


@app.command("show", help="List the certificates of a folder: role, name, dates.")
@reporting_errors
def show(folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    certificates = CertificateFolder(folder)
    found, console = certificates.summaries(), Console()
    if json:
        text = [_described(certificates, summary) for summary in found]
        print_plainly(console, json_text.dumps({"certificates": text}))
        return
    if not found:
        print_plainly(console, f"{folder} holds no certificate; begin with certificates init")
        return
    table = FittedTable(
        Column("role"),
        Column("name"),
        Column("until", 1),
        Column(""),
        Column("hosts", 2, prose_min=16),
    )
    for summary in found:
        state = summary.state(certificates.now())
        table.add_row(
            summary.role or "authority",
            summary.name,
            f"{summary.not_after:%Y-%m-%d %H:%M}",
            Text(state, "green" if state == "valid" else "yellow"),
            ", ".join(summary.hosts),
        )
    print_table(console, table)


def _print_files(certificates: CertificateFolder, files: CertificateFiles, *, json: bool) -> None:
    summary = certificates.summary(files.certificate)
    text = (
        f"{summary.role}/{summary.name}: {files.certificate} and {files.key}, "
        f"valid until {summary.not_after:%Y-%m-%d}"
    )
    facts = {**_described(certificates, summary), "file": str(files.certificate)}
    _print({**facts, "key": str(files.key)}, text, json=json)


def _print(facts: dict[str, object], text: str, *, json: bool) -> None:
    print_plainly(Console(), json_text.dumps(facts) if json else text)


def _described(certificates: CertificateFolder, summary: CertificateSummary) -> dict[str, object]:
    return {
        **asdict(summary),
        "not_before": summary.not_before.isoformat(),
        "not_after": summary.not_after.isoformat(),
        "state": summary.state(certificates.now()),
    }
