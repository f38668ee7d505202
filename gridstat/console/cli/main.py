"""The `gridstat` command: its sub-commands, each in a file of its own, put together.

Exit codes: 0 done, 1 failure (a port is taken, a process died), 2 wrong usage; of daemons also 70
(a bug in gridstat) and 75 (another broker may be in charge); of `up` 130 (two Ctrl-C).
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Annotated, Any, Final, TypeAlias

import typer
from typer.core import TyperGroup

from gridstat.console.cli.command_errors import reporting_errors
from gridstat.console.private_files import private_files

# Releases of typer differ in whose `Context` and `Command` these are.
Context: TypeAlias = Any
Command: TypeAlias = Any

HELP = """The state of an electric power grid, delivered under a contract per subscription.

Start with `gridstat up`, which runs a small grid on this machine; `gridstat host` says what the
machine lacks. Every command explains itself with --help.
"""
COMMANDS: Final = (
    "up",
    "broker",
    "router",
    "publish",
    "subscribe",
    "recorder",
    "pipeline",
    "find",
    "explain",
    "tree",
    "top",
    "flood",
    "access",
    "cloud",
    "certificates",
    "host",
    "experiment",
    "error",
)
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


class CommandsOnDemand(TyperGroup):
    """Import each command when it is called: a router need not load what a broker needs."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None


def load_command(name: str) -> Command:
    """The command of the module of that name: its `app`, or the one function that it is."""
    module = import_module(f"gridstat.console.cli.{name}")
    lone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if hasattr(module, "app"):
        # A Typer of one group is that group only beside another command.
        lone.add_typer(module.app, name=name)
        lone.command("nothing")(lambda: None)
        group = typer.main.get_group(lone)
        return group.commands[name]
    # A code of the thesis is negative, and no option.
    context = {**CONTEXT, "ignore_unknown_options": name == "error"}
    lone.command(name, help=module.HELP, context_settings=context)(
        reporting_errors(getattr(module, name))
    )
    return typer.main.get_command(lone)


app = typer.Typer(
    cls=CommandsOnDemand,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


def _show_version(*, is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"gridstat {metadata.version('gridstat')}")
        raise typer.Exit


@app.callback()
def gridstat(
    context: typer.Context,
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
    """Handle the options that belong to no sub-command; the sub-commands do the work."""
    context.with_resource(private_files())  # Any command may make keys, and daemons much more.


if __name__ == "__main__":
    app()
