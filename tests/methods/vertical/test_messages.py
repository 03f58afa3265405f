"""Malformed messages of vertical mixtures, k-means and their answers blame whoever sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Program
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Tree
from fedcircuits.testing import check_messages
from tests.methods.vertical.mixtures import blocks_of, clustered, federation

X = clustered(30, 5)
PARTIES = federation(X, blocks_of(5, 3), np.random.default_rng(0).random((30, 3)) < 0.9)


class Recorder:
    """The memory engine; it remembers the programs that it last ran."""

    programs: Mapping[str, Program[Any]]

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.programs = programs
        return memory.run(programs, kept)


def programs(model: Any, parties: fc.Federation = PARTIES, rows: Any = None) -> Any:
    """Of training; or of the question in which component these rows are."""
    recorder = Recorder()
    model.fit(parties, engine=recorder)
    if rows is not None:
        model.predict(rows)
    return recorder.programs


SUMMATIONS = {"hub": Hub(), "tree": Tree("path"), "gossip": Chebyshev("path", tolerance=1e-2)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", SUMMATIONS)
def test_training_of_mixtures(how: str) -> None:
    model = fc.VerticalGaussianMixture(3, max_iter=2, random_state=0, summation=SUMMATIONS[how])
    assert check_messages(programs(model), most=300 if how == "hub" else 120) >= 120


@pytest.mark.filterwarnings("ignore")
def test_columns_that_move_into_hubs() -> None:
    """Mixed columns without row ids, weights and a component that begins anew."""
    frame = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(e=["x", "y", "z"] * 10)
    columns = {"north": ["a", "e"], "east": ["b"], "south": ["c"], "west": ["d"]}
    parties = fc.Federation({name: frame[own] for name, own in columns.items()})
    start = np.vstack([X[:2, :4], np.full(4, 1e4)])
    model = fc.VerticalGaussianMixture(
        3, max_iter=2, means_init=start, batch_size=20, summation=Tree("path"), hops=1,
        random_state=0,
    )  # fmt: skip
    recorder = Recorder()
    model.fit(parties, engine=recorder, sample_weight=np.arange(1.0, 31.0))
    assert {e.phase for e in model.ledger_} == {"agree", "hub", "em", "result"}
    assert any(e.tag.startswith("em/worst") for e in model.ledger_)
    assert check_messages(recorder.programs, most=200) == 200


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", SUMMATIONS)
def test_training_of_k_means(how: str) -> None:
    model = fc.VerticalKMeans(3, max_iter=2, random_state=0, summation=SUMMATIONS[how])
    assert check_messages(programs(model), most=120) == 120


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [fc.VerticalGaussianMixture, fc.VerticalKMeans])
@pytest.mark.parametrize("rows", [X, PARTIES], ids=["table", "parties"])
def test_answers(kind: Any, rows: Any) -> None:
    assert check_messages(programs(kind(3, max_iter=2, random_state=0), rows=rows)) > 30


@pytest.mark.filterwarnings("ignore")
def test_only_the_first_party_has_the_secret_that_hides_row_ids() -> None:
    """It tells the other parties a key, and a coordinator never has one."""
    model = fc.VerticalGaussianMixture(3, max_iter=2, random_state=0)
    for asked in (None, PARTIES):
        each = programs(model, rows=asked)
        assert [n for n, p in each.items() if p.arguments.get("secret")] == ["north"]
