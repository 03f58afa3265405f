"""Arguments and options of commands: their names and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

Learner = Literal[
    "learn-spn", "mixture", "chow-liu", "chow-liu-mixture", "hidden-chow-liu", "einsum"
]
Method = Literal["fedpc", "mixture", "kmeans", "forest", "fusion", "trees", "chow-liu"]
Weights = Literal["cooccurrence", "sizes", "em"]
Engines = Literal["memory", "process", "ray"]
Parts = Literal["rows", "columns", "both"]
Fillings = Literal["mpe", "mean", "mode", "sample"]
DecimalSigns = Literal[".", ","]
DateOrders = Literal["dmy", "mdy", "ymd"]
IdForms = Literal["plain", "loose"]


def among(choices: Any) -> Any:
    """How the values of a Literal are parsed and shown, which typer does itself only from 0.19
    on."""
    known = get_args(choices)

    def one_of(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(repr, known))}.")
        return text

    return {"parser": one_of, "metavar": f"[{'|'.join(known)}]"}


ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL.fc", help="A model file written by train.")
]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# ---------------------------------------------------------------------- train

Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Tables (csv, parquet, npz), one per party; the party is named after the file, or by "
        "NAME=FILE. For sites: the coordinator's kit, or its consortium.toml.",
    ),
]
ModelOutput = Annotated[
    Path, typer.Option("--output", "-o", help="The model file to write; replaces an existing one.")
]
MethodName = Annotated[
    Method | None, typer.Option(**among(Method), help="The method; default fedpc.")
]
RowIds = Annotated[
    list[str] | None,
    typer.Option(
        "--row-id",
        metavar="COLUMN",
        help="The column that identifies matching rows; PARTY=COLUMN, repeated, if parties call it "
        "differently.",
    ),
]
Target = Annotated[str | None, typer.Option(help="The column to predict.")]
LearnerName = Annotated[
    Learner | None,
    typer.Option(**among(Learner), help="fedpc: the learner of each party; default learn-spn."),
]
Clusters = Annotated[
    int | None,
    typer.Option(min=1, help="Number of clusters (fedpc, kmeans) or components (mixture)."),
]
WeightRule = Annotated[
    Weights | None,
    typer.Option(
        **among(Weights),
        help="fedpc: weights of cluster combinations; default cooccurrence.",
    ),
]
ShareTarget = Annotated[
    bool, typer.Option("--share-target", help="Send the target of shared rows to all parties.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other argument of the method, written as in Python; may be repeated.",
    ),
]
LeastCount = Annotated[int, typer.Option(min=1, help="Pool categories with fewer rows at a party.")]
EngineName = Annotated[
    Engines,
    typer.Option(
        **among(Engines),
        help="Run in one process, in one per party, or on a Ray cluster.",
    ),
]
ModelName = Annotated[
    str | None, typer.Option("--name", help="Sites: name of the model; random by default.")
]
Resumed = Annotated[
    str | None,
    typer.Option("--resume", metavar="NAME", help="Sites: resume this interrupted training run."),
]

EventFile = Annotated[
    Path | None,
    typer.Option(
        "--watch", metavar="RUN.jsonl", help="Write events to this file, for fedcircuits dashboard."
    ),
]

# ---------------------------------------------------------------------- rows for a model

RowFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Rows (csv, parquet, npz); several files are joined by --row-id.",
    ),
]
TestFiles = Annotated[
    list[str] | None,
    typer.Option("--test", metavar="FILE", help="Test rows; may be repeated."),
]
TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train", metavar="FILE", help="Training rows of a party, for baselines; may be repeated."
    ),
]

# ---------------------------------------------------------------------- columns

SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="What the columns mean: a schema.toml written by train."),
]
ColumnKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COLUMN=KIND",
        help="Treat a column as real, count, category, boolean, date or date+weekday+month; may be "
        "repeated.",
    ),
]
DroppedColumns = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Drop a column; may be repeated."),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Delimiter of csv files, one character or tab; detected by default."),
]
DecimalSign = Annotated[
    DecimalSigns | None,
    typer.Option(
        "--decimal",
        **among(DecimalSigns),
        help="Decimal sign of csv files; detected per column by default.",
    ),
]
UnusedIdForm = Annotated[IdForms | None, typer.Option("--ids", **among(IdForms), hidden=True)]
IdForm = Annotated[
    IdForms | None,
    typer.Option(
        "--ids",
        **among(IdForms),
        help="How to compare row ids; loose: 0017 equals 17, and AB-3 equals ab3.",
    ),
]
DateOrder = Annotated[
    DateOrders | None,
    typer.Option(
        "--dates",
        **among(DateOrders),
        help="Order of day, month and year; detected per column by default.",
    ),
]

# ---------------------------------------------------------------------- sites

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="A kit created by provision.")]
DataFile = Annotated[
    Path | None,
    typer.Option("--data", help="Use this csv or parquet file instead of the one in site.toml."),
]
Place = Annotated[
    Path,
    typer.Argument(metavar="CONSORTIUM", help="The coordinator's kit, or its consortium.toml."),
]
Consortium = Annotated[
    Path | None,
    typer.Option(
        help="Models at sites: the coordinator's kit; default: the one used for training."
    ),
]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for a site.")]
