"""A mixture of fully factorised distributions: the baseline for all other models."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedcircuits.arguments import COLUMN, SEED, Declared, Real, Whole
from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.estimators.federated import SUMMATION
from fedcircuits.estimators.federated_learner import SharedByEM
from fedcircuits.estimators.learner import DEVICE
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.batches import Source
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.starts import MOST_ROWS, clusters, softened, start_from
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows
from fedcircuits.methods.shared.training import HUB
from fedcircuits.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcircuits.tables.schema import Schema


class MixtureOfProducts(SharedByEM):
    """A mixture of products of univariate distributions, learned by EM from k-means clusters.

    ``fit`` takes one table, or a federation of parties that hold different rows of the same
    columns. The parties then compute sums, and the mixture is the one that EM learns from all rows.

    Parameters
    ----------
    components : int, default=8
        The number of components.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    max_iter : int, default=200
        The maximum number of EM iterations.
    tol : float, default=1e-4
        EM stops when the mean log-likelihood per row improves by less than this.
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
        The seed of the clusters; None draws one.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> table = Table.of({"age": [31, 47, 52, 28], "sex": ["f", "m", "f", "m"]})
    >>> model = MixtureOfProducts(components=2, random_state=0).fit(table)
    >>> model.predict_proba(table, "sex").shape
    (4, 2)
    """

    allowed: ClassVar[Declared] = {
        "target": COLUMN, "max_iter": Whole(1), "tol": Real(least=0), "random_state": SEED,
        "device": DEVICE, "summation": SUMMATION, "privacy": PRIVACY,
    }  # fmt: skip

    def __init__(
        self,
        components: int = 8,
        *,
        target: str | None = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        summation: Summation = HUB,
        privacy: DifferentialPrivacy | None = None,
        device: str = "cpu",
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.target = target
        self.max_iter = max_iter
        self.tol = tol
        self.summation = summation
        self.privacy = privacy
        self.device = device
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        circuit = mixture_of_products(schema, self.components)
        x = rows.some(MOST_ROWS, rng)
        start = start_from(circuit, x, clusters(x, schema, self.components, rng), rng)
        self._em(circuit, start, rows, self.rounds()[0], rng)

    # ------------------------------------------------------------------ of a federation

    def clusters_summed(self, schema: Schema) -> tuple[int, int | None]:
        """One cluster per component."""
        return self.components, None

    def beginning(self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator) -> Beginning:
        """Initial components from clusters of summed statistics."""
        circuit = mixture_of_products(schema, self.components)
        soft = softened(rows.labels, self.components, rng)
        return Beginning(circuit, start_from(circuit, rows.values, soft, rng))

    def rounds(self) -> tuple[EMSchedule, float]:
        """Iterations until convergence; no rows are held out."""
        return EMSchedule(epochs=self.max_iter, tolerance=self.tol), 0.0
