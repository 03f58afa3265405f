"""The command ``fedcircuits``: train, query, sample, inspect, split, demo, and those of sites.

Exit codes: 0 success; 1 an error, described in one line on the error stream; 2 wrong usage; 130
stopped by the user. There is a traceback only with --debug. What a command needs is imported when
it runs, so that --help need not wait for it.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedcircuits import __version__
from fedcircuits.errors import FedcircuitsError

Learner = Literal[
    "learn-spn", "mixture", "chow-liu", "chow-liu-mixture", "hidden-chow-liu", "einsum"
]
EngineName = Annotated[
    Literal["memory", "process", "ray"],
    typer.Option(help="One process, one per party, or one per party in a cluster of Ray."),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.fc", help="A model, as train writes it.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]

app = typer.Typer(
    name="fedcircuits",
    help="One model from tables that stay apart, and answers from it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
_DEBUG: ContextVar[bool] = ContextVar("debug", default=False)


def main() -> None:
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
    _DEBUG.set(debug)


@contextmanager
def clear() -> Iterator[None]:
    """Whatever goes wrong inside ends the command with one line; warnings are notes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _note  # type: ignore[assignment]
            yield
    except BrokenPipeError:  # the reader has seen enough: typer ends quietly
        raise
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except (FedcircuitsError, OSError) as error:
        _fail(str(error), 1)
    except Exception as error:
        again = "fedcircuits --debug … shows where"
        _fail(f"unexpected {type(error).__name__}: {error}; {again}", 1)


def _note(message: Warning | str, *_: object) -> None:
    from fedcircuits.app.screen import warn

    warn(str(message))


def _fail(message: str, code: int) -> None:
    from fedcircuits.app.screen import one_line, plain

    if _DEBUG.get():
        traceback.print_exc()
    print(f"fedcircuits: {plain(one_line(message))}", file=sys.stderr)
    raise typer.Exit(code)


# ---------------------------------------------------------------------- learning


@app.command()
def train(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Tables (csv, parquet, npz), one per party, named by the file or NAME=FILE.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File of the model; an older one is replaced."),
    ],
    row_id: Annotated[
        str | None, typer.Option(help="The column that says which rows belong together.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    learner: Annotated[Learner, typer.Option(help="How a party learns.")] = "learn-spn",
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Clusters of each party's rows; default: by size.")
    ] = None,
    weights: Annotated[
        Literal["cooccurrence", "sizes", "em"],
        typer.Option(help="How combinations of clusters are weighted."),
    ] = "cooccurrence",
    share_target: Annotated[
        bool, typer.Option("--share-target", help="Tell all parties the target of shared rows.")
    ] = False,
    least_count: Annotated[
        int, typer.Option(min=1, help="Categories that fewer rows of a party have are pooled.")
    ] = 5,
    engine: EngineName = "memory",
    seed: Seed = 0,
) -> None:
    """Learn one circuit from several tables.

    The columns tell how the data are split. All files are assumed to be yours: the parts of the
    circuit are learned separately and collected into one model. Between owners who may not do
    that, use the Python library, where the parts stay with their parties.
    """
    with clear():
        from fedcircuits.app import screen, training
        from fedcircuits.estimators.fedpc import FedPC
        from fedcircuits.federation.federation import Federation

        training.check_output(output)
        parties = training.parties_of(tables)
        screen.tell("reading")
        federation = Federation(parties, row_id, allow_collect=True, least_count=least_count)
        training.describe(federation)
        model = FedPC(
            training.learner_of(learner), clusters=clusters or "auto", weights=weights,
            target=target, share_target=share_target, random_state=seed,
        )  # fmt: skip
        training.fit(model, federation, engine)
        training.show_ledger(model)
        chosen = {"learner": learner, "weights": weights, "engine": engine, "seed": seed}
        training.save(output, model, federation, chosen)
        screen.say(f"\nwrote {output}")


@app.command()
def split(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A csv, parquet or npz file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the files.")],
    parties: Annotated[str, typer.Option(help="How many, or names: north,south,west.")] = "3",
    by: Annotated[
        Literal["rows", "columns", "both"], typer.Option(help="What parties get a part of.")
    ] = "columns",
    skew: Annotated[
        str | None, typer.Option(help="Skew of rows: label, cluster, or dirichlet:0.5.")
    ] = None,
    overlap: Annotated[
        float, typer.Option(help="Share of rows, or columns, that several parties hold.")
    ] = 0.0,
    target: Annotated[
        str | None, typer.Option(help="Target of the skew; by columns, the last party holds it.")
    ] = None,
    row_id: Annotated[str | None, typer.Option(help="The column that identifies rows.")] = None,
    seed: Seed = 0,
) -> None:
    """Split one table into files of several parties, to try things out.

    The first column of every file has the ids of its rows; it is called row_id unless --row-id
    names another. No existing file is overwritten.
    """
    with clear():
        from fedcircuits.app import screen, training
        from fedcircuits.federation.split import split as cut
        from fedcircuits.tables.table import Table

        rows = Table.read(table, row_id=row_id)
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
        training.describe(federation)
        screen.say(f"wrote {', '.join(str(parts.path(n)) for n in names)}; now try\n")
        screen.say(training.command(parts, names, target))


