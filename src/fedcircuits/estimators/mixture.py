"""A mixture of products: the plain baseline that every other model has to beat."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedcircuits.arguments import COLUMN, SEED, Declared, Real, Whole
from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.estimators.learner import Learner
from fedcircuits.learning.batches import Source
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.starts import MOST_ROWS, clusters, start_from
from fedcircuits.tables.schema import Schema


class MixtureOfProducts(Learner):
    """Components that each model every column on its own, learned by EM from k-means clusters.

    Parameters
    ----------
    components : int, default=8
        The number of components.
    target : str or None, default=None
        The column that ``predict`` predicts unless told otherwise.
    max_iter : int, default=200
        The largest number of iterations of EM.
    tol : float, default=1e-4
        EM stops when the mean log-likelihood per row gains less than this in an iteration.
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
    }  # fmt: skip

    def __init__(
        self,
        components: int = 8,
        *,
        target: str | None = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.target = target
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        circuit = mixture_of_products(schema, self.components)
        x = rows.some(MOST_ROWS, rng)
        start = start_from(circuit, x, clusters(x, schema, self.components, rng), rng)
        self._em(circuit, start, rows, EMSchedule(epochs=self.max_iter, tolerance=self.tol), rng)
