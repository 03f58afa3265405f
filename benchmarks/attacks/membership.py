"""Membership: can whoever queries a model distinguish training rows from other rows of this kind?

The attacker queries the log-likelihood of a row, or the probability of its true class. Figures are
areas under the ROC curve over equally many training rows and fresh rows: 0.5 means that nothing is
revealed, 1 that every row is recognised. Likelihoods are attacked in two ways, and the better
result counts: as they are, and relative to a reference model that the attacker has trained on
different rows. "pooled" is the same kind of model trained on pooled rows: this part of the leak is
not caused by the federation.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import fedcircuits as fc
from benchmarks.attacks.federations import kinds
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.data import density_set

Scores = tuple[Any, Any]  # of rows learned from, of fresh ones
FIGURE = "AUC"
REFERENCE = 600  # rows
EPSILONS = (0.5, 1, 4)
PRODUCTS, HIDDEN = "MixtureOfProducts(8) by sums", "HiddenChowLiuTree(8) by sums"


def measures(seed: int) -> list[Measure]:
    found = []
    for data, draw in DENSITIES.items():
        for method, (model, split) in DENSITY_MODELS.items():
            if "Einsum" in method and "120" not in data:
                continue  # minutes
            attack = partial(density, draw, model, split, seed)
            found.append(attempt(FIGURE, {"method": method, "rows": data}, attack))
    for method, (model, split) in TABLE_MODELS.items():
        row = {"method": method, "rows": "breast cancer, 284 × 31"}
        found.append(attempt(FIGURE, row, partial(table_rows, model, split, seed)))
    return found


# ---------------------------------------------------------------------- booleans


def drawn_kinds(rows: int, seed: int) -> Any:
    """Rows to learn from, fresh ones, and the attacker's."""
    every = kinds(seed, 2 * rows + REFERENCE)
    return every[:rows], every[rows : 2 * rows], every[2 * rows :]


def drawn_nltcs(rows: int, seed: int) -> Any:
    with np.load(density_set("nltcs")) as file:
        every = file["train"].astype(bool)
    every = every[np.random.default_rng(seed).permutation(len(every))]
    return every[:rows], every[rows : 2 * rows], every[2 * rows : 2 * rows + REFERENCE]


DENSITIES: dict[str, Callable[[int], Any]] = {
    "of 30 kinds, 120 × 40": partial(drawn_kinds, 120),
    "of 30 kinds, 600 × 40": partial(drawn_kinds, 600),
    "nltcs, 600 × 16": partial(drawn_nltcs, 600),
}


def by_rows(table: fc.Table, seed: int) -> fc.Federation:
    return fc.split(table, 3, by="rows", seed=seed)


def by_columns(table: fc.Table, seed: int) -> fc.Federation:
    return fc.split(table, 3, by="columns", seed=seed)


def in_one_place(table: fc.Table, seed: int) -> fc.Table:
    return table


def seeded(model: Any, *arguments: Any, **settings: Any) -> Callable[[int], Any]:
    return lambda seed: made(partial(model, *arguments), {**settings, "random_state": seed})


def einsum(seed: int) -> Any:
    return fc.FedPC(fc.EinsumNetwork(), random_state=seed)


def chow_liu(seed: int, **settings: Any) -> Any:
    return made(fc.ChowLiuTree, settings)


def noisy(model: Callable[..., Any], epsilon: float) -> Callable[[int], Any]:
    """The model with differential privacy."""

    def with_privacy(seed: int) -> Any:
        if not hasattr(fc, "DifferentialPrivacy"):
            raise TypeError("no differential privacy")
        return model(seed, privacy=fc.DifferentialPrivacy(epsilon, 1e-5))

    return with_privacy


def products(seed: int, **settings: Any) -> Any:
    return made(partial(fc.MixtureOfProducts, 8), {**settings, "random_state": seed})


def hidden_tree(seed: int, **settings: Any) -> Any:
    return made(partial(fc.HiddenChowLiuTree, 8), {**settings, "random_state": seed})


