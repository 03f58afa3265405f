"""A mixture of multivariate normals and of tables for the remaining columns, suited to few rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedcircuits.arguments import COLUMN, FLAG, SEED, Declared, Real, Whole
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.graph.structures import by_kind
from fedcircuits.circuits.leaves import MultivariateGaussian
from fedcircuits.estimators.federated import SUMMATION
from fedcircuits.estimators.federated_learner import NO_PRIVACY, SharedByEM
from fedcircuits.estimators.learner import in_memory
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.batches import Source
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.starts import softened, start_from
from fedcircuits.learning.summed.apart import beside, columns_apart, of_columns
from fedcircuits.learning.summed.bins import RULES, binned_columns, histogram_start, with_outside
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows
from fedcircuits.methods.shared.training import HUB, in_one_place
from fedcircuits.tables.schema import Schema

NORMAL = "multivariate_gaussian"
LEAST = 1e-6  # variance of a normal, relative to that of its narrowest column
FAR = 100.0  # how far from 0 a column lies whose origin is moved, in widths of the column
Binned = Mapping[int, str]  # families of columns that are not in normals


class MixtureOfNormals(SharedByEM):
    """A mixture with one normal for all real columns, and a table or rate for every other column.

    With a ``target`` that has classes every component is of one class. Components borrow from each
    other, so that few rows of each suffice: covariances are drawn towards what they have in common,
    frequencies towards those of all rows. Real columns of which one number is common, such as 0, or
    a few lie far out, and counts that no Poisson distribution describes have histograms.

    ``fit`` takes one table, or a federation of parties that hold different rows of the same
    columns. The parties then compute sums, and the mixture is the one that EM learns from all rows.

    Parameters
    ----------
    components : int, default=1
        The number of components, per class if the target has classes.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    pooled : float, default=10.0
        The number of pseudo-rows with the pooled covariance that are added to every component.
    smoothing : float, default=2.0
        The number of pseudo-rows with the column's overall distribution that are added to every
        component, for columns outside the normals.
    apart : bool, default=False
        Whether columns that depend on no other column stay outside of the components, each with a
        distribution of its own.
    max_iter : int, default=30
        The maximum number of EM iterations.
    tol : float, default=1e-3
        EM stops when the mean log-likelihood per row improves by less than this.
    summation : Summation, default=Hub()
        How the parties of a federation compute sums: ``Hub()``, ``Tree(graph)``, or ``Secret()``,
        which hides the contributions of single parties.
    privacy : None
        Differential privacy is refused: the influence of a row on EM statistics is unbounded.
    random_state : int or None, default=None
        The seed of the clusters; None draws one.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(2, size=60)
    >>> x = rng.normal(size=(60, 2)) + 3 * kind[:, None]
    >>> table = Table.of({"a": x[:, 0], "b": x[:, 1], "ill": kind == 1})
    >>> model = MixtureOfNormals(target="ill", random_state=0).fit(table)
    >>> model.predict_proba(table).shape
    (60, 2)
    """

    allowed: ClassVar[Declared] = {
        "components": Whole(1), "target": COLUMN, "pooled": Real(above=0),
        "smoothing": Real(least=0), "apart": FLAG, "max_iter": Whole(1), "tol": Real(least=0),
        "summation": SUMMATION, "privacy": NO_PRIVACY, "random_state": SEED,
    }  # fmt: skip

    def __init__(
        self,
        components: int = 1,
        *,
        target: str | None = None,
        pooled: float = 10.0,
        smoothing: float = 2.0,
        apart: bool = False,
        max_iter: int = 30,
        tol: float = 1e-3,
        summation: Summation = HUB,
        privacy: None = None,
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.target = target
        self.pooled = pooled
        self.smoothing = smoothing
        self.apart = apart
        self.max_iter = max_iter
        self.tol = tol
        self.summation = summation
        self.privacy = privacy
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        values = in_memory(rows, type(self).__name__).values
        origin = _origins(values, schema)
        learned = in_one_place(values - origin, schema, self, int(rng.integers(2**31)))
        circuit, fitted = learned.beginning.circuit, learned.fitted
        self.start_ = _moved(circuit, learned.beginning.start, origin)
        moved = replace(fitted, parameters=_moved(circuit, fitted.parameters, origin))
        self._keep_fitted(circuit, moved)

    # ------------------------------------------------------------------ by sums

    def clusters_summed(self, schema: Schema) -> tuple[int, int | None]:
        """One cluster per component."""
        return self.components, self._classes(schema)

    def _classes(self, schema: Schema) -> int | None:
        if self.target is None or not schema[self.target].size:
            return None
        return schema.index(self.target)

    def beginning(self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator) -> Beginning:
        """Initial components from clusters of summed statistics."""
        alone = columns_apart(rows, self._classes(schema)) if self.apart else []
        rest = [i for i in range(len(schema)) if i not in alone]
        if not alone:
            return self._components(rows, schema, rng)
        inner = None
        if rest:
            part = of_columns(rows, rest)
            inner = self._components(part, part.sketch.schema, rng)
        whole = beside(inner, rows, alone)
        return replace(whole, rules={**RULES, NORMAL: self._rule(rows, schema, {})})

    def _components(
        self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator
    ) -> Beginning:
        classes = self._classes(schema)
        units = self.components * (1 if classes is None else schema.variables[classes].size)
        binned = binned_columns(rows.sketch)
        circuit = self._structure(schema, units, binned)
        soft = softened(rows.labels, units, rng)
        values = dict(start_from(circuit, rows.values, soft, rng).values)
        sizes = np.bincount(rows.labels, minlength=units) + 1.0
        values["root"] = {WEIGHT: (sizes / sizes.sum())[None]}
        if classes is not None:
            code = np.repeat(np.arange(float(units // self.components)), self.components)
            values["classes"] = {"code": code[:, None]}
        for i in binned:
            start = histogram_start(rows.sketch, i, rows.values[:, i], soft)
            values[f"bins:{schema.names[i]}"] = start
        rules = {**RULES, NORMAL: self._rule(rows, schema, binned)}
        wider = with_outside(circuit, Parameters(values), rows.values, rows.sketch)
        return Beginning(*wider, rules)

    def rounds(self) -> tuple[EMSchedule, float]:
        """Iterations until convergence; no rows are held out."""
        plan = EMSchedule(
            epochs=self.max_iter,
            tolerance=self.tol,
            patience=2,
            smoothing=0.5,
            behind=self.smoothing,
        )
        return plan, 0.0

    def _rule(self, rows: ClusteredRows, schema: Schema, binned: Binned) -> MultivariateGaussian:
        real = [i for i, v in enumerate(schema) if v.kind == "real" and i not in binned]
        spread = rows.values[:, real].var(axis=0) if real else np.ones(1)
        least = max(LEAST * float(spread.min()), 1e-300)
        return MultivariateGaussian(least, self.pooled)

    def _structure(self, schema: Schema, units: int, binned: Binned) -> Circuit:
        """A product of leaves of so many units, and their sum."""
        classes, groups = self._classes(schema), dict[tuple[str, str, int], list[str]]()
        for i, variable in enumerate(schema):
            if i == classes:
                key = "classes", "indicator", 0
            elif i in binned:
                key = f"bins:{variable.name}", binned[i], 0
            elif variable.kind == "real":
                key = "normals", NORMAL, 0
            else:
                family, levels = by_kind(variable), variable.levels
                key = f"{family}{levels or ''}", family, levels
            groups.setdefault(key, []).append(variable.name)
        leaves = [Leaf(n, f, tuple(scope), units) for (n, f, _), scope in groups.items()]
        nodes: list[Node] = [*leaves]
        if len(leaves) > 1:
            nodes.append(Product("component", tuple(leaf.name for leaf in leaves)))
        return Circuit((*nodes, Sum("root", (nodes[-1].name,))), schema)


def _origins(values: Array, schema: Schema) -> Array:
    """A number inside each real column that lies far from 0, where the first bins, between powers
    of two, would be far too wide for it; 0 for other columns."""
    origins = np.zeros(len(schema))
    for i, variable in enumerate(schema):
        column = values[~np.isnan(values[:, i]), i]
        if variable.kind == "real" and len(column):
            middle = float(np.median(column))
            origins[i] = middle if abs(middle) > FAR * np.ptp(column) else 0.0
    return origins


def _moved(circuit: Circuit, parameters: Parameters, origin: Array) -> Parameters:
    """Parameters of columns from which ``origin`` was taken, for the columns as they are."""
    if not origin.any():
        return parameters
    moved = dict(parameters.values)
    for leaf in circuit.leaves():
        by = origin[[circuit.schema.index(name) for name in leaf.scope]]  # (columns,)
        arrays = moved[leaf.name]
        if "mean" in arrays:
            moved[leaf.name] = {**arrays, "mean": arrays["mean"] + by}
        elif "edges" in arrays:
            moved[leaf.name] = {**arrays, "edges": arrays["edges"] + by[:, None]}
    return Parameters(moved)
