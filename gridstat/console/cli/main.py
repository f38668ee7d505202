"""The `gridstat` command: its sub-commands, each in a file of its own, put together.

Exit codes: 0 done, 1 the world refused (a port is taken, a process died), 2 asked wrongly.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from gridstat.console.cli import (
    broker,
    certificates,
    cloud,
    error,
    experiment,
    explain,
    host,
    publish,
    router,
    subscribe,
    top,
    up,
)
from gridstat.console.cli.failure import telling

HELP = """The state of an electric power grid, delivered under a contract per subscription.

Start with `gridstat up`, which runs a small grid on this machine; `gridstat host` says what the
machine lacks. Every command explains itself with --help.
"""

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up", help=up.HELP)(telling(up.up))
app.command("broker", help=broker.HELP)(telling(broker.broker))
app.command("router", help=router.HELP)(telling(router.router))
app.command("publish", help=publish.HELP)(telling(publish.publish))
app.command("subscribe", help=subscribe.HELP)(telling(subscribe.subscribe))
app.command("explain", help=explain.HELP)(telling(explain.explain))
app.command("top", help=top.HELP)(telling(top.top))
app.add_typer(cloud.app, name="cloud")
app.command("host", help=host.HELP)(telling(host.host))
app.add_typer(certificates.app, name="certificates")
app.add_typer(experiment.app, name="experiment")
# A code of the thesis is negative, and no option.
app.command("error", help=error.HELP, context_settings={"ignore_unknown_options": True})(
    telling(error.error)
)


def _show_version(*, is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"gridstat {metadata.version('gridstat')}")
        raise typer.Exit


@app.callback()
def gridstat(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and end.",
            is_eager=True,
            callback=lambda asked: _show_version(is_asked=asked),
        ),
    ] = False,
) -> None:
    """Only options that belong to no sub-command; those do the work."""


if __name__ == "__main__":
    app()
