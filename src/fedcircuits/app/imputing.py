"""``fedcircuits impute``: gaps of a table filled by a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, Seed

if TYPE_CHECKING:
    import pandas as pd

    from fedcircuits.tables.table import Table

WHICH = "imputation"  # the column that numbers several imputations


def impute(
    model: ModelFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows with gaps.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A csv file; an older one is replaced.")
    ],
    by: Annotated[
        options.Fillings,
        typer.Option(
            **options.among(options.Fillings),
            help="Jointly most probable, mean or mode of each gap, or drawn.",
        ),
    ] = "mpe",
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, help="Of imputations, with --by sample.")
    ] = 1,
    json: AsJson = False,
    consortium: options.Consortium = None,
    seed: Seed = 0,
) -> None:
    """Fill the gaps of a table by what a model knows of the rest of each row.

    What the table has stays as it is, also columns that the model does not know. Several
    imputations are written below each other and numbered by a column `imputation`.

    `fedcircuits impute model.fc gaps.csv --by sample -n 5 -o filled.csv`
    """
    with clear():
        from json import dumps

        from fedcircuits.app import report, screen
        from fedcircuits.app.loading import any_model, distribution
        from fedcircuits.errors import FileError
        from fedcircuits.reports.imputation import impute as imputed
        from fedcircuits.reports.rows import contents, rows_of

        if output.suffix != ".csv":
            raise FileError(f"{output}: expected the name of a table, ending in .csv")
        with any_model(model, consortium) as loaded:
            fitted, data = distribution(loaded, model, "impute"), contents(file)
            rows = rows_of(data, fitted.schema_)
            tables = imputed(fitted, rows, by, imputations=number, random_state=seed)
        frame, gaps = _as_given(data), _gaps(rows, data)
        report.write(output, _written([_filled(frame, rows, t) for t in tables]))
        if json:
            screen.say(dumps({"rows": len(rows), "filled": gaps}, ensure_ascii=False, indent=2))
            return
        listed = ", ".join(f"{name} {count:,}" for name, count in gaps.items() if count)
        screen.say(f"{len(rows):,} rows; gaps filled: {listed or 'none, there were none'}")
        screen.say(f"wrote {output}")


def _as_given(data: object) -> pd.DataFrame:
    import pandas as pd

    from fedcircuits.tables.frames import columns_of

    return pd.DataFrame(columns_of(data))


def _gaps(rows: Table, data: object) -> dict[str, int]:
    """By column of the file."""
    import numpy as np

    held = _as_given(data).columns
    counts = np.isnan(rows.values).sum(axis=0).tolist()
    return {n: c for n, c in zip(rows.names, counts, strict=True) if n in held}


def _filled(frame: pd.DataFrame, rows: Table, table: Table) -> pd.DataFrame:
    """The frame as it is, with values where the model's columns have none."""
    import numpy as np

    filled = frame.astype(object)
    for i, name in enumerate(rows.names):
        gaps = np.isnan(rows.values[:, i])
        if name in frame and gaps.any():
            filled.loc[gaps, name] = table.column(name)[gaps].astype(object)
    return filled


def _written(frames: list[pd.DataFrame]) -> bytes:
    import pandas as pd

    if len(frames) == 1:
        return bytes(frames[0].to_csv(index=False).encode())
    for number, frame in enumerate(frames, 1):
        frame.insert(0, WHICH, number)
    return bytes(pd.concat(frames).to_csv(index=False).encode())
