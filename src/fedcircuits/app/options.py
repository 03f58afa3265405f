"""Arguments and options of commands: how they are called, and what --help says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Learner = Literal[
    "learn-spn", "mixture", "chow-liu", "chow-liu-mixture", "hidden-chow-liu", "einsum"
]
Method = Literal["fedpc", "mixture", "kmeans", "forest", "fusion", "trees", "chow-liu"]
Weights = Literal["cooccurrence", "sizes", "em"]

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
MethodName = Annotated[Method | None, typer.Option(help="How to learn; by default fedpc.")]
RowId = Annotated[str | None, typer.Option(help="The column that says which rows belong together.")]
Target = Annotated[str | None, typer.Option(help="The column to predict.")]
LearnerName = Annotated[
    Learner | None, typer.Option(help="fedpc: how a party learns; by default learn-spn.")
]
Clusters = Annotated[
    int | None,
    typer.Option(min=1, help="fedpc, kmeans: clusters of rows; mixture: components."),
]
WeightRule = Annotated[
    Weights | None,
    typer.Option(help="fedpc: how combinations of clusters are weighted; cooccurrence."),
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
    Literal["memory", "process", "ray"],
    typer.Option(help="One process, one per party, or one per party in a cluster of Ray."),
]
ModelName = Annotated[
    str | None, typer.Option("--name", help="Sites: of the model; by default it is drawn.")
]
Resumed = Annotated[
    str | None, typer.Option("--resume", metavar="NAME", help="Sites: go on with this training.")
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
        help="Read a column as real, count, category, boolean or date; may be repeated.",
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
    Literal[".", ","] | None, typer.Option("--decimal", help="Of csv files; by column by default.")
]
DateOrder = Annotated[
    Literal["dmy", "mdy", "ymd"] | None,
    typer.Option("--dates", help="The order of day, month and year; by column by default."),
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
