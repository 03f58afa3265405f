"""LearnSPN finds structure, survives any table, repeats itself, and reaches its figures."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits import (
    Circuit,
    CircuitModel,
    FedcircuitsError,
    Leaf,
    LearnSPN,
    Parameters,
    Product,
    Schema,
    Sum,
    Table,
    Variable,
)
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.learning.spn.clustering import Features
from fedcircuits.learning.spn.dependence import Dependence
from fedcircuits.learning.spn.learn_spn import PRESETS, SPNSettings, learn_spn

NAN = np.nan
MIXED = Schema(
    (
        Variable("r"),
        Variable("n", "count"),
        Variable("c", "category", (0, 1, 2)),
        Variable("b", "boolean"),
        Variable("one", "category", (0,)),
    )
)


def fit(
    x: np.ndarray, schema: Schema, chosen: SPNSettings | None = None, seed: int = 0, weight=None
) -> CircuitModel:
    rng = np.random.default_rng(seed)
    circuit, parameters = learn_spn(x, schema, chosen or SPNSettings(), rng, weight)
    parameters.check(circuit)
    return CircuitModel(circuit, parameters)


def mixed(rng: np.random.Generator, rows: int) -> np.ndarray:
    kind = rng.integers(0, 2, rows)
    columns = [
        rng.normal(5 * kind),
        rng.poisson(2 + 8 * kind),
        np.where(rng.random(rows) < 0.8, 2 * kind, 1),
        rng.random(rows) < 0.5,
        np.zeros(rows),
    ]
    return np.stack(columns, axis=1).astype(float)


def booleans(count: int) -> Schema:
    return Schema(tuple(Variable(f"b{i}", "boolean") for i in range(count)))


def blocks(circuit: Circuit) -> set[frozenset[str]]:
    assert isinstance(circuit.root, Product)
    return {circuit.scopes[c] for c in circuit.root.children}


# ---------------------------------------------------------------------- structure


def test_independent_groups_of_columns_become_a_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 3000))
    flip = rng.random((6, 3000)) < 0.15
    x = np.stack([(a if i < 3 else b) ^ flip[i] for i in range(6)], axis=1).astype(float)
    found = blocks(fit(x, booleans(6)).circuit_)
    assert found == {frozenset({"b0", "b1", "b2"}), frozenset({"b3", "b4", "b5"})}


def test_mixed_columns_that_depend_stay_together() -> None:
    model = fit(mixed(np.random.default_rng(1), 3000), MIXED)
    assert blocks(model.circuit_) == {frozenset({"r", "n", "c"}), frozenset({"b", "one"})}
    sums = [n for n in model.circuit_.nodes if isinstance(n, Sum) and len(n.children) > 1]
    assert sums


def test_a_mixture_is_learned_better_than_its_marginals() -> None:
    rng = np.random.default_rng(2)
    train, test = mixed(rng, 2000), mixed(rng, 1000)
    whole = fit(train, MIXED).score(test)
    alone = fit(train, MIXED, SPNSettings(min_rows=10_000, trees=False)).score(test)
    assert whole > alone + 1


def test_trees_keep_dependence_in_small_parts() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 500)
    x = np.stack([a, a ^ (rng.random(500) < 0.1), rng.integers(0, 2, 500)], axis=1).astype(float)
    few = {"min_rows": 1000}
    tree = fit(x, booleans(3), SPNSettings(**few))
    plain = fit(x, booleans(3), SPNSettings(trees=False, **few))
    assert tree.score(x) > plain.score(x) + 0.3
    assert isinstance(plain.circuit_.root, Leaf)
    lone = next(n for n in tree.circuit_.leaves() if n.family == "bernoulli")
    assert lone.scope == ("b2",)  # no edge that gains nothing


@pytest.mark.parametrize("name", PRESETS)
def test_presets_learn(name: str) -> None:
    rng = np.random.default_rng(4)
    model = fit(mixed(rng, 800), MIXED, PRESETS[name])
    assert np.isfinite(model.score(mixed(rng, 100)))


# ---------------------------------------------------------------------- repetition, weights


@pytest.mark.parametrize("rows", [300, 1500])
def test_one_seed_gives_one_model(rows: int) -> None:
    x = mixed(np.random.default_rng(5), rows)
    first, second = (fit(x, MIXED, seed=7) for _ in range(2))
    assert first.circuit_ == second.circuit_ and first.parameters_ == second.parameters_


def test_weights_of_discrete_rows_count_as_repetitions() -> None:
    rng = np.random.default_rng(6)
    x = mixed(rng, 400)[:, 2:]
    weight = rng.integers(0, 4, 400)
    schema = Schema(MIXED.variables[2:])
    once = fit(x, schema, weight=weight.astype(float))
    again = fit(np.repeat(x, weight, axis=0), schema)
    assert once.circuit_ == again.circuit_
    assert np.allclose(once.score_samples(x), again.score_samples(x), atol=1e-9)


def test_rows_of_weight_zero_do_not_exist() -> None:
    x = mixed(np.random.default_rng(7), 300)
    weight = np.ones(300)
    weight[100:] = 0
    some, only = fit(x, MIXED, weight=weight), fit(x[:100], MIXED)
    assert some.circuit_ == only.circuit_ and some.parameters_ == only.parameters_


# ---------------------------------------------------------------------- any table


@settings(max_examples=40)
@given(
    rows=st.sampled_from([1, 2, 3, 10, 70, 250]),
    holes=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
    chosen=st.sampled_from(
        [
            SPNSettings(),
            SPNSettings(min_rows=1),
            SPNSettings(min_rows=3, clusters=40, trees=False),
            SPNSettings(min_rows=5, test="rdc", threshold=0.0),
            SPNSettings(smoothing=0.0, min_rows=20),
        ]
    ),
    spoil=st.sampled_from(["", "constant", "missing", "equal", "large"]),
    seed=st.integers(0, 99),
)
def test_no_table_is_too_odd(
    rows: int, holes: float, chosen: SPNSettings, spoil: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = mixed(rng, rows)
    x[rng.random(x.shape) < holes] = NAN
    if spoil == "equal":
        x = np.repeat(x[:1], rows, axis=0)
    else:
        x[:, 0] = {"constant": 5.0, "missing": NAN, "": x[:, 0], "large": 1e9 + 1e7 * x[:, 0]}[
            spoil
        ]
    model = fit(x, MIXED, chosen, seed)
    assert np.isfinite(model.score_samples(x)).all()
    assert model.score_samples(np.full((1, 5), NAN))[0] == pytest.approx(0, abs=1e-9)
    unseen = np.array([[0.0, 99.0, 2.0, 1.0, 0.0]])
    assert np.isfinite(model.score_samples(unseen)).all()


def test_one_column_and_a_class_with_one_example() -> None:
    rng = np.random.default_rng(8)
    assert isinstance(fit(rng.normal(size=(50, 1)), Schema.real(1)).circuit_.root, Leaf | Sum)
    x = mixed(rng, 300)
    x[:, 3] = 0
    x[17, 3] = 1
    model = fit(x, MIXED, SPNSettings(min_rows=20))
    assert np.isfinite(model.score_samples(x)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((0, 5))}, "at least one row"),
        ({"weight": np.zeros(4)}, "all 0"),
        ({"weight": np.ones(3)}, "a weight for each of 4 rows"),
        ({"weight": -np.ones(4)}, "not negative"),
        ({"x": np.zeros((4, 2))}, "expected 5 columns"),
        ({"chosen": SPNSettings(test="g")}, "'r' is a real"),
    ],
)
def test_tables_that_cannot_be_learned_say_why(change: dict[str, object], message: str) -> None:
    given_table = {"x": mixed(np.random.default_rng(0), 4), "schema": MIXED, **change}
    with pytest.raises(FedcircuitsError, match=message):
        fit(**given_table)  # type: ignore[arg-type]


def test_a_table_without_columns() -> None:
    with pytest.raises(TableError, match="at least one column"):
        fit(np.zeros((3, 0)), Schema(()))


@pytest.mark.parametrize(
    "wrong",
    [{"min_rows": 0}, {"clusters": 1}, {"test": "f"}, {"threshold": -1.0}, {"smoothing": -1.0}],
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        SPNSettings(**wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- figures


@pytest.mark.parametrize(("name", "least"), [("nltcs", -6.06), ("plants", -12.95)])
def test_density_sets_reach_their_figures(data: Path, name: str, least: float) -> None:
    path = data / "debd" / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with np.load(path) as file:
        train, test = (file[n].astype(float) for n in ("train", "test"))
    begin = time.process_time()
    model = fit(train, booleans(train.shape[1]))
    assert time.process_time() - begin < 20
    assert model.score(test) > least


def test_values_of_a_column_divide_rows_where_clusters_do_not() -> None:
    """Normals that overlap make no clusters, but the group they come from is known."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 900)
    x, y = rng.normal(0.7 * group), rng.normal(-0.7 * group)
    rows = Table.of({"group": [f"g{g}" for g in group], "x": x, "y": y})
    model = LearnSPN(random_state=0).fit(rows)
    for g in range(3):
        mean = model.expect("x", given=f"group = g{g}")["mean"]["x"]
        assert float(mean) == pytest.approx(0.7 * g, abs=0.15)


