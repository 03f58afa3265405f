"""``fedcircuits synthesise``: a table of draws, and a report on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, Seed, Target, TestFiles, TrainFiles

if TYPE_CHECKING:
    from fedcircuits.reports.synthesis import Synthesis

MOST_SHOWN = 8


def synthesise(
    model: ModelFile,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The csv file to write; replaces an existing one."),
    ],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of rows.")] = 1000,
    train: TrainFiles = None,
    test: TestFiles = None,
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
    """Write synthetic rows, and report their fidelity and how close they are to real rows.

    With training rows, the report compares columns and pairs of columns, and shows how close
    synthetic rows come to real ones. With test rows it also shows what can be learned from
    synthetic rows, and whether they are closer to training rows than new rows are. This detects
    copies; it does not guarantee privacy.

    `fedcircuits synthesise model.fc -n 1000 --train train.csv --test test.csv -o synthetic.csv`
    """
    with clear():
        from fedcircuits.app import report, screen
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.crossing import counted
        from fedcircuits.app.loading import any_model, distribution
        from fedcircuits.app.rows import RowReader
        from fedcircuits.app.training import parties_of
        from fedcircuits.reports.synthesis import synthesise as made

        read = (*parties_of(train or ()).values(), *parties_of(test or ()).values())
        report.check_output(output, "a table", ".csv", *read)
        words = ColumnOptions(schema, (), (), delimiter, decimal, dates, ids)
        rows = RowReader(model, words, tuple(row_id or ()))
        with any_model(model, consortium) as loaded:
            fitted = distribution(loaded, model, "synthesise")
            real, held = (rows.whole(fitted, f) if f else None for f in (train, test))
            synthesis = made(
                fitted, number, real=real, test=held, target=target, random_state=seed
            )  # fmt: skip
        report.write(output, synthesis.table.to_pandas().to_csv(index=False).encode())
        if json:
            screen.data(synthesis.to_json())
            return
        _show(synthesis)
        screen.say(f"wrote {output}: {counted(number, 'row')}")


def _show(synthesis: Synthesis) -> None:
    from fedcircuits.app import screen
    from fedcircuits.app.evaluating import TITLES

    apart, chance = synthesis.columns, synthesis.chance
    if apart is None or chance is None or synthesis.pairs is None or synthesis.nearness is None:
        screen.say("no report: give the training rows by --train")
        return
    worst = (apart - chance).sort_values(ascending=False, kind="stable").head(MOST_SHOWN)
    listed = ", ".join(f"{name} {apart[name]:.3f} ({chance[name]:.3f})" for name in worst.index)
    screen.say(f"columns: total variation {apart.mean():.3f} on average (by chance "
               f"{chance.mean():.3f}); {listed}")  # fmt: skip
    left = [name for name in synthesis.table.names if name not in apart.index]
    if left:
        screen.say(f"left out, since the training rows have no value of them: {', '.join(left)}")
    if len(synthesis.pairs):
        gaps = synthesis.pairs["difference"]
        most = synthesis.pairs.loc[gaps.idxmax()]
        screen.say(f"pairs: dependence differs by {gaps.mean():.3f} on average, {gaps.max():.3f} "
                   f"at most, of {most['column']} and {most['with']}")  # fmt: skip
    for name, line in () if synthesis.usefulness is None else synthesis.usefulness.iterrows():
        numbers = ", ".join(f"{TITLES.get(k, k)} {v:.3f}" for k, v in line.dropna().items())
        screen.say(f"trained on {name}, scored on test rows: {numbers}")
    near = synthesis.nearness
    screen.say(f"nearest training row: {near.copies:,} of {near.compared:,} rows are copies; "
               f"median distance {near.synthetic[1]:.3f}")  # fmt: skip
    if near.test is not None and near.closer is not None:
        screen.say(f"  for test rows it is {near.test[1]:.3f}; {near.closer:.1%} of synthetic rows "
                   "are nearer than the nearest 5 % of test rows")  # fmt: skip
