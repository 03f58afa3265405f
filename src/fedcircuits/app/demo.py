"""A first look: ``python -m fedcircuits.app.demo`` learns, answers, draws.

On the breast cancer data that scikit-learn brings: 569 tumours, 30 measurements of cell nuclei, and
the diagnosis. A circuit and plain baselines learn from 70 % of the rows (contest.py); the table
compares them on the others. Then the circuit answers three questions in words, and the folder
``demo`` gets report.html and circuit.png. The same seed gives the same report, but for times.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcircuits import datasets
from fedcircuits.app import contest, report
from fedcircuits.app.contest import Result
from fedcircuits.errors import FedcircuitsError
from fedcircuits.estimators.marginals_picture import percent
from fedcircuits.estimators.model import CircuitModel
from fedcircuits.estimators.pictures import circuit_picture, marginals_picture, picture
from fedcircuits.learning.table import Table

TARGET, EVIDENCE = "diagnosis", "mean radius > 15"
MEASURED = ("mean radius", "mean texture", "mean smoothness")  # of the patient with gaps
HIDDEN = ("mean area", "worst radius", "worst area", "mean concavity", TARGET)
SHOWN = (
    *("mean radius", TARGET, "worst area", "area error"),
    *("mean concave points", "worst concavity", "mean compactness", "mean texture"),
    *("worst texture", "mean smoothness", "worst symmetry", "mean fractal dimension"),
)

UNALIKE = (
    " The one most probable record has the other diagnosis: a class whose tumours are more alike "
    "has higher single peaks with less mass around them."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fedcircuits demo", description="Learn, answer, draw.")
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder for the report")
    parser.add_argument("--seed", type=int, default=7, help="of the split and of learning")
    options = parser.parse_args(arguments)
    try:
        run(options.output, options.seed)
    except (FedcircuitsError, OSError) as error:
        print(f"demo: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def run(folder: Path, seed: int) -> None:
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    table = datasets.load("breast_cancer")
    train, test = contest.split(table, TARGET, 0.3, np.random.default_rng(seed))
    opening = (
        f"{len(table)} tumours, {len(table.names) - 1} measurements and the diagnosis; learned "
        f"from {len(train)} of them, compared on the other {len(test)}."
    )
    print(f"Breast cancer: {opening}\n")
    model, results = compete(train, test, seed)
    grid = comparison(results)
    print("\n".join(grid.lines()), verdict(results), sep="\n\n", end="\n\n")
    asked = answers(model, test)
    for question, answer in asked:
        print(f"{question}\n  {answer}\n")
    _tell("drawing")
    png = report.png_of(picture(model, EVIDENCE, SHOWN))
    told = [*blocks(opening, grid, results, asked), *pictures_of(model)]
    page = report.page("A circuit of breast cancer data", told)
    for name, content in (("report.html", page.encode()), ("circuit.png", png)):
        report.write(folder / name, content)
        print(f"wrote {folder / name}")
    print(f"in {time.perf_counter() - began:.1f} s")


def compete(train: Table, test: Table, seed: int) -> tuple[CircuitModel, list[Result]]:
    """The circuit, and what all models reach on the test rows."""
    results = contest.baselines(train, test, TARGET, seed)
    others = contest.classifiers(train, test, TARGET)
    began = time.perf_counter()
    plan = contest.choose(train, TARGET, seed, _tell)
    _tell("learning from all training rows")
    model = contest.learn(train, TARGET, plan, seed)
    circuit = contest.result("circuit", model, test, TARGET, began)
    return model, [*results, others[0], circuit, others[1]]


def _tell(step: str) -> None:
    if sys.stderr.isatty():
        print(f"… {step}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------- in words


def comparison(results: Sequence[Result]) -> report.Grid:
    columns = ("model", "log-likelihood", "accuracy", "parameters", "seconds")
    rows = [
        (
            r.name,
            "—" if r.likelihood is None else f"{r.likelihood:.2f}",
            f"{r.accuracy:.1%}".replace("%", " %"),
            f"{r.parameters:,}",
            f"{r.seconds:.2f}",
        )
        for r in results
    ]
    caption = "Test rows: mean log-likelihood of a tumour with its diagnosis, in nats; accuracy"
    return report.Grid(columns, rows, f"{caption} of the diagnosis.")


def verdict(results: Sequence[Result]) -> str:
    likely = max((r for r in results if r.likelihood is not None), key=lambda r: r.likelihood or 0)
    best = max(r.accuracy for r in results)
    names = " and ".join(r.name for r in results if r.accuracy == best)
    return (
        f"Highest likelihood: {likely.name}. Highest accuracy: {names}. Logistic regression is "
        "trained for this one question and has no likelihood."
    )


def answers(model: CircuitModel, test: Table) -> list[tuple[str, str]]:
    return [_malignant(model), _area(model), _patient(model, test)]


def _malignant(model: CircuitModel) -> tuple[str, str]:
    event = f"{TARGET} = malignant"
    before, after = model.probability(event), model.probability(event, given=EVIDENCE)
    small = model.probability(event, given="mean radius < 12")
    text = f"{percent(float(before))}. If its mean radius is above 15: {percent(float(after))}; "
    return "How likely is a tumour malignant?", text + f"below 12: {percent(float(small))}."


def _area(model: CircuitModel) -> tuple[str, str]:
    parts = []
    for value in model.classes(TARGET):
        line = model.expect("worst area", given={TARGET: value}).loc["worst area"]
        parts.append(f"{line['mean']:,.0f} ± {line['variance'] ** 0.5:,.0f} if {value}")
    return "What worst area is to be expected?", f"{', '.join(parts)} (mean ± deviation)."


def _patient(model: CircuitModel, test: Table) -> tuple[str, str]:
    """The first malignant test row, of which only a few measurements are known."""
    frame = test.to_pandas()
    row = frame[frame[TARGET] == "malignant"].iloc[[0]]
    known = row[list(MEASURED)]
    filled = model.mpe(known)
    chance = float(np.asarray(model.probability(f"{TARGET} = malignant", given=known))[0])
    found = "; ".join(f"{n} {_value(filled[n].iloc[0])} ({_value(row[n].iloc[0])})" for n in HIDDEN)
    exact = "a lower bound: the best single path through the circuit, which is not deterministic"
    if filled.attrs["exact"]:
        exact = "exact: no other completion is more probable"
    measured = ", ".join(f"{n} {_value(known[n].iloc[0])}" for n in MEASURED)
    note = "" if (chance > 0.5) == (filled[TARGET].iloc[0] == "malignant") else UNALIKE
    return (
        f"A patient has only {measured}: what completes the record best?",
        f"{found}; in brackets what was hidden. This is {exact}. "
        f"Malignant with probability {percent(chance)}.{note}",
    )


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def blocks(
    opening: str,
    grid: report.Grid,
    results: Sequence[Result],
    asked: Sequence[tuple[str, str]],
) -> list[report.Block]:
    return [
        report.Paragraph(opening),
        report.Heading("Against plain baselines"),
        grid,
        report.Paragraph(verdict(results)),
        report.Heading("Three questions"),
        report.Answers(asked),
    ]


def pictures_of(model: CircuitModel) -> list[report.Block]:
    beliefs = report.png_of(marginals_picture(model, EVIDENCE, SHOWN))
    graph = report.png_of(circuit_picture(model.circuit_, model.parameters_))
    return [
        report.Heading("What the circuit has learned"),
        report.Picture(beliefs, f"Variables before and after it is known that {EVIDENCE}."),
        report.Picture(graph, "The circuit: sums ⊕ mix, products ⊗ join; wider lines weigh more."),
    ]


if __name__ == "__main__":
    sys.exit(main())
