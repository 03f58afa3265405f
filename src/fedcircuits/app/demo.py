"""A demonstration: three hospitals learn one model without pooling their data.

The breast cancer data of scikit-learn have 569 tumours, 30 measurements of cell nuclei, and the
diagnosis. The rows are divided at random, several times, into training rows (70 %) and test
rows. The training rows are split among three hospitals by rows (with different shares of
diagnoses), by columns, and by both. Every hospital alone, the federation, and one learner with
all rows are compared on the same test rows, which are used for nothing else. The folder ``demo``
gets report.html and circuit.png. The same seed gives the same report, except for the time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcircuits import datasets
from fedcircuits.app import crossing, report, screen
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.estimators.circuit_model import CircuitModel
from fedcircuits.estimators.fedpc import FedPC
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import Model
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.split import Skew, split
from fedcircuits.pictures.drawing import Drawing, beside, figure_of
from fedcircuits.pictures.federation import bytes_drawing, federated_drawing
from fedcircuits.pictures.marginals import Beliefs, marginals_drawing, percent
from fedcircuits.tables.table import Table

TARGET, EVENT, EVIDENCE = "diagnosis", "diagnosis = malignant", "mean radius > 15"
HOSPITALS = ["north", "south", "west"]
SPLITS: dict[str, Skew] = {"rows": "label", "columns": None, "both": None}
SHOWN = (
    *("mean radius", TARGET, "worst area", "mean concavity", "worst concave points"),
    *("area error", "mean texture", "worst smoothness", "worst symmetry"),
)


@dataclass(frozen=True, slots=True)
class Result:
    likelihood: float | None  # mean log-likelihood per test row; None: it lacks columns
    accuracy: float
    bytes: int | None = None  # that crossed


Results = dict[str, list[Result]]  # by model, one per trial


def run(folder: Path, seed: int, divisions: int) -> None:
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    table = datasets.load("breast_cancer")
    results: Results = {}
    models: dict[str, FedPC] = {}
    for trial in range(divisions):
        rng = np.random.default_rng([seed, trial])
        train, test = held_out(table, 0.3, rng)
        fitted = compete(train, test, int(rng.integers(2**31)), results)
        models = models or fitted  # questions and pictures are of the first trial
    opening = introduction(table, len(train), len(test), divisions)
    grid, vertical = comparison(results, train), models["columns"]
    screen.say(f"{opening}\n")
    screen.show(grid)
    screen.say("\nWhat was revealed to whom, split by columns:")
    screen.show(crossing.revealed(vertical.ledger_))
    collected = vertical.collect()
    questions = answers(vertical, collected)
    for question, answer in questions:
        screen.say(f"\n{question}\n  {answer}")
    screen.tell("drawing")
    drawings = graph(vertical), beliefs(collected)
    blocks = page(opening, grid, models, questions, drawings)
    text = report.page("Three hospitals, one model", blocks).encode()
    png = report.png_of(figure_of(beside(*drawings)))
    screen.say()
    for name, content in (("report.html", text), ("circuit.png", png)):
        report.write(folder / name, content)
        screen.say(f"wrote {folder / name}")
    screen.say(f"in {time.perf_counter() - began:.1f} s")


# ---------------------------------------------------------------------- learning


def held_out(table: Table, share: float, rng: np.random.Generator) -> tuple[Table, Table]:
    """Training rows and test rows, stratified by diagnosis."""
    codes = table.values[:, table.schema.index(TARGET)]
    drawn = np.zeros(len(table), dtype=bool)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        drawn[members[: round(share * len(members))]] = True
    return table.rows(~drawn), table.rows(drawn)


def compete(train: Table, test: Table, seed: int, results: Results) -> dict[str, FedPC]:
    """Fit and compare all models of one trial; the federated ones are returned by split."""

    def compare(name: str, model: Model, crossed: int | None = None) -> None:
        complete = set(model.schema_.names) == set(test.names)
        right = model.predict(test, TARGET) == test.column(TARGET)
        result = Result(model.score(test) if complete else None, float(right.mean()), crossed)
        results.setdefault(name, []).append(result)

    def alone(federation: Federation, name: str) -> LearnSPN:
        return LearnSPN(target=TARGET, random_state=seed).fit(federation[name].table)

    screen.tell("learning from all rows in one place")
    compare("all rows, LearnSPN", LearnSPN(target=TARGET, random_state=seed).fit(train))
    plain = MixtureOfProducts(8, target=TARGET, random_state=seed).fit(train)
    compare("all rows, mixture of 8 products", plain)
    models: dict[str, FedPC] = {}
    for by, skew in SPLITS.items():
        screen.tell(f"learning split by {by}")
        federation = split(train, HOSPITALS, by=by, skew=skew, target=TARGET, seed=seed)  # type: ignore[arg-type]
        for name in (p.name for p in federation if TARGET in p.table.names):
            compare(f"by {by}: {name} alone", alone(federation, name))
        models[by] = FedPC(target=TARGET, random_state=seed).fit(federation)
        compare(f"by {by}: federated", models[by], models[by].ledger_.bytes)
    return models


# ---------------------------------------------------------------------- in words


def introduction(table: Table, learned: int, tested: int, divisions: int) -> str:
    often = f"Means over {divisions} random splits." if divisions > 1 else "One random split."
    return (
        f"Breast cancer: {len(table)} tumours, {len(table.names) - 1} measurements and the "
        f"diagnosis. Three hospitals train on {learned} of them, divided in three ways, and are "
        f"compared on the other {tested}. {often}"
    )


def comparison(results: Results, train: Table) -> report.TextTable:
    rows = []
    for name, trials in results.items():
        crossed = [r.bytes for r in trials if r.bytes is not None]
        size = f"{np.mean(crossed):,.0f}" if crossed else "—"
        if name.startswith("all rows"):
            size = f"{train.values.nbytes:,}"
        likely = [r.likelihood for r in trials if r.likelihood is not None]
        accuracy = float(np.mean([r.accuracy for r in trials]))
        rows.append((name, _spread(likely), f"{100 * accuracy:.1f} %", size))
    caption = (
        "Mean log-likelihood per test row in nats (± standard deviation over splits; — if a "
        "hospital lacks columns), accuracy of the diagnosis, and bytes sent to train it "
        "(all rows: the table itself, 8 bytes per number)."
    )
    return report.TextTable(("model", "log-likelihood", "accuracy", "bytes"), rows, caption)


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}" if values else "—"


def answers(model: FedPC, collected: CircuitModel) -> list[tuple[str, str]]:
    """Questions answered across the parties, and by the collected circuit."""
    before = len(model.queries_)
    prior, after = (float(np.asarray(model.probability(EVENT, given=g))) for g in (None, EVIDENCE))
    crossed = Ledger(model.queries_.entries[before:])
    apart = abs(after - float(np.asarray(collected.probability(EVENT, given=EVIDENCE))))
    same = f"up to {apart:.0e}" if apart else "bit for bit"
    who = sorted({e.receiver for e in crossed} - {COORDINATOR})
    first = (
        f"{percent(prior)}; if its mean radius is above 15: {percent(after)}. Leaves stayed "
        f"where they are: {' and '.join(who)} were queried, {crossed.bytes:,} bytes were sent in "
        f"{len(crossed)} messages. The collected circuit gives the same number, {same}."
    )
    return [
        ("Split by columns: how likely is a tumour malignant?", first),
        ("What worst area is expected?", _area(model)),
    ]


def _area(model: FedPC) -> str:
    parts = []
    for value in model.classes(TARGET):
        line = model.expect("worst area", given={TARGET: value}).loc["worst area"]
        parts.append(f"{line['mean']:,.0f} ± {line['variance'] ** 0.5:,.0f} if {value}")
    return f"{', '.join(parts)} (mean ± standard deviation)."


# ---------------------------------------------------------------------- the report


def page(
    opening: str,
    grid: report.TextTable,
    models: Mapping[str, FedPC],
    questions: Sequence[tuple[str, str]],
    drawings: tuple[Drawing, Drawing],
) -> list[report.Block]:
    vertical, (circuit, distributions) = models["columns"], drawings
    crossed = figure_of(bytes_drawing({f"by {by}": m.ledger_ for by, m in models.items()}))
    return [
        report.Paragraph(opening),
        report.Heading("All rows in one place, each hospital alone, and the federation"),
        grid,
        report.Heading("Queries across the hospitals"),
        report.Answers(questions),
        report.Heading("The circuit of three hospitals"),
        report.Picture(
            report.png_of(figure_of(circuit)),
            "Split by columns. Squares are circuits that a hospital keeps, one for each cluster of "
            "its rows; dots join clusters that occur in the same patient; wider lines have larger "
            "weights.",
        ),
        report.Picture(
            report.png_of(figure_of(distributions)),
            f"Distributions before and after the evidence {EVIDENCE}.",
        ),
        report.Heading("What was sent"),
        report.Picture(report.png_of(crossed), "Bytes of training by phase, for each split."),
        crossing.by_phase(vertical.ledger_),
        report.Heading("What was revealed to whom, split by columns"),
        crossing.revealed(vertical.ledger_),
    ]


def graph(model: FedPC) -> Drawing:
    weights = model.joint_.parameters[model.circuit_.root.name][WEIGHT][0]
    return federated_drawing(model.circuit_, model.placement_, HOSPITALS, weights)


def beliefs(collected: CircuitModel) -> Drawing:
    given = collected._given(EVIDENCE)
    return marginals_drawing(Beliefs(collected._distribution, *given), SHOWN)
