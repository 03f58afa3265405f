"""The page of ``fedcircuits report``, section by section."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcircuits.app import comparing, evaluating, report
from fedcircuits.app.crossing import MOST_PARTIES, counted
from fedcircuits.app.inspecting import places
from fedcircuits.app.loading import AnyModel
from fedcircuits.app.report import Block, Commands, Heading, Paragraph, Picture, TextTable
from fedcircuits.app.rows import RowReader
from fedcircuits.app.screen import in_options
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.regions import EVERYTHING
from fedcircuits.estimators import record
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.estimators.fusion_model import FusionModel
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.record import TrainingRecord
from fedcircuits.pictures.drawing import Drawing, figure_of
from fedcircuits.pictures.federation import placed_drawing
from fedcircuits.pictures.graph import graph_drawing
from fedcircuits.pictures.judging import calibration_drawing, dependence_drawing
from fedcircuits.pictures.marginals import Beliefs, marginals_drawing
from fedcircuits.reports.comparison import Comparison, compare
from fedcircuits.reports.evaluation import THE_MODEL, Evaluation, evaluate
from fedcircuits.tables.notebook import listed
from fedcircuits.tables.table import Table
from fedcircuits.version import __version__

BEST = {"log_likelihood": max, "accuracy": max, "macro_f1": max, "auc": max, "r2": max,
        "log_loss": min, "rmse": min}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """The user's arguments for a report."""

    rows: RowReader
    test: tuple[str, ...]
    train: tuple[str, ...]
    target: str | None
    seed: int

    @property
    def model(self) -> Path:
        return self.rows.path

    def command(self, verb: str) -> str:
        words = ["fedcircuits", verb, str(self.model)]
        for option, files_ in (("--test", self.test), ("--train", self.train)):
            words += [word for f in files_ for word in (option, f)]
        words += [word for column in self.rows.row_id for word in ("--row-id", column)]
        words += ["--target", self.target] if self.target else []
        words += self.rows.words.words()
        words += ["--seed", str(self.seed)] if self.seed else []
        return shlex.join(words)


def judged(model: AnyModel, given: Given) -> Evaluation | None:
    """The evaluation on test rows; None without any."""
    if not given.test:
        return None
    if isinstance(model, FusionModel):
        owned = given.rows.owned(given.train) if given.train else None
        test_rows = given.rows.owned(given.test)
        return evaluate(model, test_rows, train=owned, random_state=given.seed)
    test = given.rows.whole(model, given.test)
    train = given.rows.parts(model, given.train) if given.train else None
    return evaluate(model, test, train=train, target=given.target, random_state=given.seed)


def page_of(model: AnyModel, evaluation: Evaluation | None, given: Given) -> str:
    """The whole page as text."""
    record = _record(model, given.model)
    blocks = [*opening(model, record, given), *fit(evaluation), *calibration(evaluation)]
    if isinstance(model, Model):
        test = given.rows.whole(model, given.test) if given.test else None
        blocks += beliefs(model, test, given.seed)
    blocks += graph(model, record)
    blocks += [*crossed(record), *reproduction(record, given)]
    return report.page(f"Report on {given.model.name}", blocks)


def _record(model: AnyModel, path: Path) -> TrainingRecord | None:
    if isinstance(model, FederatedEstimator) and model.where_ is not None:
        return record.of_training(model)
    return record.read(path)


# ---------------------------------------------------------------------- what was learned


def opening(model: AnyModel, record: TrainingRecord | None, given: Given) -> Iterator[Block]:
    target = getattr(model, "target", None) or getattr(model, "target_", None)
    schema = model.circuit_.schema if isinstance(model, FusionModel) else model.schema_
    what = "a joint distribution over" if isinstance(model, Model) else "a predictor from"
    aim = f" Its target is {target!r}." if target else ""
    columns = f"{counted(len(schema), 'column')}: {listed(schema.names, 8)}"
    yield Paragraph(f"{given.model.name} is {what} {columns}.{aim}")
    if record is None:
        yield Paragraph("The file does not say how the model was trained.")
        return
    yield Heading("What was learned, and from whom")
    learned = f"{record.estimator} was trained on {_split(record)}"
    yield Paragraph(f"{learned}. Rows stayed where they were.")
    if record.parties:
        yield _parties(record)
    if record.notes:
        notes = "; ".join(map(in_options, record.notes))
        yield Paragraph(f"Notes from training: {notes}{'' if notes.endswith('.') else '.'}")


