"""The demo's models, all learned from the same rows: a circuit, plain baselines, and a classifier.

The circuit knows that measurements come in groups that say nearly the same (radius, perimeter and
area of a tumour). Columns are grouped by their correlation on the training rows; a group has a few
joint Gaussians, its shapes, and components mix the shapes of every group, each in its own
proportions. Every class has such a circuit, learned by EM from its rows; one root joins them:

    P(class) Σ_component P(component | class) Π_group Σ_shape P(shape | component) N(group; shape)

How coarse the groups are, and how many components and shapes there are, is decided on training rows
that are held back from learning; test rows decide nothing. With one group, component and shape it
is the plain Gaussian of every class, which is among the baselines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedcircuits.circuits.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.family import Array, Arrays
from fedcircuits.circuits.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.schema import Schema
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import CircuitModel, Model
from fedcircuits.learning.em import Schedule, maximise_likelihood
from fedcircuits.learning.starts import clusters, start_from
from fedcircuits.learning.table import Table

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a circuit is made of; groups are at least ``apart``, 1 − |correlation|, on average."""

    apart: float
    components: int
    shapes: int


GAUSSIAN = Plan(1.0, 1, 1)  # all columns in one group
PLANS = (
    GAUSSIAN,
    *(Plan(apart, *size) for apart in (0.5, 0.7) for size in ((2, 2), (4, 2), (4, 3))),
)


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    likelihood: float | None  # mean log-likelihood of a test row with its class; None: has none
    accuracy: float
    parameters: int | None
    seconds: float


# ---------------------------------------------------------------------- rows


def split(table: Table, target: str, share: float, rng: np.random.Generator) -> tuple[Table, Table]:
    """The rows without and with a share of every class, drawn at random."""
    codes = table.values[:, table.schema.index(target)]
    drawn = np.zeros(len(table), dtype=bool)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        drawn[members[: round(share * len(members))]] = True
    return table.rows(~drawn), table.rows(drawn)


# ---------------------------------------------------------------------- the circuit


def groups(table: Table, names: Sequence[str], least: float) -> list[tuple[str, ...]]:
    """Correlated columns together, by average linkage, the largest group first."""
    apart = 1 - np.abs(np.corrcoef(table.select(names).values.T))
    tree = linkage(squareform(apart, checks=False), "average")
    labels = fcluster(tree, least, "distance")
    found = [tuple(np.array(names)[labels == label].tolist()) for label in np.unique(labels)]
    return sorted(found, key=lambda group: -len(group))


def structure(schema: Schema, parts: Sequence[tuple[str, ...]], plan: Plan) -> Circuit:
    """The circuit of one class."""
    nodes: list[Node] = []
    for i, scope in enumerate(parts):
        family = "multivariate_gaussian" if len(scope) > 1 else "gaussian"
        nodes.append(Leaf(f"shapes {i}", family, scope, plan.shapes))
        nodes.append(Sum(f"group {i}", (f"shapes {i}",), plan.components))
    joined = tuple(f"group {i}" for i in range(len(parts)))
    nodes += [Product("components", joined), Sum("root", ("components",))]
    return Circuit(tuple(nodes), schema)


def learn(table: Table, target: str, plan: Plan, seed: int) -> CircuitModel:
    """A circuit a class, under a root that knows how frequent the classes are."""
    label, names = table.schema[target], [n for n in table.names if n != target]
    circuit = structure(table.schema.select(names), groups(table, names, plan.apart), plan)
    codes = table.values[:, table.schema.index(target)]
    nodes: list[Node] = []
    values: dict[str, Arrays] = {}
    inner: dict[str, tuple[Circuit, Parameters]] = {}
    for code, category in enumerate(map(str, label.categories)):
        mark, rest = f"is {category}", f"{category} rows"
        nodes += [Leaf(mark, "indicator", (target,)), Leaf(rest, CIRCUIT, tuple(names))]
        nodes.append(Product(category, (mark, rest)))
        values[mark] = {"code": np.full((1, 1), float(code))}
        x = table.rows(codes == code).select(names).values
        inner[rest] = (circuit, _parameters(circuit, x, plan.shapes, seed))
    nodes.append(Sum(target, tuple(map(str, label.categories))))
    counts = np.bincount(codes.astype(np.intp), minlength=label.size)
    values[target] = {WEIGHT: counts[None] / counts.sum()}
    whole = inline(Circuit(tuple(nodes), table.schema), Parameters(values, inner))
    return CircuitModel(*whole, target)


def _parameters(circuit: Circuit, x: Array, shapes: int, seed: int) -> Parameters:
    rng = np.random.default_rng(seed)
    start = start_from(circuit, x, clusters(x, circuit.schema, shapes, rng), rng)
    plan = Schedule(epochs=60, tolerance=1e-3)
    return maximise_likelihood(circuit, start, x, schedule=plan).parameters


def choose(table: Table, target: str, seed: int, tell: Callable[[str], None]) -> Plan:
    """The plan whose circuit, learned from three quarters of the rows, expects the others best."""
    kept, held_back = split(table, target, 0.25, np.random.default_rng(seed))
    scores = []
    for plan in PLANS:
        tell(f"trying {plan.components} components of {plan.shapes} shapes a group")
        scores.append(learn(kept, target, plan, seed).score(held_back))
    return PLANS[int(np.argmax(scores))]


# ---------------------------------------------------------------------- all of them


def result(name: str, model: Model, test: Table, target: str, began: float) -> Result:
    right = model.predict(test, target) == test.column(target)
    seconds = time.perf_counter() - began
    return Result(name, model.score(test), float(right.mean()), model.parameters_.count(), seconds)


def baselines(train: Table, test: Table, target: str, seed: int) -> list[Result]:
    """Plain densities: no structure, a mixture, a Gaussian a class."""
    found = []
    for name, components in (("factorised", 1), ("mixture of 8 products", 8)):
        began = time.perf_counter()
        model = MixtureOfProducts(components, target=target, random_state=seed).fit(train)
        found.append(result(name, model, test, target, began))
    began = time.perf_counter()
    plain = learn(train, target, GAUSSIAN, seed)
    return [*found, result("a Gaussian per class", plain, test, target, began)]


def classifiers(train: Table, test: Table, target: str) -> list[Result]:
    """Naive Bayes, which has a likelihood, and logistic regression, which has none."""
    (x, y), (x_test, y_test) = (_features(t, target) for t in (train, test))
    began = time.perf_counter()
    bayes = GaussianNB().fit(x, y)
    joint = bayes.predict_joint_log_proba(x_test)  # (rows, classes)
    likelihood = float(joint[np.arange(len(joint)), y_test].mean())
    right = float((joint.argmax(axis=1) == y_test).mean())
    size = 2 * bayes.theta_.size + len(bayes.class_prior_)
    naive = Result("naive Bayes", likelihood, right, size, time.perf_counter() - began)
    began = time.perf_counter()
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
    right = float(linear.score(x_test, y_test))
    seconds = time.perf_counter() - began
    return [naive, Result("logistic regression", None, right, x.shape[1] + 1, seconds)]


def _features(table: Table, target: str) -> tuple[npt.NDArray[np.float64], Rows]:
    at = table.schema.index(target)
    return np.delete(table.values, at, axis=1), table.values[:, at].astype(np.intp)
