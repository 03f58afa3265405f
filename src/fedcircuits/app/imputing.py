"""``fedcircuits impute``: missing values of a table filled in by a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, Seed

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from fedcircuits.tables.table import Table

    Truths = NDArray[np.bool_]

WHICH = "imputation"  # the column that numbers several imputations


def impute(
    model: ModelFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows with missing values.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output csv file; replaced if it exists.")
    ],
    by: Annotated[
        options.Fillings,
        typer.Option(
            **options.among(options.Fillings),
            help="mpe: jointly most probable; mean or mode of each value; sample: random.",
        ),
    ] = "mpe",
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, help="Imputations, with --by sample.")
    ] = 1,
    row_id: options.RowIds = None,
    json: AsJson = False,
    schema: options.SchemaFile = None,
    delimiter: options.Delimiter = None,
    decimal: options.DecimalSign = None,
    dates: options.DateOrder = None,
    ids: options.UnusedIdForm = None,
    consortium: options.Consortium = None,
    seed: Seed = 0,
) -> None:
    """Fill in the missing values of a table, given the other values of each row.

    Existing values stay as they are, also in columns that the model does not know; in a csv file,
    new ones have the decimals, unit and form of dates of their column. Several imputations are
    written one below the other and numbered in a column `imputation`.

    `fedcircuits impute model.fc gaps.csv --by sample -n 5 -o filled.csv`
    """
    with clear():
        from fedcircuits.app import report, screen
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.crossing import counted
        from fedcircuits.app.loading import any_model, distribution
        from fedcircuits.app.rows import RowReader
        from fedcircuits.app.training import parties_of
        from fedcircuits.reports.imputation import impute as imputed
        from fedcircuits.tables.readers import TextFrame

        report.check_output(output, "a table", ".csv", *parties_of([str(file)]).values())
        words = ColumnOptions(schema, (), (), delimiter, decimal, dates, ids)
        reader = RowReader(model, words, tuple(row_id or ()))
        with any_model(model, consortium) as loaded:
            fitted, (party, data) = distribution(loaded, model, "impute"), reader.file(file)
            rows = reader.rows(party, data, fitted.schema_)
            tables = imputed(fitted, rows, by, imputations=number, random_state=seed)
        gaps = _gaps(rows, frame := _as_given(data))
        filled = [_filled(frame, gaps, rows, t, isinstance(data, TextFrame)) for t in tables]
        report.write(output, _written(filled, frame.attrs.get("delimiter", ",")))
        counts = {name: int(missing.sum()) for name, missing in gaps.items()}
        if json:
            return screen.data({"rows": len(rows), "filled": counts})
        listed = ", ".join(f"{n} {c:,}" for n, c in counts.items() if c) or "none were missing"
        size = counted(len(rows), "row")
        screen.say(f"{size}; missing values filled in: {listed}\nwrote {output}")


def _as_given(data: object) -> pd.DataFrame:
    import pandas as pd

    from fedcircuits.tables.frames import columns_of

    frame = pd.DataFrame(columns_of(data))
    frame.attrs = dict(getattr(data, "attrs", {}))
    return frame


def _gaps(rows: Table, frame: pd.DataFrame) -> dict[str, Truths]:
    """Which rows lack a value, by column of the file. A category that the model does not know is
    missing for the model, but not in the file."""
    import numpy as np

    gaps = {n: np.isnan(rows.values[:, i]) for i, n in enumerate(rows.names) if n in frame}
    for name in gaps:
        if rows.schema[name].kind == "category":
            gaps[name] &= frame[name].isna().to_numpy()
    return gaps


def _filled(
    frame: pd.DataFrame, gaps: dict[str, Truths], rows: Table, table: Table, text: bool
) -> pd.DataFrame:
    """The frame with missing values of modelled columns filled in; in a ``text`` column as this
    writes its own."""
    import numpy as np

    from fedcircuits.app.spelling import spelled

    filled = frame.astype(object)
    for name, missing in gaps.items():
        if missing.any():
            i, variable = rows.schema.index(name), rows.schema[name]
            values = list(table.column(name)[missing].astype(object))
            if text:
                read = ~np.isnan(rows.values[:, i])
                written, known = frame.loc[read, name], rows.values[read, i]
                values = spelled(variable, written, known, table.values[missing, i])
            filled.loc[missing, name] = values
    return filled


def _written(frames: list[pd.DataFrame], delimiter: str) -> bytes:
    import pandas as pd

    if len(frames) == 1:
        return bytes(frames[0].to_csv(index=False, sep=delimiter).encode())
    for number, frame in enumerate(frames, 1):
        frame.insert(0, WHICH, number)
    return bytes(pd.concat(frames).to_csv(index=False, sep=delimiter).encode())