def _parties(record: TrainingRecord) -> TextTable:
    """Parties, their columns and rows; many parties with the same columns share a line."""
    if len(record.parties) <= MOST_PARTIES:
        lines = [
            (name, listed(held.columns, 6), f"{held.rows:,}")
            for name, held in record.parties.items()
        ]
        return TextTable(("party", "columns", "rows"), lines, texts=2)
    alike: dict[tuple[str, ...], dict[str, int]] = {}
    for name, held in record.parties.items():
        alike.setdefault(tuple(held.columns), {})[name] = held.rows
    many = []
    for columns, rows in alike.items():
        least, most = min(rows.values()), max(rows.values())
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        many.append((listed(list(rows)), listed(columns, 6), f"{sum(rows.values()):,}", each))
    return TextTable(("parties", "columns", "rows", "rows per party"), many, texts=2)


def _split(record: TrainingRecord) -> str:
    if len(record.parties) == 1:
        return "the rows of one party"
    parties = f" of {len(record.parties)} parties" if record.parties else ""
    return f"a {record.split} split{parties}: {_split_in_words(record.split)}"


def _split_in_words(split: str) -> str:
    return {
        "horizontal": "parties hold different rows of the same columns",
        "vertical": "parties hold different columns of the same rows",
        "hybrid": "parties hold different rows and different columns",
    }.get(split, split)


# ---------------------------------------------------------------------- how good it is


def fit(evaluation: Evaluation | None) -> Iterator[Block]:
    yield Heading("How good it is")
    if evaluation is None:
        yield Paragraph("No test rows were given, so nothing was measured: --test test.csv.")
        return
    yield Paragraph(f"Measured on {evaluating.headline(evaluation)}.")
    yield evaluating.scores(evaluation, brief=True)
    yield Paragraph(_best(evaluation))


def _best(evaluation: Evaluation) -> str:
    """The best line in every measure, even if it is a baseline."""
    winners = []
    for measure, better in BEST.items():
        if measure not in evaluation.scores:
            continue
        values = evaluation.scores[measure].dropna()
        if len(values) > 1 and THE_MODEL in values:
            name = evaluating.TITLES.get(measure, measure)
            winners.append(f"by {name}: {values.index[values == better(values)][0]}")
    return f"Best {'; '.join(winners)}." if winners else "There is nothing to compare it with."


def calibration(evaluation: Evaluation | None) -> Iterator[Block]:
    if evaluation is None or evaluation.target is None:
        return
    error = float(evaluation.scores.loc[THE_MODEL, "calibration_error"])
    if np.isnan(error):
        return
    yield Heading("Calibration")
    if not evaluation.reliability:
        yield Paragraph(
            f"The calibration error of {evaluation.target!r} is {error:.3f}: the mean distance "
            "between how often truths lie below a predicted quantile and how often they should, "
            "for quantiles from 10 % to 90 %."
        )
        return
    bins = [(b.rows, b.confidence, b.accuracy) for b in evaluation.reliability]
    yield Paragraph(
        f"Among rows whose predicted class has probability p, a fraction p should be correct. The "
        f"expected calibration error is {error:.3f}."
    )
    yield Picture(
        report.png_of(figure_of(calibration_drawing(bins))),
        "Fraction correct by the probability of the predicted class; below, the number of rows.",
    )
    yield TextTable(
        ("probability", "fraction correct", "rows"),
        [(f"{c:.3f}", f"{a:.3f}", f"{n:,}") for n, c, a in bins],
    )


