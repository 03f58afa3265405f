"""``fedcircuits evaluate``: how well a model fits unseen rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcircuits.app import options
from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, ModelFile, RowFiles, Seed, Target, TrainFiles

if TYPE_CHECKING:
    import pandas as pd

    from fedcircuits.app.report import TextTable
    from fedcircuits.reports.evaluation import Evaluation

TITLES = {
    "log_likelihood": "log-likelihood",
    "macro_f1": "macro F1",
    "auc": "AUC",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "r2": "r²",
    "rmse": "RMSE",
}


def evaluate(
    model: ModelFile,
    files: RowFiles,
    train: TrainFiles = None,
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
    """Score a model on test rows, next to simple baselines.

    Likelihood is the mean log-likelihood per row. Classes are scored by accuracy, macro F1, AUC,
    log loss and calibration error; numbers by r², RMSE and calibration error. With training rows,
    the table also shows baselines, each party alone, and all rows in one place.

    `fedcircuits evaluate model.fc test.csv --train north.csv --train south.csv`
    """
    with clear():
        from fedcircuits.app import screen
        from fedcircuits.app.columns import ColumnOptions
        from fedcircuits.app.loading import any_model
        from fedcircuits.app.rows import RowReader
        from fedcircuits.estimators.fusion_model import FusionModel
        from fedcircuits.reports.evaluation import evaluate as evaluated

        words = ColumnOptions(schema, (), (), delimiter, decimal, dates, ids)
        rows = RowReader(model, words, tuple(row_id or ()))
        with any_model(model, consortium) as loaded:
            if isinstance(loaded, FusionModel):
                owned = rows.owned(train) if train else None
                evaluation = evaluated(
                    loaded, rows.owned(files), train=owned, random_state=seed
                )  # fmt: skip
            else:
                test = rows.whole(loaded, files)
                parts = rows.parts(loaded, train) if train else None
                evaluation = evaluated(loaded, test, train=parts, target=target, random_state=seed)
        if json:
            screen.data(evaluation.to_json())
        else:
            screen.say(f"{headline(evaluation)}\n")
            screen.show(scores(evaluation))


def headline(evaluation: Evaluation) -> str:
    from fedcircuits.app.crossing import counted

    what = (
        f"; {evaluation.target!r} is predicted from the remaining columns"
        if evaluation.target
        else ""
    )
    none = f"; {evaluation.impossible:,} of them are impossible under the model" * bool(
        evaluation.impossible
    )
    return f"{counted(evaluation.rows, 'row')}{none}{what}"


def scores(evaluation: Evaluation, brief: bool = False) -> TextTable:
    """A line per model; — where a measure does not apply. ``brief``: the lines of many parties
    alone become three, by their log-likelihood or first measure."""
    from fedcircuits.app.report import TextTable

    scores = _summarised(evaluation.scores) if brief else evaluation.scores
    names = [n for n in scores.columns if scores[n].notna().any()]
    rows = [[str(line), *(_number(scores.loc[line, n]) for n in names)] for line in scores.index]
    return TextTable(("model", *(TITLES.get(n, n) for n in names)), rows)


def _summarised(scores: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    from fedcircuits.app.crossing import MOST_PARTIES

    alone = scores[scores.index.str.endswith(" alone")].dropna(axis=1, how="all")
    if len(alone) <= MOST_PARTIES:
        return scores
    alone = alone.sort_values(alone.columns[0], ascending=False, kind="stable")
    lines = pd.DataFrame(
        [alone.iloc[0], alone.median(), alone.iloc[-1]],
        [f"{alone.index[0]}, the best of {len(alone)}", "the median of parties alone",
         f"{alone.index[-1]}, the worst"],
    )  # fmt: skip
    at = min(int(scores.index.get_loc(name)) for name in alone.index)
    rest = scores.drop(index=alone.index)
    return pd.concat([rest.iloc[:at], lines, rest.iloc[at:]])


def _number(value: float) -> str:
    if value != value:
        return "—"
    return "−∞" if value == float("-inf") else f"{value:.4g}"
