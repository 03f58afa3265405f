"""Reconstructing rows: do the tables of all pairs of columns determine the rows?

The coordinator of FedPC by columns receives, for every pair of columns, how many rows have which
cells of both, and of every column by class if there is a target; of pairs by class where rows are
many. The attacker searches for a table of cells that agrees with all of this, by simulated
annealing from several random tables (annealing.py), and takes its rows for the true ones, as Dick
et al. (2023, PNAS 120(8)) do with published statistics of a census. It knows no row. Figures are
shares of the true rows, as often as each occurs. A row is found if all its cells are right, as fine
as tables of pairs tell them, and its class: no name and no value, but ranges of values in all
columns of one person.

    reconstructed   rows of the tables that it finds, on average over starts with the least cost
    read of known people   rows of people whose cells at the first party the attacker knows, with
                    names: one row that it finds has them, and it is right
    surest true     of the rows found most often, one for twenty of the table, how many are true
    disagreement    cost of the best table: by how much its counts differ from those received,
                    squared and added up. With 0 it agrees with all of them
    drawn           rows that anybody draws from the model; only what goes beyond is of the tables
    surest drawn    of the rows drawn most often, as many, how many are true
    independent     rows of independent columns, with the right cells in each

"numbers" depend on two hidden numbers, and the class on one of these; half of the columns of
"booleans and numbers" are boolean. In 60 × 30, two cells of each number hold more bits than rows.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn import datasets

import fedcircuits as fc
from benchmarks.attacks.annealing import annealed, compiled, started
from benchmarks.attacks.measuring import Measure, attempt
from benchmarks.attacks.received import Bounds, bounds, told_apart
from benchmarks.attacks.wire import Role, Tap
from benchmarks.data import density_set
from benchmarks.federated.many_sets import vowels
from benchmarks.runner import Cell
from fedcircuits.errors import FederationError
from fedcircuits.methods.fedpc.cells import FinestCells, cells_of, finest_of
from fedcircuits.methods.fedpc.training import METHOD
from fedcircuits.methods.fedpc.views import cell_plans
from fedcircuits.methods.meeting.hello import Hello

STEPS = 600_000_000  # exchanges tried, times columns of a table, of all starts
STARTS = 20  # at most
FIRST = 2_000_000  # steps of the first start
LONGER = 4  # times as many has the next, until one agrees
HOT, COLD = 0.12, 0.03  # of a column: what the cost may rise by at the beginning and the end
SUREST = 0.05  # of the rows
DRAWN = 20  # tables that are drawn from the model
TARGET = "class"
FIGURES = (
    "reconstructed", "read of known people", "surest true", "disagreement", "drawn",
    "surest drawn", "independent",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A table, and how it is held."""

    data: str
    rows: int
    columns: int
    parties: int
    classes: int = 0
    least: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Cell]:
        setting = ", ".join(f"{name}={_said(value)}" for name, value in self.settings.items())
        if self.least != 5:
            setting = f"least_count={self.least}"
        return {
            "table": f"{self.data}, {self.rows} × {self.columns}",
            "parties": self.parties,
            "target": f"{self.classes} classes" if self.classes else "none",
            "setting": setting or "the default",
        }


def _said(value: Any) -> str:
    return "Secret()" if isinstance(value, fc.Secret) else repr(value)


MIXED, NUMBERS = "booleans and numbers", "numbers"
CASES = [
    *[Case(MIXED, 60, columns, parties, classes)
      for columns in (4, 8) for parties in (2, 4) for classes in (0, 2)],
    *[Case("wine", 178, 13, 4, classes) for classes in (0, 3)],
    Case("nltcs", 500, 16, 2),
    Case("nltcs", 500, 16, 4),
    Case("vowels", 448, 24, 24, 9),
    *[Case(NUMBERS, 120, 30, 4, classes) for classes in (0, 2, 8)],
    Case("breast cancer", 60, 30, 10),
    Case("breast cancer", 120, 30, 4),
    Case("breast cancer", 120, 30, 4, 2),
    Case("breast cancer", 120, 30, 4, least=20),
    Case("breast cancer", 120, 30, 4, settings={"dependence": "combinations"}),
    Case("breast cancer", 120, 30, 4, settings={"summation": fc.Secret()}),
]  # fmt: skip


