"""No sum of a circuit by sums is about fewer rows of all parties than the least count."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.methods.shared.em import HEAD, SCALE
from fedcircuits.methods.shared.suspects import _rest
from fedcircuits.methods.shared.units import Units
from tests.methods.shared.learners import LEARNERS, mixed
from tests.methods.watched import Watched, read

LEAST = 5
OUTLIER = 7


def totals(model: Any, tables: fc.Federation) -> dict[str, Any]:
    """By tag what all parties have added up; with a hub it can be read."""
    engine, summed = Watched(), dict[str, Any]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(tables, engine=engine)
    for sender, message in engine.messages:
        if sender != "coordinator" and message.tag.startswith("shared/"):
            values = read(message.data).get("values")
            if values is not None:
                summed[message.tag] = summed.get(message.tag, 0.0) + np.asarray(values)
    return summed


def with_outlier(rows: int = 90) -> fc.Table:
    table = mixed(rows)
    values = table.values.copy()
    values[OUTLIER, :2] = 500.0, -700.0
    return fc.Table(table.schema, values)


def few(rows: Any) -> Any:
    return (rows > 0.01) & (rows < LEAST - 0.01)


def units_of(circuit: Any, parameters: Any) -> Units:
    program = CircuitProgram(circuit)
    nothing = torch.zeros((0, len(circuit.schema)), dtype=torch.float64)
    return Units.of(program, program.counts(nothing, program.pack(parameters)))


@pytest.mark.parametrize("name", LEARNERS)
def test_nothing_is_told_of_a_unit_that_few_rows_pass_through(name: str) -> None:
    """An outlier is a component of its own, whose statistics are the values of its row."""
    model = LEARNERS[name]()
    summed = totals(model, fc.split(with_outlier(), 3))
    units = units_of(model.circuit_, model.parameters_)
    rounds = [tag for tag in summed if tag.startswith("shared/counts/")]
    assert rounds
    for tag in rounds:
        assert not few(units.rows(summed[tag][-len(units.unit) :] / SCALE)).any()
    passing = [summed[tag.replace("counts", "rows")][HEAD:] / SCALE for tag in rounds]
    assert few(np.concatenate(passing)).any()


def test_nothing_but_its_size_is_told_of_a_small_cluster() -> None:
    table = mixed(90)
    label = np.where(np.arange(90) % 15 == 0, "rare", np.where(np.arange(90) % 2, "a", "b"))
    columns = {"x": table.column("x"), "y": table.column("y"), "label": label}
    declared = fc.Table.of(columns, categories={"label": ["a", "b", "rare"]})
    model = fc.MixtureOfNormals(2, target="label", max_iter=2, random_state=0)
    summed = totals(model, fc.split(declared, 3))
    told = [tag for tag in summed if tag.startswith(("shared/centres", "shared/spread"))]
    sizes = [tag for tag in told if tag.endswith("/rows")]
    assert any(few(summed[tag]).any() for tag in sizes)  # six rows in two clusters
    for tag in set(told) - set(sizes):
        assert not few(summed[tag].reshape(len(summed[f"{tag}/rows"]), -1)[:, 0]).any()


@pytest.mark.parametrize("kind", ["boolean", "category", "missing"])
def test_sums_do_not_depend_on_which_row_has_a_rare_value(kind: str) -> None:
    """Where one row alone has a value, sums over rows with this value are about this row."""

    def told(at: int) -> dict[str, Any]:
        table = mixed(90)
        if kind == "missing":
            rare: Any = np.full(90, np.nan)
            rare[at] = 1.0
        else:
            rare = np.arange(90) == at
            rare = rare if kind == "boolean" else np.where(rare, "one", "all")
        columns = {"x": table.column("x"), "y": table.column("y"), "rare": rare}
        columns |= {"calls": table.column("calls"), "wet": table.column("wet")}
        known = {"rare": ["all", "one"]} if kind == "category" else None
        kinds = {"rare": "boolean"} if kind == "missing" else None
        return totals(
            fc.MixtureOfNormals(2, max_iter=2, random_state=0),
            fc.split(fc.Table.of(columns, categories=known, kinds=kinds), 3),
        )

    one, other = told(OUTLIER), told(40)
    assert one.keys() == other.keys()
    for tag in one:
        np.testing.assert_allclose(one[tag], other[tag], rtol=0, atol=1e-6)


def test_sums_with_and_without_a_suspect_keep_the_least_count() -> None:
    table = with_outlier(200)
    parties = fc.split(table, 5)
    tables = {p.name: p.table for p in parties}
    odd = tables["party 4"]
    tables["party 4"] = fc.Table(odd.schema, odd.values * np.array([-3, 1, 1, 1, 1, 1]))
    method = fc.MixtureOfNormals(1, max_iter=2)
    model = fc.FedPC(method=method, summation=fc.Hub(), random_state=0)
    summed = totals(model, parties.with_tables(tables))
    units = units_of(*model.views_["party 1"].parameters.circuits["shared"])
    told = [t for t in summed if t.startswith(("shared/totals", "shared/with"))]
    sizes = [tag for tag in told if tag.endswith("/rows")]
    assert any(few(summed[tag]).any() for tag in sizes)
    assert any(tag.startswith("shared/without") for tag in told)
    for tag in set(told) - set(sizes):
        assert not few(units.rows(summed[tag])).any()


def test_what_others_add_is_no_rounding_error() -> None:
    """Of a category that only one party has, with a fixed point: a negative count was refused, and
    the training with it."""
    own = np.array([0.1 + 0.2, 2.0, -7.0])
    for rounding in (2.0**-41, -(2.0**-41)):
        total = np.array([own[0] + rounding, 5.0, -9.0])
        assert _rest(total, own).tolist() == [0.0, 3.0, -2.0]
