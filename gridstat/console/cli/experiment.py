"""`gridstat experiment`: rerun what the sources measured, and what we promise, on this machine.

The experiments live in the source tree (`benchmarks/`), not in the package, so they are imported
when asked for.
"""

from __future__ import annotations

import importlib
import json as json_text
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import gridstat
from gridstat.console.cli.command_errors import (
    EXIT_FAILURE,
    print_failure,
    print_plainly,
    reporting_errors,
)
from gridstat.console.cli.options import COUNT_MAX, SECONDS_MAX
from gridstat.console.fitted_table import Column, FittedTable, print_table
from gridstat.model.errors import GridStatError, Misuse, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.experiments import Experiment, Result

MODULE = "benchmarks.experiments"
SHORT = ("runs", "seconds", "only")
"""Parameters with an option of their own."""
WITHDRAWN = {
    "split": (
        'the experiment "split" is withdrawn until it measures the compiled router',
        "it traced a hop in plain Python; `gridstat experiment run base` measures the compiled "
        "router's own share of the latency, as s0_local_mean_us and s3_local_mean_us",
    ),
}
"""Experiments that existed and no longer run: the error and its hint, by name."""
HELP = """Rerun an experiment of the sources, or of our own promises, on this machine.

Examples:

  gridstat experiment list

  gridstat experiment run forwarding --json

  gridstat experiment run hops --runs 3 --set routers=1,4,7
"""
RUN_HELP = """Measure, show a table, and end with one JSON line of flat figures (with --json).

Progress goes to standard error. Every experiment has parameters, listed by `gridstat experiment
list`; --runs, --seconds and --only are short for the commonest.

Examples:

  gridstat experiment run forwarding --json

  gridstat experiment run forwarding --only single --runs 5
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command("list", help="List the experiments and their parameters.")
@reporting_errors
def list_experiments(
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    console = Console()
    for experiment in load_experiments().values():
        if json:
            print_plainly(console, json_text.dumps(described(experiment)))
            continue
        print_plainly(console, f"{experiment.name}: {experiment.summary}")
        for parameter in experiment.parameters:
            default = f"--set {parameter.name}={parameter.default}"
            print_plainly(console, f"    {default:<32} {parameter.summary}")


@app.command("run", help=RUN_HELP)
@reporting_errors
def run_experiment(
    name: Annotated[str, typer.Argument(help="Which one; see `gridstat experiment list`.")],
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, max=COUNT_MAX, help="Interleaved repetitions.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, max=SECONDS_MAX, help="Length of one cell.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only these cells, comma-separated.")] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Folder for raw samples (Parquet), where there are any.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The largest sizes too, if any.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any parameter, as name=value.")
    ] = None,
) -> None:
    experiment = find_experiment(load_experiments(), name)
    folder = None if samples is None else str(samples.resolve())
    options = options_of(
        settings or (),
        runs=runs,
        seconds=seconds,
        only=only,
        samples=folder,
        full=1 if full else None,
    )
    result = _measured(experiment, options)
    # Standard output is for the one line of JSON if that is asked for, and for people if not.
    _show(Console(stderr=json), result)
    if json:
        facts = {"experiment": name, "command": command_of(name, options), **flat_figures(result)}
        print_plainly(Console(), json_text.dumps(facts))
    if result.missed:
        for bound in result.missed:
            print_plainly(Console(stderr=True), f"missed: {bound}")
        raise typer.Exit(EXIT_FAILURE)


def load_experiments() -> Mapping[str, Experiment]:
    """The experiments of the source tree that this gridstat, or the current folder, belongs to."""
    for root in (Path(gridstat.__file__).resolve().parent.parent, Path.cwd()):
        if is_source_tree(root) and str(root) not in sys.path:
            sys.path.append(str(root))
    try:
        found: Mapping[str, Experiment] = importlib.import_module(MODULE).EXPERIMENTS
    except ModuleNotFoundError as error:
        if error.name is None or not MODULE.startswith(error.name):
            raise
        raise Misuse(
            "the experiments are not installed with the package",
            hint="run this in a clone of the source tree, where `benchmarks/` lies: "
            "`make bench`, or .venv/bin/gridstat experiment list",
        ) from error
    return found


def is_source_tree(folder: Path) -> bool:
    return all((folder / part).is_dir() for part in ("benchmarks/experiments", "gridstat/core"))


def find_experiment(known: Mapping[str, Experiment], name: str) -> Experiment:
    if name in WITHDRAWN:
        message, hint = WITHDRAWN[name]
        raise UnknownName(message, hint=hint)
    if name not in known:
        raise UnknownName(f'there is no experiment "{name}"', hint=f"there are {', '.join(known)}")
    return known[name]


def options_of(settings: Sequence[str], **short: float | str | None) -> dict[str, float | str]:
    """Return the given options by parameter name; the experiment itself checks names and types."""
    options: dict[str, float | str] = {
        name: value for name, value in short.items() if value is not None
    }
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Misuse(f"--set {setting}: no value", hint="write it as --set name=value")
        options[name.strip()] = value.strip()
    return options


def command_of(name: str, options: Mapping[str, float | str]) -> str:
    """Return the command that repeats the measurement; the folder of its samples is left out."""
    arguments = ["gridstat", "experiment", "run", name]
    for parameter, value in options.items():
        if parameter == "full" and value == 1:
            arguments.append("--full")
        elif parameter in SHORT:
            arguments += [f"--{parameter}", str(value)]
        elif parameter != "samples":
            arguments += ["--set", f"{parameter}={value}"]
    return shlex.join([*arguments, "--json"])


def described(experiment: Experiment) -> dict[str, object]:
    return {
        "experiment": experiment.name,
        "summary": experiment.summary,
        "parameters": {
            parameter.name: {"default": parameter.default, "summary": parameter.summary}
            for parameter in experiment.parameters
        },
    }


def flat_figures(result: Result) -> dict[str, Any]:
    """The figures, and for every source that printed one, its number and whether the two compare.

    A figure that S0 and S3 both printed has fields of its own for each of them. A figure with a
    bound has fields for the bound and for whether it is met.
    """
    flat: dict[str, Any] = dict(result.figures)
    for comparison in result.comparisons:
        name = f"{comparison.figure}_{comparison.source_id}"
        flat[f"{name}_source"] = comparison.source
        flat[f"{name}_theirs"] = comparison.theirs
        flat[f"{name}_comparable"] = comparison.comparable
        flat[f"{name}_reason"] = comparison.reason
    for bound in result.bounds:
        flat[f"{bound.figure}_at_most"] = bound.at_most
        flat[f"{bound.figure}_met"] = bound.met
    if result.bounds:
        flat["bounds_met"] = "no" if result.missed else "yes"
    return flat


def _measured(experiment: Experiment, options: Mapping[str, float | str]) -> Result:
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(experiment.name, total=1.0)

        def progress(share: float, text: str) -> None:
            bar.update(task, completed=share, description=f"{experiment.name}: {text}")

        try:
            return experiment.run(options, progress)
        except KeyboardInterrupt as error:
            raise typer.Exit(EXIT_FAILURE) from error
        except GridStatError:
            raise  # A wrong parameter is reported as by every other command.
        except Exception as error:
            if not hasattr(error, "hint"):
                raise
            bar.stop()
            print_failure(error)
            raise typer.Exit(EXIT_FAILURE) from error


def _show(console: Console, result: Result) -> None:
    if result.table:
        table = FittedTable(*result.columns, title=result.title)
        for row in result.table:
            table.add_row(*row)
        print_table(console, table)
    if result.comparisons:
        _show_comparisons(console, result)


def _show_comparisons(console: Console, result: Result) -> None:
    """Print the figures beside those of the sources; each reason is printed once, below the
    figures."""
    reasons = list(dict.fromkeys(comparison.reason for comparison in result.comparisons))
    table = FittedTable(
        Column("figure", prose_min=16),
        Column("source", 1),
        *map(Column, ("theirs", "ours", "comparable")),
        title="beside the sources",
    )
    for comparison in result.comparisons:
        table.add_row(
            comparison.figure,
            comparison.source,
            f"{comparison.theirs:g}",
            f"{comparison.ours:g}",
            f"{comparison.comparable} ({reasons.index(comparison.reason) + 1})",
        )
    print_table(console, table)
    for number, reason in enumerate(reasons, start=1):
        print_plainly(console, f"({number}) {reason}")