def measures(seed: int) -> list[Measure]:
    found = []
    for case in CASES:
        run = cache(partial(Attacked.of, case, seed))
        for figure in FIGURES:
            found.append(attempt(figure, case.row(), partial(_figure, run, figure)))
    return found


def _figure(run: Any, figure: str) -> float:
    figures = run().figures
    if figure not in figures:
        raise FederationError("the coordinator received no tables of pairs")
    return float(figures[figure])


# ---------------------------------------------------------------------- tables


def table_of(case: Case, seed: int) -> fc.Table:
    rng = np.random.default_rng([seed, case.rows, case.columns, case.classes])
    if case.data == "nltcs":
        with np.load(density_set("nltcs")) as file:
            rows = rng.permutation(file["train"].astype(bool))[: case.rows]
        return fc.Table.of(rows)
    columns: dict[str, Any]
    if case.data == "vowels":
        frame = vowels(seed).iloc[: case.rows]
        frame = frame.rename(columns={"class": TARGET})
        return fc.Table.of(frame if case.classes else frame.drop(columns=TARGET))
    if case.data in (MIXED, NUMBERS):
        hidden = rng.normal(size=(case.rows, 2))
        x = hidden @ rng.normal(size=(2, case.columns)) + rng.normal(size=(case.rows, case.columns))
        boolean = [case.data == MIXED and i % 2 == 0 for i in range(case.columns)]
        columns = {f"x{i:02}": x[:, i] > 0 if boolean[i] else x[:, i] for i in range(case.columns)}
        y = (max(case.classes, 1) * norm.cdf(hidden[:, 0])).astype(int)
    else:
        load = {"wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}
        x, y = load[case.data](return_X_y=True)
        order = rng.permutation(len(x))[: case.rows]
        columns = {f"x{i:02}": x[order, i] for i in range(case.columns)}
        y = y[order]
    return fc.Table.of(columns | ({TARGET: [f"class {c}" for c in y]} if case.classes else {}))


# ---------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Attacked:
    figures: Mapping[str, float]

    @classmethod
    def of(cls, case: Case, seed: int) -> "Attacked":
        model, federation, role, target = fitted(case, seed)
        rng = np.random.default_rng([seed, 1])
        truth = Truth.of(federation, target)
        drawn = [truth.in_cells(model.sample(case.rows, random_state=i)) for i in range(DRAWN)]
        apart = [truth.independent(rng) for _ in range(DRAWN)]
        figures = {
            "drawn": _mean([truth.found(rows) for rows in drawn]),
            "surest drawn": truth.surest(drawn, rng),
            "independent": _mean([truth.found(rows) for rows in apart]),
        }
        if any(tag == "count/cells" for _, tag, _ in role.received):
            tables_, cost = reconstructed(bounds(role, federation.schema), seed)
            figures |= {
                "reconstructed": _mean([truth.found(rows) for rows in tables_]),
                "read of known people": _mean([truth.read(rows) for rows in tables_]),
                "surest true": truth.surest(tables_, rng),
                "disagreement": float(cost),
            }
        print(case.row(), figures, flush=True)
        return cls(figures)


def fitted(case: Case, seed: int) -> tuple[fc.FedPC, fc.Federation, Role, str | None]:
    """A model, its parties, what the coordinator sent and received, and the target."""
    target, table = TARGET if case.classes else None, table_of(case, seed)
    parties = fc.split(table, case.parties, by="columns", target=target, seed=seed)
    tables = {party.name: party.table for party in parties}
    federation, tap = fc.Federation(tables, least_count=case.least), Tap()
    model = fc.FedPC(target=target, random_state=seed, **case.settings)
    model.fit(federation, engine=tap)
    return model, federation, tap.role("coordinator"), target


@dataclass(frozen=True)
class Truth:
    """The rows in cells (rows, class and columns), which the attacker does not have."""

    cells: Any
    values: Any  # of the same columns
    names: list[str]
    ordered: list[bool]
    known: list[bool]  # columns of the first party
    schema: fc.Schema
    target: str | None

    @classmethod
    def of(cls, federation: fc.Federation, target: str | None) -> "Truth":
        schema = federation.schema
        hellos = {party.name: Hello.of(party.table, METHOD) for party in federation}
        columns = {}
        for name, plan in cell_plans(schema, hellos, target).items():
            table, least = federation[name].table, federation[name].least_count
            for task in plan.tasks:
                values = table.select([task.column]).values[:, 0]
                ordered, cells = not schema[task.column].size, cells_of(table, task, least)
                finest = FinestCells.of(finest_of(table, task, least), cells, least)
                states = told_apart(finest, plan, task, ordered)[cells]
                where = (task.column != target, name, ordered, task.column)
                columns[where] = values, states
        every = [columns[where] for where in sorted(columns)]
        cells = np.stack([own for _, own in every], axis=1)
        values = np.stack([own for own, _ in every], axis=1)
        _, holders, ordered, names = map(list, zip(*sorted(columns), strict=True))
        known = [party == federation.names[0] for party in holders]
        return cls(cells, values, names, ordered, known, schema, target)

    def with_class(self, cells: Any) -> Any:
        """One class for all where there is no target."""
        return cells if self.target else np.column_stack([np.zeros(len(cells), np.int64), cells])

    @property
    def rows(self) -> Any:
        return self.with_class(self.cells)

    def in_cells(self, drawn: Any) -> Any:
        """Rows that somebody draws, as if the ends of all cells were known."""
        values = fc.Table.of(drawn, schema=self.schema).select(self.names).values
        cells = np.empty(values.shape, np.int64)
        for at, ordered in enumerate(self.ordered):
            own, known = self.values[:, at], self.cells[:, at]
            if ordered:
                ends = [own[known == cell].max() for cell in range(known.max())]
                cells[:, at] = np.searchsorted(ends, values[:, at])
            else:
                states = np.full(self.schema[self.names[at]].size, -1)
                states[own.astype(int)] = known
                cells[:, at] = states[values[:, at].astype(int)]
        return self.with_class(cells)

    def independent(self, rng: np.random.Generator) -> Any:
        return self.with_class(rng.permuted(self.cells, axis=0))

    def found(self, rows: Any) -> float:
        """The share of true rows that these have, as often as each occurs."""
        true, said = _counted(self.rows), _counted(rows)
        return sum((true & said).values()) / len(self.cells)

    def read(self, rows: Any) -> float:
        """The share of people whose row somebody reads here who knows the first party's columns:
        one row has their cells there, and it is right."""
        known = np.flatnonzero(self.known) + (self.target is None)
        said = {tuple(row[known]): tuple(row) for row in rows}
        often = _counted(rows[:, known])
        read = [often[tuple(row[known])] == 1 and said[tuple(row[known])] == tuple(row)
                for row in self.rows]  # fmt: skip
        return _mean(read)

    def surest(self, tables: list[Any], rng: np.random.Generator) -> float:
        """Of the rows that tables have most often, which share is true."""
        often = _counted(np.concatenate(tables))
        rows, true = list(often), _counted(self.rows)
        rank = np.lexsort([rng.random(len(rows)), [-often[row] for row in rows]])
        few = math.ceil(SUREST * len(self.cells))
        return _mean([rows[at] in true for at in rank[:few]])


def _counted(rows: Any) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, rows.tolist()))


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def reconstructed(found: Bounds, seed: int, steps: int = STEPS) -> tuple[list[Any], int]:
    """Tables of the least cost (rows, class and columns), and this cost."""
    rules, width = compiled(found), len(found.columns)
    rng = np.random.default_rng([seed, 2])
    steps //= width
    left, length = steps, FIRST
    tables: list[tuple[int, Any]] = []
    while left >= length and len(tables) < STARTS:
        classes, table = started(found, rng)
        heat = HOT * width, COLD * width
        cost, table = annealed(rules, classes, table, length, *heat, len(tables))
        tables.append((cost, found.joined(classes, table)))
        left -= length
        if cost:
            length = min(LONGER * length, max(left, length))
        elif sum(not cost for cost, _ in tables) == 1:  # a few more, to see what differs
            left = min(left, max(steps // 10, 2 * length))
    least = min(cost for cost, _ in tables)
    return [table for cost, table in tables if cost == least], least
