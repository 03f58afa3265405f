"""``fedcircuits compare``: two models, or a model and data, side by side."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, Seed

if TYPE_CHECKING:
    from fedcircuits.app.report import TextTable
    from fedcircuits.reports.comparison import Comparison

MOST_SHOWN = 12


def compare(
    model: ModelFile,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="Another model (.fc), or a file with rows.")
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="With two models: rows to score.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Rows to sample per model.")] = 5000,
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
    """Show how a model differs from another model or from data.

    Columns are compared by total variation (0: the same, 1: nothing in common), and pairs of
    columns by how strongly they depend on each other. Values not above `chance` are no difference.

    `fedcircuits compare model.fc older.fc --data test.csv`

    `fedcircuits compare model.fc test.csv`
    """
    with clear():
        from fedcircuits.app import screen
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.loading import any_model, distribution
        from fedcircuits.app.rows import RowReader
        from fedcircuits.estimators.model import Model
        from fedcircuits.reports.comparison import compare as compared
        from fedcircuits.tables.table import Table

        words = ColumnOptions(schema, (), (), delimiter, decimal, dates, ids)
        reader = RowReader(model, words, tuple(row_id or ()))
        with ExitStack() as stack:
            first = distribution(
                stack.enter_context(any_model(model, consortium)), model, "compare"
            )
            second: Model | Table
            if Path(other).suffix == ".fc":
                loaded = stack.enter_context(any_model(Path(other), consortium))
                second = distribution(loaded, Path(other), "compare")
            else:
                second = reader.one(first.schema_, other)
            rows = None if data is None else reader.one(first.schema_, data)
            comparison = compared(first, second, rows, draws=draws, random_state=seed)
        if json:
            screen.data(comparison.to_json())
            return
        for name, value in comparison.likelihoods.items():
            screen.say(f"{name}: {value:.4g} nats per row")
        names = (model.name, Path(other).name)
        for grid in (columns(comparison), dependencies(comparison, names)):
            screen.say()
            screen.show(grid)


def columns(comparison: Comparison) -> TextTable:
    from fedcircuits.app.report import TextTable

    ordered = comparison.columns.sort_values("distance", ascending=False, kind="stable")
    rows = [
        [str(name), f"{line['distance']:.3f}", f"{line['chance']:.3f}"]
        for name, line in ordered.head(MOST_SHOWN).iterrows()
    ]
    caption = f"Columns that differ most, {len(rows)} of {len(ordered)}:"
    return TextTable(("column", "distance", "chance"), rows, caption)


def dependencies(comparison: Comparison, sides: tuple[str, str]) -> TextTable:
    from fedcircuits.app.report import TextTable

    rows = [
        [line["column"], line["with"], f"{line['first']:.3f}", f"{line['second']:.3f}"]
        for _, line in comparison.pairs.head(MOST_SHOWN).iterrows()
    ]
    caption = f"Dependence, the strongest {len(rows)} of {len(comparison.pairs)} pairs:"
    return TextTable(("column", "with", *sides), rows, caption, texts=2)
