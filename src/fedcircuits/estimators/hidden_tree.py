"""Hidden Chow–Liu trees (Liu and Van den Broeck 2021): a hidden state beside every variable.

The states are joined by the Chow–Liu tree of the variables, so that a variable depends on all
others through them; leaves and the weights between states are learned by EM over batches. The tree
is that of coarse columns (learning.chow_liu.coarse), leaves see every value. Leaves of categories
and of counts of known range have a probability for every level. EM adds to what a state has seen
``smoothing`` pseudo-rows that look as the whole column does, so that a level which some state has
not met is as rare there as elsewhere, and never impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import networkx as nx
import numpy as np
import torch

from fedcircuits.arguments import Declared, Real, Whole
from fedcircuits.circuits.evaluation.devices import device_of
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import LeafFamily, by_kind, family_of, latent_tree
from fedcircuits.circuits.leaves import Categorical
from fedcircuits.errors import StructureError
from fedcircuits.estimators.federated import SUMMATION
from fedcircuits.estimators.federated_learner import SharedByEM
from fedcircuits.estimators.learner import BY_BATCHES, hold_back
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.chow_liu.trees import learn_tree, tree_of_groups
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.learning.hidden_trees.priors import level_ranges
from fedcircuits.learning.starts import MOST_ROWS, clusters, softened, start_from
from fedcircuits.learning.summed.bins import RULES, binned_columns, histogram_start, with_outside
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows
from fedcircuits.methods.shared.training import HUB
from fedcircuits.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcircuits.tables.schema import Schema, Variable

TREE_ROWS = 10_000  # that the tree is learned from
MANY = 16  # levels; fewer of them are smoothed evenly


class HiddenChowLiuTree(SharedByEM):
    """A hidden state beside every variable, and the states joined by the Chow–Liu tree.

    It is learned from one table, or from a federation of parties that hold different rows of the
    same columns: the tree follows from summed counts, and an epoch is one round of EM over all rows
    at once, so that ``batch_size``, ``step`` and ``last_step`` do not matter.

    Parameters
    ----------
    units : int, default=32
        The number of values of every hidden state.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    epochs : int, default=50
        The maximum number of passes over the rows.
    batch_size : int, default=128
        The number of rows per update.
    step, last_step : float, default=0.3 and 0.01
        The step size of EM in the first and in the last epoch; 1 replaces the old statistics.
    smoothing : float, default=2.0
        The number of pseudo-rows that every unit of a leaf with many levels is given, distributed
        like the whole column.
    range_smoothing : float or "auto", default="auto"
        For leaves of 64 or more ordered levels, such as grey levels: the number of pseudo-rows that
        are distributed like the unit's own coarse histogram, with the levels inside a bin as in
        all columns together. "auto": 50 times ``smoothing`` at first, then after every epoch the
        number that is best for the held-out rows.
    weight_smoothing : float, default=0.05
        The number of pseudo-rows of every pair of a state and one that it leads to.
    restarts : int, default=1
        The number of starts, of which the one that is best after an epoch is learned to the end.
    validation : float, default=0.1
        The share of rows held out, on which the best epoch is chosen.
    tol : float, default=1e-4
        The smallest improvement per row and epoch that counts.
    patience : int, default=5
        Learning stops after this many epochs without improvement on the held-out rows.
    channels : int, default=1
        So many neighbouring columns share a hidden state, as the colours of a pixel do.
    leaf_family : str or callable, default=by_kind
        The family of the leaves, or a function from a variable to its family.
    summation : Summation, default=Hub()
        How the parties of a federation compute sums: ``Hub()``, ``Tree(graph)``, or ``Secret()``,
        which hides the contributions of single parties.
    privacy : DifferentialPrivacy or None, default=None
        Differential privacy for the rows of a federation by noise that the parties add to their
        counts; for categories and booleans only. ``epsilon_`` and the ledger report the epsilon
        spent.
    device : str, default="cpu"
        The torch device for learning from one table and for queries: "cpu", "cuda", "cuda:1".
    random_state : int or None, default=None
        The seed; the same seed gives the same model. None draws one.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = HiddenChowLiuTree(units=4, epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape
    (200,)
    """

    allowed: ClassVar[Declared] = {
        "units": Whole(1, 4096), "smoothing": Real(least=0), "weight_smoothing": Real(least=0),
        "range_smoothing": Real(least=0, or_=("auto",)),
        "restarts": Whole(1), "channels": Whole(1), **BY_BATCHES,
        "summation": SUMMATION, "privacy": PRIVACY,
    }  # fmt: skip
    alone: ClassVar[tuple[tuple[str, object, str], ...]] = (
        ("restarts", 1, "parties begin EM once"),
    )
    enough: ClassVar[int] = 10_000

    def __init__(
        self,
        units: int = 32,
        *,
        target: str | None = None,
        epochs: int = 50,
        batch_size: int = 128,
        step: float = 0.3,
        last_step: float = 0.01,
        smoothing: float = 2.0,
        range_smoothing: float | Literal["auto"] = "auto",
        weight_smoothing: float = 0.05,
        restarts: int = 1,
        validation: float = 0.1,
        tol: float = 1e-4,
        patience: int = 5,
        channels: int = 1,
        leaf_family: LeafFamily = by_kind,
        summation: Summation = HUB,
        privacy: DifferentialPrivacy | None = None,
        device: str = "cpu",
        random_state: int | None = None,
    ) -> None:
        self.units = units
        self.target = target
        self.epochs = epochs
        self.batch_size = batch_size
        self.step = step
        self.last_step = last_step
        self.smoothing = smoothing
        self.range_smoothing = range_smoothing
        self.weight_smoothing = weight_smoothing
        self.restarts = restarts
        self.validation = validation
        self.tol = tol
        self.patience = patience
        self.channels = channels
        self.leaf_family = leaf_family
        self.summation = summation
        self.privacy = privacy
        self.device = device
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        kept, held = hold_back(rows, self.validation, rng)
        x = kept.some(MOST_ROWS, rng)
        circuit = self._structure(x[:TREE_ROWS], schema)
        prior = {n: self.smoothing * m for n, m in column_marginals(x, schema).items()}
        rules = {"categorical": Categorical(prior=prior)}
        plan = replace(self.rounds()[0], batch_size=self.batch_size)
        start = self._start(circuit, x, kept, held, replace(plan, epochs=1), rules, rng)
        self._em(circuit, start, kept, plan, rng, validation=held, dtype=torch.float32, rules=rules)

    def _ranges(self) -> float | None:
        """Pseudo-rows that look as ranges, for one that looks as the column."""
        if self.range_smoothing == "auto":
            return None
        return self.range_smoothing / self.smoothing if self.smoothing else 0.0

    # ------------------------------------------------------------------ of a federation

    def clusters_summed(self, schema: Schema) -> tuple[int, int | None]:
        """One for every value of a hidden state; with a target that has classes, equally many of
        each of these, so that rare classes have states of their own."""
        classes = 0 if self.target is None else schema[self.target].size
        if self.target is None or not 1 < classes <= self.units:
            return self.units, None
        return self.units // classes, schema.index(self.target)

    def beginning(self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator) -> Beginning:
        """The tree of summed information, and states from summed clusters."""
        self._check_channels(schema)
        usual = self.leaf_family in (by_kind, by_kind.__name__) and self.channels == 1
        binned = binned_columns(rows.sketch, self.units == 1) if usual else {}
        families = {schema.names[i]: rule for i, rule in binned.items()}
        tree = tree_of_groups(schema, rows.information, self.channels)
        circuit = self._with_states(tree, schema, families)
        soft = softened(rows.labels, self.units, rng)
        values = dict(start_from(circuit, rows.values, soft, rng, 0.8).values)
        for i in binned:
            leaf = f"leaf:{schema.names[i]}"
            values[leaf] = histogram_start(rows.sketch, i, rows.values[:, i], soft)
        shares = marginals_of({v.name: c for v, c in zip(schema, rows.sketch.counts, strict=True)
                               if v.levels >= MANY})  # fmt: skip
        prior = {n: self.smoothing * m for n, m in shares.items()}
        ranges = level_ranges(schema, shares, self._ranges())
        rules = {**RULES, "categorical": Categorical(prior=prior, ranges=ranges)}
        start, sketch = Parameters(values), rows.sketch
        wider = with_outside(circuit, start, rows.values, sketch) if usual else (circuit, start)
        return Beginning(*wider, rules)

    def rounds(self) -> tuple[EMSchedule, float]:
        """Full-batch epochs; the best on held-out rows is kept."""
        schedule = EMSchedule(
            self.epochs, None, self.step, self.last_step, self.tol, self.patience,
            self.weight_smoothing, ranges=self._ranges(),
        )  # fmt: skip
        return schedule, self.validation

    # ------------------------------------------------------------------ both

    def _check_channels(self, schema: Schema) -> None:
        if len(schema) % self.channels:
            raise StructureError(
                f"channels must divide the number of columns, got {self.channels} for {len(schema)}"
            )

    def _structure(self, x: Array, schema: Schema) -> Circuit:
        self._check_channels(schema)
        return self._with_states(learn_tree(x, schema, channels=self.channels), schema)

    def _with_states(
        self, tree: nx.Graph, schema: Schema, families: Mapping[str, str] | None = None
    ) -> Circuit:
        """``families``: of variables whose leaves are not those of ``leaf_family``."""
        firsts = range(0, len(schema), self.channels)
        groups = {schema.names[i]: schema.names[i : i + self.channels] for i in firsts}

        def leaf_family(variable: Variable) -> str:
            apart = (families or {}).get(variable.name)
            return apart or family_of(variable, self.leaf_family)

        return latent_tree(schema, tree, self.units, leaf_family=leaf_family, groups=groups)

    def _start(
        self,
        circuit: Circuit,
        x: Array,
        kept: Source,
        held: InMemory | None,
        plan: EMSchedule,
        rules: Rules,
        rng: np.random.Generator,
    ) -> Parameters:
        """From clusters of the rows; of several starts the best on the held-out rows, if any."""
        best, most = None, -np.inf
        for _ in range(self.restarts):
            soft = clusters(x, circuit.schema, self.units, rng)
            start = start_from(circuit, x, soft, rng, aligned=0.8)
            if self.restarts == 1:
                return start
            fitted = maximise_likelihood(
                circuit, start, kept, schedule=plan, validation=held, rules=rules,
                dtype=torch.float32, rng=rng, device=device_of(self.device),
            )  # fmt: skip
            score = (fitted.validation or fitted.history)[-1]
            if best is None or score > most:
                best, most = fitted.parameters, score
        assert best is not None
        return best


def column_marginals(x: Array, schema: Schema) -> dict[str, Array]:
    """Frequencies of the levels of every column that has many, by name.

    What a column has not shown is given a row's weight, spread as in all columns of as many levels.
    """
    counts: dict[str, Array] = {}
    for column, variable in zip(x.T, schema, strict=True):
        if variable.levels >= MANY:
            seen = column[~np.isnan(column)].astype(np.int64)
            counts[variable.name] = np.bincount(seen, minlength=variable.levels).astype(np.float64)
    return marginals_of(counts)


def marginals_of(counts: Mapping[str, Array]) -> dict[str, Array]:
    """The same of counts of levels, by column."""
    pooled: dict[int, Array] = {}
    for table in counts.values():
        pooled[len(table)] = pooled.get(len(table), 1.0) + table
    marginals = {n: c + pooled[len(c)] / pooled[len(c)].sum() for n, c in counts.items()}
    return {n: c / c.sum() for n, c in marginals.items()}