Model = tuple[Callable[[int], Any], Callable[[fc.Table, int], Any]]
DENSITY_MODELS: dict[str, Model] = {
    "FedPC, rows": (seeded(fc.FedPC), by_rows),
    "FedPC, columns": (seeded(fc.FedPC), by_columns),
    "LearnSPN, pooled": (seeded(fc.LearnSPN), in_one_place),
    "FedPC(EinsumNetwork()), rows": (einsum, by_rows),
    "EinsumNetwork, pooled": (seeded(fc.EinsumNetwork), in_one_place),
    "PrivateForest": (seeded(fc.PrivateForest), by_rows),
    "99 products, pooled": (seeded(fc.MixtureOfProducts, 99), in_one_place),
    "ChowLiuTree, rows": (chow_liu, by_rows),
    **{f"ChowLiuTree, ε = {e}": (noisy(chow_liu, e), by_rows) for e in EPSILONS},
    "MixtureOfProducts(8) by sums": (products, by_rows),
    **{f"MixtureOfProducts(8) by sums, ε = {e}": (noisy(products, e), by_rows) for e in EPSILONS},
    "HiddenChowLiuTree(8) by sums": (hidden_tree, by_rows),
    **{
        f"HiddenChowLiuTree(8) by sums, ε = {e}": (noisy(hidden_tree, e), by_rows) for e in EPSILONS
    },
}


def density(draw: Any, model: Any, split: Any, seed: int) -> float:
    seen, fresh, other = (fc.Table.of(part) for part in draw(seed))
    fitted = model(seed).fit(split(seen, seed))
    scores = fitted.score_samples(seen), fitted.score_samples(fresh)
    known = _reference(other, seed)
    above = [s - known.score_samples(t) for s, t in zip(scores, (seen, fresh), strict=True)]
    return max(auc(scores), auc((above[0], above[1])))


def _reference(table: fc.Table, seed: int) -> Any:
    return fc.MixtureOfProducts(10, random_state=seed).fit(table)


def auc(scores: Scores) -> float:
    seen, fresh = scores
    member = np.concatenate([np.ones(len(seen)), np.zeros(len(fresh))])
    return float(roc_auc_score(member, np.concatenate([seen, fresh])))


# ---------------------------------------------------------------------- a table with classes


@cache
def cancer(seed: int) -> tuple[fc.Table, fc.Table]:
    table = fc.datasets.load("breast_cancer")
    order = np.random.default_rng(seed).permutation(len(table))
    return table.rows(order[:284]), table.rows(order[284:568])


def alone(table: fc.Table, seed: int) -> fc.Federation:
    return fc.Federation({"all": table})


TABLE_MODELS: dict[str, Model] = {
    "FedPC, columns": (seeded(fc.FedPC), by_columns),
    "FedPC, rows": (seeded(fc.FedPC), by_rows),
    "LearnSPN, pooled": (seeded(fc.LearnSPN), in_one_place),
    "VerticalGaussianMixture(3)": (seeded(fc.VerticalGaussianMixture, 3), by_columns),
    "FedTrees, rows": (seeded(fc.FedTrees, target="diagnosis"), by_rows),
    "FedTrees, columns": (
        seeded(fc.FedTrees, target="diagnosis", share_target=True),
        by_columns,
    ),
    "FedTrees, pooled": (seeded(fc.FedTrees, target="diagnosis"), alone),
    "FeatureFusion": (seeded(fc.FeatureFusion, target="diagnosis", share_target=True), by_columns),
}


def table_rows(model: Any, split: Any, seed: int) -> float:
    seen, fresh = cancer(seed)
    fitted = model(seed).fit(split(seen, seed))
    return auc((_said(fitted, seen, seed), _said(fitted, fresh, seed)))


def _said(fitted: Any, table: fc.Table, seed: int) -> Any:
    """Log-likelihoods, or the probability of the true class."""
    if hasattr(fitted, "score_samples"):
        return fitted.score_samples(table)
    truth = table.column("diagnosis")
    places = [list(fitted.classes()).index(value) for value in truth]
    asked = by_columns(table, seed) if isinstance(fitted, fc.FeatureFusion) else table
    return fitted.predict_proba(asked)[np.arange(len(truth)), places]
