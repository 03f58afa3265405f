"""``fedcircuits report``: one page about a model, to be read in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, Seed, Target, TestFiles, TrainFiles


def report(
    model: ModelFile,
    test: TestFiles = None,
    train: TrainFiles = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The .html file to write; default MODEL.html."),
    ] = None,
    target: Target = None,
    row_id: options.RowIds = None,
    json: AsJson = False,
    schema: options.SchemaFile = None,
    delimiter: options.Delimiter = None,
    decimal: options.DecimalSign = None,
    dates: options.DateOrder = None,
    ids: options.IdForm = None,
    consortium: options.Consortium = None,
    seed: Seed = 0,
) -> None:
    """Write one HTML page about a model: its parties, its quality, and what was sent.

    With test rows, the page compares likelihood, predictions and calibration with baselines, and
    columns and dependencies with those of the rows. With training rows of the parties it also shows
    baselines trained on them, and each party alone. The page is one file and loads nothing else.

    `fedcircuits report model.fc --test test.csv --train north.csv --train south.csv --row-id id`
    """
    with clear():
        from fedcircuits.app import pages, screen
        from fedcircuits.app import report as html
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.loading import any_model
        from fedcircuits.app.rows import RowReader
        from fedcircuits.errors import QueryError

        place = output or model.with_suffix(".html")
        html.check_output(place, "a page", ".html")
        if train and not test:
            raise QueryError(
                "--train is for baselines, which are measured on test rows: give --test"
            )
        words = ColumnOptions(schema, (), (), delimiter, decimal, dates, ids)
        rows = RowReader(model, words, tuple(row_id or ()))
        files = pages.Given(rows, tuple(test or ()), tuple(train or ()), target, seed)
        screen.tell("measuring")
        with any_model(model, consortium) as loaded:
            evaluation = pages.judged(loaded, files)
            screen.tell("drawing")
            page = pages.page_of(loaded, evaluation, files)
        html.write(place, page.encode())
        if json:
            judgement = None if evaluation is None else evaluation.to_json()
            screen.data({"page": str(place), "evaluation": judgement})
        else:
            screen.say(f"wrote {place}: {len(page) / 1e6:.1f} MB, open it in a browser")
