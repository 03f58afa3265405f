"""Arguments and options of commands: how they are called, and what --help says of them."""

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
    """How the values of a Literal are read and shown: typer before 0.19 does not do it itself."""
    known = get_args(choices)

    def one_of(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(repr, known))}.")
        return text

    return {"parser": one_of, "metavar": f"[{'|'.join(known)}]"}


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.fc", help="A model, as train writes it.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

# ---------------------------------------------------------------------- train

Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Tables (csv, parquet, npz), one per party, named by the file or NAME=FILE; or the "
        "consortium.toml, or the folder, of a coordinator's kit.",
    ),
]
ModelOutput = Annotated[
    Path, typer.Option("--output", "-o", help="File of the model; an older one is replaced.")
]
MethodName = Annotated[
    Method | None, typer.Option(**among(Method), help="How to learn; by default fedpc.")
]
RowId = Annotated[str | None, typer.Option(help="The column that says which rows belong together.")]
Target = Annotated[str | None, typer.Option(help="The column to predict.")]
LearnerName = Annotated[
    Learner | None,
    typer.Option(**among(Learner), help="fedpc: how a party learns; by default learn-spn."),
]
Clusters = Annotated[
    int | None,
    typer.Option(min=1, help="fedpc, kmeans: clusters of rows; mixture: components."),
]
WeightRule = Annotated[
    Weights | None,
    typer.Option(
        **among(Weights),
        help="fedpc: how combinations of clusters are weighted; cooccurrence.",
    ),
]
ShareTarget = Annotated[
    bool, typer.Option("--share-target", help="Tell all parties the target of shared rows.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any other argument of the method, as in Python."
    ),
]
LeastCount = Annotated[
    int, typer.Option(min=1, help="Categories that fewer rows of a party have are pooled.")
]
EngineName = Annotated[
    Engines,
    typer.Option(
        **among(Engines),
        help="One process, one per party, or one per party in a cluster of Ray.",
    ),
]
ModelName = Annotated[
    str | None, typer.Option("--name", help="Sites: of the model; by default it is drawn.")
]
Resumed = Annotated[
    str | None, typer.Option("--resume", metavar="NAME", help="Sites: go on with this training.")
]

EventFile = Annotated[
    Path | None,
    typer.Option(
        "--watch", metavar="RUN.jsonl", help="Write what happens, for fedcircuits dashboard."
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
    typer.Option("--test", metavar="FILE", help="Rows that it has not seen; may be repeated."),
]
TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train", metavar="FILE", help="Training rows, for baselines; one per party, repeated."
    ),
]

# ---------------------------------------------------------------------- columns

SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="What the columns mean: a schema.toml, as train writes it."),
]
ColumnKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COLUMN=KIND",
        help="Read a column as real, count, category, boolean or date (date+weekday+month: with "
        "these beside it); may be repeated.",
    ),
]
DroppedColumns = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Leave a column out; may be repeated."),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Of csv files, one character or tab; found out by default.")
]
DecimalSign = Annotated[
    DecimalSigns | None,
    typer.Option("--decimal", **among(DecimalSigns), help="Of csv files; by column by default."),
]
IdForm = Annotated[
    IdForms | None,
    typer.Option(
        "--ids",
        **among(IdForms),
        help="loose: for row ids 0017 is 17, and AB-3 is ab3.",
    ),
]
DateOrder = Annotated[
    DateOrders | None,
    typer.Option(
        "--dates",
        **among(DateOrders),
        help="The order of day, month and year; by column by default.",
    ),
]

# ---------------------------------------------------------------------- sites

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="A kit, as provision makes it.")]
DataFile = Annotated[
    Path | None, typer.Option("--data", help="A csv or parquet file in place of site.toml's.")
]
Place = Annotated[
    Path,
    typer.Argument(metavar="CONSORTIUM", help="The coordinator's kit, or its consortium.toml."),
]
Consortium = Annotated[
    Path | None,
    typer.Option(help="The coordinator's kit, for a model at sites; by default the one it had."),
]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for a site.")]
