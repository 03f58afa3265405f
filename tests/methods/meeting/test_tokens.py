"""Rows that are matched privately: the same model where all parties hold all rows, and rows that
not all hold are matched with none."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.methods.meeting import intersection
from fedcircuits.testing import check_messages, check_protocol
from tests.federation.cases import QUICK, mixed_table
from tests.methods.meeting.matching import listing, matching, parties
from tests.methods.watched import Broken, Watched, read

try:
    intersection.openmined()
except ExtraMissingError as missing:
    pytest.skip(str(missing), allow_module_level=True)

IDS = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)
UNEVEN = [[3, 1, 2, 9], [5, 2, 3, 9], [2, 9, 7]]


@settings(max_examples=25, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=3), st.booleans())
def test_rows_that_all_hold_are_matched_and_no_others(
    held: list[list[int]], coordinated: bool
) -> None:
    results = memory.run(matching(parties(held), coordinated, rule="private")).results
    shared = set.intersection(*map(set, held))
    places: dict[int, list[int]] = {}
    for i, rows in enumerate(held):
        own = results[f"p{i}"]
        assert sorted(own.order.tolist()) == list(range(len(rows)))
        for k, at in zip(own.order.tolist(), own.at.tolist(), strict=True):
            places.setdefault(at, []).append(rows[k])
    alone = sum(len(set(rows) - shared) for rows in held)
    assert len(places) == own.total == len(shared) + alone
    together = [ids for ids in places.values() if len(ids) == len(held)]
    assert all(len(set(ids)) == 1 for ids in together)
    if len(held) > 1:
        assert {ids[0] for ids in together} == shared
        assert all(len(ids) == 1 for ids in places.values() if ids not in together)


def test_the_target_is_told_of_rows_that_all_hold() -> None:
    labels = {1: 0, 2: 1, 3: 0, 5: 1, 9: 0, 7: 1}
    engine = Watched()
    outcome = engine(listing(parties(UNEVEN), labels, "private"))
    for i in range(2):
        y = outcome.results[f"p{i}"][1]
        expected = [labels[r] if r in (2, 9) else np.nan for r in UNEVEN[i]]
        assert np.array_equal(y, expected, equal_nan=True)
    told = [read(m.data)["values"] for _, m in engine.messages if m.tag == "labels/target"]
    assert [len(values) for values in told] == [2, 2]
    assert not any(m.tag.startswith("psi") for _, m in engine.messages if m.party == COORDINATOR)


def test_laws_and_malformed_messages() -> None:
    flows = listing(parties(UNEVEN), dict.fromkeys(range(10), 1), "private")
    check_protocol(flows, without=["processes"])
    assert check_messages(flows, most=60) == 60


# ---------------------------------------------------------------------- models

TABLE = mixed_table(120, seed=2)
NUMBERS = fc.Table.of(np.random.default_rng(0).normal(size=(80, 6)))
COLUMNS, NUMBER_COLUMNS = fc.split(TABLE, 3, by="columns"), fc.split(NUMBERS, 3, by="columns")
SHARED: dict[str, Any] = {"target": "risk", "share_target": True}
SMALL: dict[str, Any] = {"learner": QUICK, "clusters": 2, "ensemble": 1}
MODELS: dict[str, tuple[type, dict[str, Any], fc.Federation]] = {
    "FedPC": (fc.FedPC, {**SMALL, **SHARED}, COLUMNS),
    "FedPC, EM": (fc.FedPC, {**SMALL, "weights": "em"}, COLUMNS),
    "FedTrees": (fc.FedTrees, {"trees": 3, "threshold": "macro-f1", **SHARED}, COLUMNS),
    "mixture": (fc.VerticalGaussianMixture, {"n_components": 3, "max_iter": 5}, NUMBER_COLUMNS),
    "k-means": (fc.VerticalKMeans, {"n_clusters": 3}, NUMBER_COLUMNS),
    "fusion": (fc.FeatureFusion, {"epochs": 2, **SHARED}, COLUMNS),
}


def answers(name: str, rows: str) -> Any:
    kind, settings, federation = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(**settings, rows=rows, random_state=0).fit(federation)
    assert any(e.tag.startswith("psi/") for e in model.ledger_) == (rows == "private")
    if isinstance(model, fc.FedTrees):
        return model.predict_proba(TABLE)
    if isinstance(model, fc.FeatureFusion):
        return model.predict_proba(federation)
    if isinstance(model, fc.VerticalKMeans):
        return np.append(model.predict(federation), model.inertia_)
    return model.score_samples(TABLE if isinstance(model, fc.FedPC) else federation)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_those_of_tokens(name: str) -> None:
    """And of another run with one seed: the order of rows is another one in each."""
    tolerance = 1e-6 if name == "fusion" else 1e-9  # a fusion reckons with 32 bits
    first, again, private = (answers(name, rows) for rows in ("tokens", "tokens", "private"))
    np.testing.assert_allclose(again, first, atol=tolerance, rtol=0)
    np.testing.assert_allclose(private, first, atol=tolerance, rtol=0)


def test_a_run_that_failed_goes_on_with_the_same_tokens() -> None:
    engine = Broken("party 2", "graph/leaves")
    model = fc.FedPC(**SMALL, rows="private", random_state=0)
    with pytest.raises(fc.FedcircuitsError):
        model.fit(COLUMNS, engine=engine)
    model.fit(COLUMNS, engine=engine, resume=True)
    assert any("sealing its row ids" in step for _, step in engine.kept[1])
    expected = fc.FedPC(**SMALL, random_state=0).fit(COLUMNS).score_samples(TABLE)
    np.testing.assert_allclose(model.score_samples(TABLE), expected, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_without_the_extra_an_error_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "private_set_intersection.python", None)
    kind, settings, federation = MODELS[name]
    with pytest.raises(ExtraMissingError, match=r"pip install 'fedcircuits\[psi\]'"):
        kind(**settings, rows="private").fit(federation)
