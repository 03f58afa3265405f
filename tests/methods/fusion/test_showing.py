"""What representations say of rows, in the ledger's words: with some encoders they are columns."""

from __future__ import annotations

import numpy as np

import fedcircuits as fc
from tests.methods.watched import Watched, read

X = np.random.default_rng(0).normal(3.0, 2.0, (80, 4))
COLUMNS = "(its columns, standardised)"


def parties() -> fc.Federation:
    north = {"id": np.arange(80), "a": X[:, 0], "b": X[:, 1], "up": X.sum(axis=1) > 12}
    south = {"id": np.arange(80), "c": X[:, 2], "d": X[:, 3], "up": X.sum(axis=1) > 12}
    return fc.Federation({"north": north, "south": south}, row_id="id")


def test_a_ledger_says_where_representations_are_columns() -> None:
    engine = Watched()
    model = fc.FeatureFusion("summary", epochs=2, random_state=0)
    model.fit(parties(), target="up", engine=engine)
    told = model.ledger_.revealed("coordinator")["what"]
    shown = told[told.str.startswith("representations")]
    assert len(shown) == 2 and shown.str.contains(COLUMNS, regex=False).all()
    model.predict(parties())
    asked = model.queries_.revealed("coordinator")["what"]
    assert asked.str.contains(COLUMNS, regex=False).any()
    sent = [read(m.data) for who, m in engine.messages if (who, m.tag) == ("south", "gather/rows")]
    (vectors,) = (v for v in sent[0].values() if np.shape(v) == (80, 2))
    shown_column = np.sort(np.asarray(vectors, np.float64)[:, 0])
    assert np.corrcoef(shown_column, np.sort(X[:, 2]))[0, 1] > 1 - 1e-6  # it is one


def test_networks_show_no_columns() -> None:
    model = fc.FeatureFusion(fc.TabularEncoder(epochs=1), epochs=2, random_state=0)
    model.fit(parties(), target="up")
    assert not model.ledger_.revealed()["what"].str.contains(COLUMNS, regex=False).any()
