"""The learners that ``best_density`` tries, for the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.learner import Learner
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.normals import MixtureOfNormals
from fedcircuits.estimators.trees import ChowLiuTree, MixtureOfChowLiuTrees
from fedcircuits.tables.schema import Schema

MANY_COLUMNS = 150  # LearnSPN tests all pairs: of more columns, hidden trees come first


@dataclass(frozen=True, slots=True)
class Candidate:
    """A learner: one size of a kind."""

    kind: str
    size: int
    make: Callable[[int], Learner]  # of a number of epochs
    epochs: bool = False  # whether it counts by them
    next: int = 0  # the size of this kind that comes after it, if any

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}" if self.size else self.kind


def candidates(schema: Schema, seed: int | None) -> list[Candidate]:
    """Learners that suit the columns, cheap ones first, and LearnSPN among the first."""
    first, *products = [_products(k, seed) for k in (1, 3, 8, 32)]
    spn = Candidate("LearnSPN", 0, lambda _: LearnSPN(random_state=seed))
    hidden = [_hidden_tree(k, n, seed) for k, n in ((8, 16), (16, 32), (32, 0))]
    normals = _normals(schema, seed)
    if len(schema) > MANY_COLUMNS:
        learners = [first, *normals[:1], *hidden, spn, *normals[1:], *products]
    else:
        learners = [first, spn, *products, *normals, *hidden]
    if all(v.size for v in schema):
        learners.insert(2, Candidate("Chow–Liu tree", 0, lambda _: ChowLiuTree(random_state=seed)))
        learners += [_tree_mixture(n, seed) for n in (10, 20, 40)]
    learners.append(
        Candidate("LearnSPN mixed", 8, lambda _: LearnSPN(ensemble=8, random_state=seed))
    )
    learners.append(
        Candidate(
            "einsum network", 16, lambda n: EinsumNetwork(16, epochs=n, random_state=seed), True
        )
    )
    return learners + [_hidden_tree(k, n, seed) for k, n in ((64, 128), (128, 256), (256, 0))]


def _products(components: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return MixtureOfProducts(components, random_state=seed)

    return Candidate("mixture of products", components, make)


def _normals(schema: Schema, seed: int | None) -> list[Candidate]:
    """Where columns are real numbers."""
    if sum(v.kind == "real" for v in schema) < 2:
        return []

    def one(components: int) -> Candidate:
        def make(epochs: int) -> Learner:
            return MixtureOfNormals(components, random_state=seed)

        return Candidate("mixture of normals", components, make)

    return [one(k) for k in (1, 3, 8, 20)]


def _hidden_tree(units: int, following: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return HiddenChowLiuTree(units, epochs=epochs, random_state=seed)

    return Candidate("hidden Chow–Liu tree", units, make, True, following)


def _tree_mixture(components: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return MixtureOfChowLiuTrees(
            components, ensemble=8, smoothing=10.0, max_iter=15, random_state=seed
        )

    return Candidate("mixtures of Chow–Liu trees", components, make)
