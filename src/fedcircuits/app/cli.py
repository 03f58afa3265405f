"""The command ``fedcircuits``: train, query, sample, inspect, split, demo, and those of sites.

What a command needs is imported when it runs, so that --help need not wait for it. How commands end
is in ending.py.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from fedcircuits import __version__
from fedcircuits.app import (
    comparing,
    evaluating,
    imputing,
    options,
    owners,
    reporting,
    synthesising,
)
from fedcircuits.app.dashboard.command import dashboard
from fedcircuits.app.ending import DEBUG, clear, fail
from fedcircuits.app.options import AsJson, KitFolder, ModelFile, Place, Seed, Timeout

app = typer.Typer(
    name="fedcircuits",
    help="Learn one model from tables that cannot be pooled, and query it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    gc.set_threshold(100_000, 20, 20)  # a fifth of the time that libraries take to load
    app(prog_name="fedcircuits")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fedcircuits {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    DEBUG.set(debug)


# ---------------------------------------------------------------------- learning


@app.command()
def train(
    tables: options.Tables,
    output: options.ModelOutput,
    method: options.MethodName = None,
    row_id: options.RowIds = None,
    target: options.Target = None,
    learner: options.LearnerName = None,
    clusters: options.Clusters = None,
    weights: options.WeightRule = None,
    share_target: options.ShareTarget = False,
    settings: options.Settings = None,
    least_count: options.LeastCount = 5,
    engine: options.EngineName = "memory",
    name: options.ModelName = None,
    resume: options.Resumed = None,
    schema: options.SchemaFile = None,
    kind: options.ColumnKinds = None,
    drop: options.DroppedColumns = None,
    delimiter: options.Delimiter = None,
    decimal: options.DecimalSign = None,
    dates: options.DateOrder = None,
    ids: options.IdForm = None,
    watch: options.EventFile = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train one model from several tables, or at the sites of a consortium.

    How the data are split is inferred from the columns. With files, which are assumed to be yours,
    the parts of the model are learned separately and collected into one file. At sites the parts
    stay where they are, and the file holds the coordinator's part.

    `fedcircuits train north.csv south.csv --row-id patient --target risk -o model.fc`

    `fedcircuits train kits/coordinator --method mixture --clusters 3 --name risk -o model.fc`
    """
    with clear():
        from fedcircuits.app import screen, training
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.methods import MethodOptions
        from fedcircuits.errors import FederationError

        chosen = settings or ()
        words = MethodOptions(
            method, target, learner, clusters, weights, share_target, chosen, seed
        )  # fmt: skip
        if training.is_consortium(tables):
            from fedcircuits.app import analyst

            with screen.silenced(json):
                summary = analyst.train(tables[0], output, words, name, resume, watch)
        elif name or resume:
            raise FederationError("--name and --resume are for sites, and these are files")
        else:
            columns = ColumnOptions(schema, kind or (), drop or (), delimiter, decimal, dates, ids)
            about = (words, row_id or (), least_count, engine, columns, watch)
            with screen.silenced(json):
                summary = training.train(tables, output, *about)
        if json:
            screen.data(summary)