# ---------------------------------------------------------------------- sites

consortium_app = typer.Typer(help="Who takes part in a federation between owners.")
site_app = typer.Typer(help="One owner's end of a federation between owners.")
app.add_typer(consortium_app, name="consortium", no_args_is_help=True)
app.add_typer(site_app, name="site", no_args_is_help=True)
KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="A kit, as provision makes it.")]
DataFile = Annotated[
    Path | None, typer.Option("--data", help="A csv or parquet file in place of site.toml's.")
]


@consortium_app.command("init")
def consortium_init(
    path: Annotated[Path, typer.Argument(metavar="FILE")] = Path("consortium.toml"),
) -> None:
    """Write a consortium.toml with comments, to be filled in."""
    with clear():
        from fedcircuits.app import sites

        sites.init(path)


@app.command()
def provision(
    consortium: Annotated[Path, typer.Argument(metavar="CONSORTIUM.toml")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of kits.")] = Path("kits"),
    renew: Annotated[
        list[str] | None, typer.Option(help="A member that gets new keys; its old ones end.")
    ] = None,
) -> None:
    """Make keys, certificates and a kit for every member of a consortium.

    Kits that are there stay. A member that is taken off the file is refused from then on: hand the
    new consortium.toml to the others, and start the server again.
    """
    with clear():
        from fedcircuits.app import sites

        sites.provision(consortium, output, renew or ())


@site_app.command("check")
def site_check(kit: KitFolder, data: DataFile = None) -> None:
    """Show what a site would tell the others of its rows, and what it allows."""
    with clear():
        from fedcircuits.app import sites

        sites.check(kit, data)


@site_app.command("start")
def site_start(
    kit: KitFolder,
    data: DataFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing before it serves.")] = False,
) -> None:
    """Serve a site's rows to its consortium, until it is stopped."""
    with clear():
        from fedcircuits.app import sites

        if not yes and sys.stdin.isatty():
            sites.check(kit, data)
            typer.confirm("Serve this?", abort=True)
        sites.start(kit, data)


@site_app.command("status")
def site_status(kit: KitFolder) -> None:
    """Show whether a site runs on this machine, what it keeps, and what it was asked today."""
    with clear():
        from fedcircuits.app import sites

        sites.status(kit)


@site_app.command("stop")
def site_stop(kit: KitFolder) -> None:
    """Stop a site that was started on this machine."""
    with clear():
        from fedcircuits.app import sites

        sites.stop(kit)


# ---------------------------------------------------------------------- asking


@app.command()
def query(
    model: ModelFile,
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="One or several, each in quotes.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Answers as JSON.")] = False,
) -> None:
    """Ask a model a question such as "P(risk = 'high' | age > 60)".

    P of a condition is its probability. P of a category, as in "P(risk | age > 60)", gives the
    probabilities of all its values. E of a column, as in "E(age | risk = 'high')", is its mean ±
    standard deviation.
    """
    with clear():
        from json import dumps

        from fedcircuits.app import screen
        from fedcircuits.app.asking import answered
        from fedcircuits.estimators.circuit_model import load_circuit as load

        loaded = load(model)
        answers = [answered(loaded, question) for question in questions]
        if json:
            screen.say(dumps([a.to_json() for a in answers], ensure_ascii=False, indent=2))
        else:
            screen.say("\n".join(a.words() for a in answers))


@app.command()
def sample(
    model: ModelFile,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of rows.")] = 10,
    given: Annotated[str | None, typer.Option(help='Evidence, such as "age > 60".')] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A csv file; an older one is replaced.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Draw rows from a model, as csv."""
    with clear():
        from fedcircuits.app import report
        from fedcircuits.estimators.circuit_model import load_circuit as load

        rows = load(model).sample(number, given, random_state=seed).to_csv(index=False)
        if output is None:
            print(rows, end="")
        else:
            report.write(output, rows.encode())


@app.command()
def inspect(model: ModelFile) -> None:
    """Show what a model is made of and how it was learned."""
    with clear():
        from fedcircuits.app.inspecting import describe

        describe(model)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path(
        "demo"
    ),
    seed: Seed = 7,
) -> None:
    """Three hospitals learn one model of breast cancer data; writes a report."""
    with clear():
        from fedcircuits.app.demo import run

        run(output, seed)
