"""What representations say of rows, in the ledger's words: with some encoders they are columns."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_by_default_columns_cannot_be_read_back() -> None:
    """Of six columns three numbers are shown, of which no column is one, nor a sum of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 12))
    up = x[:, 0] + x[:, 6] + rng.normal(size=300) > 0
    names = [f"x{i}" for i in range(12)]
    frames = {
        party: {"id": np.arange(300), "up": up, **{n: x[:, names.index(n)] for n in held}}
        for party, held in (("north", names[:6]), ("south", names[6:]))
    }
    engine = Watched()
    model = fc.FeatureFusion(epochs=2, random_state=0)
    model.fit(fc.Federation(frames, row_id="id"), target="up", engine=engine)
    assert not model.ledger_.revealed()["what"].str.contains(COLUMNS, regex=False).any()
    sent = [read(m.data) for who, m in engine.messages if (who, m.tag) == ("south", "gather/rows")]
    (shown,) = (np.asarray(v) for v in sent[0].values() if np.ndim(v) == 2)
    assert shown.shape == (300, 3)
    h = model.views_["south"].encoder.encode(model_rows(frames["south"]))
    ones = np.column_stack([h, np.ones(300)])
    left = x[:, 6:] - ones @ np.linalg.lstsq(ones, x[:, 6:], rcond=None)[0]
    explained = 1 - left.var(axis=0) / x[:, 6:].var(axis=0)
    assert explained.mean() < 0.6 and np.median(explained) < 0.9


def model_rows(frame: dict[str, np.ndarray]) -> fc.Table:
    return fc.Table.of(frame, row_id="id")


@pytest.mark.parametrize(("width", "told"), [(1, 0), (2, 2), (16, 2)])
def test_a_ledger_says_where_columns_can_be_computed(width: int, told: int) -> None:
    """Owners of two columns each, by networks of this many numbers."""
    encoder = fc.TabularEncoder(width=width, epochs=1)
    model = fc.FeatureFusion(encoder, epochs=1, random_state=0).fit(parties(), target="up")
    what = model.ledger_.revealed("coordinator")["what"]
    assert what.str.contains("(its columns can be computed from these)", regex=False).sum() == told


def test_by_default_the_number_of_one_column_is_named() -> None:
    north = {"id": np.arange(80), "a": X[:, 0], "b": X[:, 1], "up": X.sum(axis=1) > 12}
    south = {"id": np.arange(80), "c": X[:, 2]}
    both = fc.Federation({"north": north, "south": south}, row_id="id")
    model = fc.FeatureFusion(epochs=1, random_state=0, share_target=True).fit(both, target="up")
    named = [e.sender for e in model.ledger_ if "can be computed from these" in e.reveals]
    assert named == ["south"]


def test_networks_show_no_columns() -> None:
    model = fc.FeatureFusion(fc.TabularEncoder(epochs=1), epochs=2, random_state=0)
    model.fit(parties(), target="up")
    assert not model.ledger_.revealed()["what"].str.contains(COLUMNS, regex=False).any()
