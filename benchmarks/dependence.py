"""Dependence: power and false alarms of the test of independence, and what circuits answer.

    python -m benchmarks.run dependence

500 random tables of two or three columns whose dependence has a known shape (linear, monotone,
circular, by group), of mixed kinds, of strengths from none to strong and 200 to 100,000 rows. The
test by evidence (level 0.05) stands beside the fixed RDC threshold of 0.3. Then LearnSPN learns
some of the tables with either, and the mean of the second column given the upper quarter of the
first is held against that of 200,000 other rows of the same kind. No peers.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.learning.evidence import ScoredTable, dependent, p_values
from fedcircuits.learning.independence import rdc

SHAPES = ("linear", "monotone", "circular", "by group")
KINDS = ("real", "count", "boolean")
STRENGTHS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
ROWS = (200, 1000, 5000, 20_000, 100_000)
TABLES, LEVEL, OLD = 500, 0.05, 0.3
ASKED = 32  # tables that are learned
FRESH = 200_000
PICTURE = Path(__file__).parents[1] / "docs" / "dependence.png"


@dataclass(frozen=True, slots=True)
class Example:
    shape: str
    kind: str  # of the second column
    strength: float
    rows: int
    third: bool  # a column that depends on nothing

    def table(self, rows: int, seed: int) -> fc.Table:
        rng = np.random.default_rng(seed)
        x, y = _pair(self.shape, self.strength, rows, rng)
        columns: dict[str, object] = {"x": x, "y": _as_kind(y, self.kind, rng)}
        if self.third:
            columns["z"] = rng.choice(["a", "b", "c"], rows)
        return fc.Table.of(columns)


def _pair(
    shape: str, strength: float, rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two standardised numbers; ``strength`` is the share of the deviation that is shared."""
    x, e = rng.normal(size=(2, rows))
    noise = np.sqrt(1 - strength**2) * e
    if shape == "linear":
        return x, strength * x + noise
    if shape == "monotone":
        return np.exp(x), strength * np.tanh(2 * x) / 0.8 + noise
    if shape == "circular":
        t = rng.uniform(0, 2 * np.pi, rows)
        own = np.stack([np.cos(t), np.sin(t)]) * np.sqrt(2) * strength
        other = np.sqrt(1 - strength**2) * rng.normal(size=(2, rows))
        return own[0] + other[0], own[1] + other[1]
    group = rng.integers(0, 3, rows)
    return strength * 2 * (group - 1) + e, strength * 2 * (group == 1) + rng.normal(size=rows)


def _as_kind(y: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "real":
        return y
    if kind == "count":
        return np.asarray(rng.poisson(np.exp(0.7 + 0.7 * np.clip(y, -4, 4))))
    return np.asarray(y > 0.5)


def examples() -> list[Example]:
    rng = np.random.default_rng(17)
    return [
        Example(
            str(rng.choice(SHAPES)), str(rng.choice(KINDS)), float(rng.choice(STRENGTHS)),
            int(rng.choice(ROWS)), bool(rng.random() < 0.5),
        )
        for _ in range(TABLES)
    ]  # fmt: skip


def run() -> list[Json]:
    found = [_tested(e, seed) for seed, e in enumerate(examples())]
    table = _summary(found)
    print(f"\n{TABLES} tables: share in which the pair is called dependent")
    print_table(table)
    figure(found).savefig(PICTURE, dpi=120)
    print(f"written: {PICTURE}")
    asked = _asked()
    print("\nE[y given the upper quarter of x], in deviations of y, against fresh rows")
    print_table(asked)
    return [*table, *asked]  # type: ignore[list-item]


Tested = tuple[Example, bool, bool]


def _tested(example: Example, seed: int) -> Tested:
    table = example.table(example.rows, seed)
    weight = np.ones(len(table), dtype=np.float32)
    p = p_values(ScoredTable.of(table.values, table.schema), weight)
    old = rdc(table.values, table.schema.variables, np.random.default_rng(seed))
    return example, bool(dependent(p, LEVEL)[0, 1]), bool(old[0, 1] > OLD)


def _summary(found: list[Tested]) -> list[dict[str, Cell]]:
    lines = []
    for strength in STRENGTHS:
        row: dict[str, Cell] = {"strength": strength}
        for rows in ROWS:
            some = [f for f in found if f[0].strength == strength and f[0].rows == rows]
            new, old = (np.mean([f[k] for f in some]) if some else np.nan for k in (1, 2))
            row[f"{rows:,} rows"] = f"{new:.2f} (RDC {old:.2f})"
        lines.append(row)
    return lines


def figure(found: list[Tested]) -> Figure:
    """Power by strength, a panel for every shape; strength 0 shows false alarms."""
    picture = Figure(figsize=(12, 3.2), layout="constrained")
    panels = picture.subplots(1, len(SHAPES), sharey=True)
    for panel, shape in zip(panels, SHAPES, strict=True):
        for rows, colour in zip((ROWS[:2], ROWS[2:]), ("tab:orange", "tab:blue"), strict=True):
            some = [f for f in found if f[0].shape == shape and f[0].rows in rows]
            name = f"{rows[0]:,} to {rows[-1]:,} rows"
            for k, style in ((1, "-"), (2, ":")):
                hits = [[bool(f[k]) for f in some if f[0].strength == s] for s in STRENGTHS]
                shares = [np.mean(h) if h else np.nan for h in hits]
                test = "evidence" if k == 1 else "RDC > 0.3"
                panel.plot(STRENGTHS, shares, style, color=colour, label=f"{test}, {name}")
        panel.axhline(LEVEL, color="grey", lw=0.5)
        panel.set_title(shape)
        panel.set_xlabel("strength")
    panels[0].set_ylabel("called dependent")
    panels[2].legend(fontsize=7, loc="upper left")
    return picture


def _asked() -> list[dict[str, Cell]]:
    """Mean absolute error over tables of at most 20,000 rows, by shape."""
    chosen = [e for e in examples() if e.rows <= 20_000][:ASKED]
    errors: dict[str, list[tuple[float, float]]] = {}
    for seed, example in enumerate(chosen):
        errors.setdefault(example.shape, []).append(_errors(example, seed))
    return [
        {"shape": shape, "tables": len(e), "evidence": float(np.mean([a for a, _ in e])),
         "RDC > 0.3": float(np.mean([b for _, b in e]))}
        for shape, e in errors.items()
    ]  # fmt: skip


def _errors(example: Example, seed: int) -> tuple[float, float]:
    fresh = example.table(FRESH, 10_000 + seed)
    x, y = fresh.values[:, 0], fresh.values[:, 1]
    bound = float(np.quantile(x, 0.75))
    truth, scale = y[x > bound].mean(), y.std()
    train = example.table(example.rows, seed)
    found = []
    for test in ("evidence", "rdc"):
        model = fc.LearnSPN(test=test, random_state=0).fit(train)
        mean = model.expect("y", given=f"x > {bound}")["mean"]["y"]
        found.append(abs(float(mean) - truth) / scale)
    return found[0], found[1]