@app.command()
def split(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A csv, parquet or npz file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output folder.")],
    parties: Annotated[str, typer.Option(help="How many, or names: north,south,west.")] = "3",
    by: Annotated[
        options.Parts,
        typer.Option(**options.among(options.Parts), help="What to divide among the parties."),
    ] = "columns",
    skew: Annotated[
        str | None, typer.Option(help="Skew of rows: label, cluster, or dirichlet:0.5.")
    ] = None,
    overlap: Annotated[
        float, typer.Option(help="Fraction of rows or columns held by several parties.")
    ] = 0.0,
    target: Annotated[
        str | None, typer.Option(help="Target of the skew; by columns, the last party holds it.")
    ] = None,
    row_id: Annotated[str | None, typer.Option(help="The column that identifies rows.")] = None,
    schema: options.SchemaFile = None,
    kind: options.ColumnKinds = None,
    drop: options.DroppedColumns = None,
    delimiter: options.Delimiter = None,
    decimal: options.DecimalSign = None,
    dates: options.DateOrder = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Split one table into files for several parties, for experiments.

    The first column of every file contains the row ids. It is called row_id unless --row-id names
    another column. Existing files are not overwritten.

    `fedcircuits split patients.csv --row-id patient --parties north,south -o parts`
    """
    with clear():
        from fedcircuits.app import columns, screen, training
        from fedcircuits.federation.split import split as cut
        from fedcircuits.tables.declared import read_table

        said = columns.ColumnOptions(schema, kind or (), drop or (), delimiter, decimal, dates)
        with columns.shown_in_table():
            rows = read_table(table, said.declared(), row_id)
        said.check(rows.names, rows.readings)
        if not json:
            columns.show({table.stem: rows})
        if target is not None:
            rows.schema.index(target)
        names = training.names_of(parties)
        parts = training.CsvFolder(output, row_id or "row_id")
        parts.check(rows, names)
        federation = cut(
            rows, names, by=by, skew=training.skew_of(skew), overlap=overlap, target=target,
            seed=seed,
        )  # fmt: skip
        parts.write(federation)
        if json:
            screen.data(parts.summary(federation))
        else:
            training.describe(federation)
            parts.say(names, target)


# ---------------------------------------------------------------------- sites

app.add_typer(owners.consortium_app, name="consortium", no_args_is_help=True)
app.add_typer(owners.site_app, name="site", no_args_is_help=True)
app.command()(owners.provision)


# ---------------------------------------------------------------------- asking


@app.command()
def query(
    model: ModelFile,
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="One or more queries, each in quotes.")
    ],
    json: AsJson = False,
    consortium: options.Consortium = None,
) -> None:
    """Answer queries such as "P(risk = 'high' | age > 60)".

    P of a condition is its probability. P of a category, as in "P(risk | age > 60)", gives the
    probabilities of all its values. E of a column, as in "E(age | risk = 'high')", is its mean ±
    standard deviation. A model at sites is queried there.

    `fedcircuits query model.fc "P(risk = 'high' | age > 60)"`
    """
    with clear():
        from fedcircuits.app import screen
        from fedcircuits.app.asking import answered, asked

        with asked(model, consortium) as loaded:
            answers = [answered(loaded, question) for question in questions]
        if json:
            screen.data([a.to_json() for a in answers])
        else:
            screen.say("\n".join(a.words() for a in answers))


@app.command()
def sample(
    model: ModelFile,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of rows.")] = 10,
    given: Annotated[str | None, typer.Option(help='Evidence, such as "age > 60".')] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The csv file to write (.json with --json); replaces an existing one.",
        ),
    ] = None,
    consortium: options.Consortium = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Draw rows from a model, as csv.

    `fedcircuits sample model.fc -n 100 --given "age > 60" -o rows.csv`
    """
    with clear():
        from fedcircuits.app import report
        from fedcircuits.app.loading import opened

        if output is not None:
            report.check_output(output, "a table", ".json" if json else ".csv")
        with opened(model, consortium) as loaded:
            drawn = loaded.sample(number, given, random_state=seed)
        if json:
            rows = drawn.to_json(orient="records", force_ascii=False, date_format="iso") + "\n"
        else:
            rows = drawn.to_csv(index=False)
        if output is None:
            print(rows, end="")
        else:
            report.write(output, rows.encode())


@app.command()
def inspect(model: ModelFile, json: AsJson = False) -> None:
    """Show the parts of a model, where they are and how it was trained.

    `fedcircuits inspect model.fc`
    """
    with clear():
        from fedcircuits.app import inspecting, screen

        if json:
            screen.data(inspecting.data(model))
        else:
            inspecting.describe(model)


# ---------------------------------------------------------------------- judging

app.command()(evaluating.evaluate)
app.command()(reporting.report)
app.command()(comparing.compare)
app.command()(imputing.impute)
app.command()(synthesising.synthesise)
app.command()(dashboard)


# ---------------------------------------------------------------------- models at sites


@app.command()
def status(place: Place, timeout: Timeout = 10.0, json: AsJson = False) -> None:
    """Show which sites of a consortium are online; exit code 1 if one is not.

    `fedcircuits status kits/coordinator`
    """
    with clear():
        from fedcircuits.app import analyst

        if away := analyst.status(place, timeout, json):
            fail(f"{', '.join(away)} did not answer within {timeout:g} s", 1)


@app.command()
def models(place: Place, timeout: Timeout = 10.0, json: AsJson = False) -> None:
    """List models by the sites that store them, and interrupted training runs.

    `fedcircuits models kits/coordinator`
    """
    with clear():
        from fedcircuits.app import analyst

        analyst.models(place, timeout, json)


@app.command()
def forget(
    place: Place,
    model: Annotated[str, typer.Argument(metavar="NAME", help="Name of a model or training run.")],
    timeout: Timeout = 10.0,
    json: AsJson = False,
) -> None:
    """Delete a model at the sites that agree; exit code 1 if one does not.

    `fedcircuits forget kits/coordinator risk`
    """
    with clear():
        from fedcircuits.app import analyst

        if left := analyst.forget(place, model, timeout, json):
            fail(f"{', '.join(left)} still keeps {model!r}", 1)


@app.command()
def audit(
    kit: KitFolder,
    run: Annotated[str | None, typer.Option(help="Only this run or model.")] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="Only this many of the last lines.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what a site was asked, what it refused, what it sent, and what that reveals.

    `fedcircuits audit kits/north --last 20`
    """
    with clear():
        from fedcircuits.app import analyst

        analyst.audit(kit, run, last, json)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path(
        "demo"
    ),
    seed: Seed = 7,
    divisions: Annotated[
        int,
        typer.Option(min=1, help="How many random splits into training and test rows to use."),
    ] = 3,
) -> None:
    """Train one model of breast cancer data with three hospitals, and write a report.

    `fedcircuits demo --output demo`
    """
    with clear():
        from fedcircuits.app.demo import run

        run(output, seed, divisions)
