"""A mixture of products: the plain baseline that every other model has to beat."""

from __future__ import annotations

from typing import Self

import numpy as np

from fedcircuits.circuits.structures import mixture_of_products
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.learning.em import maximise_likelihood
from fedcircuits.learning.starts import clusters, start_from
from fedcircuits.learning.table import Table


class MixtureOfProducts(Model):
    """Components that each model every column on its own, learned by EM from k-means clusters.

    >>> table = Table.of({"age": [31, 47, 52, 28], "sex": ["f", "m", "f", "m"]})
    >>> model = MixtureOfProducts(components=2, random_state=0).fit(table)
    >>> model.predict_proba(table, "sex").shape
    (4, 2)
    """

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

    def fit(self, X: Rows, y: object = None) -> Self:
        table = Table.of(X)
        rng = np.random.default_rng(self.random_state)
        circuit = mixture_of_products(table.schema, self.components)
        assignment = clusters(table.values, table.schema, self.components, rng)
        found = maximise_likelihood(
            circuit,
            start_from(circuit, table.values, assignment, rng),
            table.values,
            iterations=self.max_iter,
            tolerance=self.tol,
        )
        self.circuit_, self.parameters_ = circuit, found.parameters
        self.history_, self.converged_ = found.history, found.converged
        return self