# ---------------------------------------------------------------------- what it looks like


MOST_PANELS = 12


def beliefs(model: Model, test: Table | None, seed: int) -> Iterator[Block]:
    """Marginals and dependencies, beside those of test rows."""
    yield Heading("Columns")
    shown = list(model.schema_.names[:MOST_PANELS])
    drawing = marginals_drawing(Beliefs(model._distribution, model._nothing(), EVERYTHING), shown)
    yield Picture(
        report.png_of(figure_of(drawing)), f"Marginal distributions of {len(shown)} columns."
    )
    if test is None:
        return
    comparison = compare(model, test, random_state=seed)
    yield Paragraph(
        "Total variation between samples of the model and test rows: 0 is the same, 1 is nothing "
        "in common. Distances near chance, that of as many samples of the model, are no difference."
    )
    yield comparing.columns(comparison)
    if len(comparison.pairs):
        yield Heading("Dependencies")
        yield Picture(
            report.png_of(figure_of(_pairs_drawing(comparison, test))),
            "How strongly columns depend on each other: below the diagonal in the model, above it "
            "in the test rows. The strongest dependence is the darkest.",
        )
        yield comparing.dependencies(comparison, ("model", "test rows"))


def _pairs_drawing(comparison: Comparison, test: Table) -> Drawing:
    named = {*comparison.pairs["column"], *comparison.pairs["with"]}
    names = [n for n in test.names if n in named]
    at = {n: i for i, n in enumerate(names)}
    sides: dict[str, Array] = {s: np.zeros((len(names), len(names))) for s in ("first", "second")}
    for _, line in comparison.pairs.iterrows():
        i, j = at[line["column"]], at[line["with"]]
        for side, square in sides.items():
            square[i, j] = square[j, i] = line[side]
    return dependence_drawing(names, sides["first"], sides["second"])


def graph(model: AnyModel, record: TrainingRecord | None) -> Iterator[Block]:
    """The circuit, by party if the placement is known."""
    yield Heading("The circuit")
    circuit = model.circuit_
    placement = {} if record is None else record.placement
    placed = {node.name for node in circuit.nodes} == placement.keys()
    if placed and len(circuit) > 1:
        yield places(circuit, placement)
    parameters = getattr(model, "parameters_", None)
    if placed and len(circuit) > 1 and circuit.is_density:
        if parameters is None:
            parameters = getattr(getattr(model, "joint_", None), "parameters", None)
        drawing = placed_drawing(circuit, placement, parameters)
        caption = (
            "Squares are circuits that a party has learned and keeps; the coordinator combines "
            "them. Wider lines and darker squares describe more rows."
        )
    else:
        drawing = graph_drawing(circuit, parameters)
        caption = "Layers of the circuit, its root on top."
        if placed:
            caption = f"One circuit for all parties. {caption}"
    yield Picture(report.png_of(figure_of(drawing)), caption)


# ---------------------------------------------------------------------- what crossed


def crossed(record: TrainingRecord | None) -> Iterator[Block]:
    if record is None or not record.crossed:
        return
    yield Heading("Messages between the parties")
    yield TextTable(("phase", "messages", "bytes"), record.crossed)
    if record.revealed:
        yield Heading("What was revealed to whom")
        yield TextTable(("phase", "to", "from", "what"), record.revealed, texts=4)
    if record.privacy:
        yield Paragraph(f"Noise guarantees differential privacy: {record.privacy}.")


def reproduction(record: TrainingRecord | None, given: Given) -> Iterator[Block]:
    yield Heading("How to reproduce it")
    digest = hashlib.sha256(given.model.read_bytes()).hexdigest()
    learned = f" It was trained with version {record.version}." if record and record.version else ""
    yield Paragraph(
        f"The SHA-256 of {given.model.name} is {digest}.{learned} This page was written by version "
        f"{__version__}. The same files and seeds give the same numbers."
    )
    lines = [record.command] if record is not None and record.command else []
    yield Commands([*lines, given.command("report")])