@pytest.mark.parametrize("target", [None, "group"])
def test_rare_values_divide_no_rows_of_their_own(target: str | None) -> None:
    """With a least count every part stands for as many rows."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [400, 197, 3])
    rows = Table.of({"group": [f"g{g}" for g in group], "x": rng.normal(2.0 * group)})
    model = LearnSPN(random_state=0, least_count=10, target=target).fit(rows)
    parts = [
        n.name for n in model.circuit_.nodes if isinstance(n, Sum) and ":" not in str(n.children)
    ]
    shares = [model.parameters_[name]["weight"] for name in parts]
    assert shares and all((600 * share > 9.99).all() for share in shares)


def rows_of_parts(circuit: Circuit, parameters: Parameters, rows: int) -> list[float]:
    """Of every child of a sum over rows; not of those over the states of a tree, or over a family
    and its trace."""
    reach, found = {circuit.root.name: float(rows)}, []
    for node in reversed(circuit.nodes):
        if node.name not in reach or isinstance(node, Leaf):
            continue
        shares = [1.0] * len(node.children)
        if isinstance(node, Sum):
            if node.units > 1 or len(node.children) == 1 or node.children[1].endswith(":out"):
                continue
            shares = parameters[node.name]["weight"][0].tolist()
            found += [reach[node.name] * share for share in shares]
        reach |= {n: reach[node.name] * s for n, s in zip(node.children, shares, strict=True)}
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", [None, "group", "load"])
def test_a_least_count_holds_in_every_part(seed: int, target: str | None) -> None:
    """Also of a part of a table, with gaps and rare groups, whatever divides the rows."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(300) < 0.02, 7, rng.integers(0, 3 + seed % 3, 300))
    columns = {
        "group": [f"g{g}" for g in group],
        "x": rng.normal(2.0 * group),
        "load": rng.normal(size=300) * (1 + group),
        "visits": rng.poisson(1.0 + group),
        "ill": rng.random(300) < 1 / (1 + group),
    }
    whole = Table.of(columns, kinds={"visits": "count"})
    values = np.where(rng.random(whole.values.shape) < 0.1 * (seed % 2), np.nan, whole.values)
    whole = Table(whole.schema, values)
    for part in (whole, whole.rows(np.flatnonzero(rng.random(300) < 0.5))):
        for least in (5, 20):
            model = LearnSPN(random_state=0, least_count=least, target=target)
            model = model.fit_part(part, whole) if len(part) < 300 else model.fit(part)
            parts = rows_of_parts(model.circuit_, model.parameters_, len(part))
            assert not parts or min(parts) > least - 1e-6
            assert parts or target != "group"


def test_p_values_of_a_part_are_computed_once() -> None:
    """They serve to group its columns, and then to find one that divides it."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 300).astype(float)
    values = np.stack([kind, rng.normal(kind), rng.normal(size=300)], axis=1)
    schema = Schema((Variable("kind", "boolean"), Variable("x"), Variable("y")))
    weight, rows, columns = np.ones(300, np.float32), np.arange(150), np.arange(3)
    features = Features.of(values, schema)

    def tested() -> Dependence:
        return Dependence(values, schema, weight, "evidence", None, features, rng)

    known, fresh = tested(), tested()
    known.of(rows, columns, features.part(rows, columns), weight[rows])
    assert known.chance(rows, columns, weight[rows]) is known.chance(rows, columns, weight[rows])
    for some in (columns, columns[:2], columns[1:]):
        again = known.chance(rows, some, weight[rows])
        np.testing.assert_allclose(again, fresh.chance(rows.copy(), some, weight[rows]), rtol=1e-4)
