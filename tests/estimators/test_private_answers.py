"""Questions to a private forest: any number of parties and any depth, posteriors by whoever asks,
gaps that nobody sees, messages that nobody reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import QueryError
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.methods.private_forest.query import one_hot
from fedcircuits.privacy.arithmetic.field import FIELD
from tests.estimators.tables import CLOSE, TABLE
from tests.methods.watched import Watched, read

ROWS = TABLE.rows(np.arange(12))


def booleans(columns: int = 9, rows: int = 90) -> fc.Table:
    rng = np.random.default_rng(columns)
    kind = rng.integers(2, size=(rows, 1))
    return fc.Table.of(rng.random((rows, columns)) < 0.2 + 0.5 * kind)


@pytest.mark.parametrize(
    ("parties", "depth"), [(3, 0), (3, 3), (4, 2), (4, 3), (5, 3), (6, 2), (7, 0), (9, 2), (12, 0)]
)
def test_any_number_of_parties(parties: int, depth: int) -> None:
    """Odd and even: answers on shares are those of the opened forest."""
    rows = booleans()
    split = fc.split(rows, parties, seed=1, allow_collect=True)
    chosen: dict[str, Any] = {
        "depth": depth,
        "units": 2,
        "combine": "em",
        "max_iter": 1,
        "random_state": 0,
    }
    model = PrivateForest(1, **chosen).fit(split)
    asked = rows.rows(np.arange(2))
    found, clear = model.score_samples(asked), model.open_parameters()
    np.testing.assert_allclose(found, clear.score_samples(asked), atol=1e-4)


@pytest.fixture(scope="module")
def model() -> PrivateForest:
    chosen: dict[str, Any] = {
        "units": 3,
        "combine": "concatenate",
        "max_iter": 10,
        "random_state": 1,
    }
    parties = fc.split(TABLE, 3, seed=2, allow_collect=True)
    return PrivateForest(2, marginals=True, **chosen).fit(parties)


# ---------------------------------------------------------------------- posteriors


@pytest.mark.parametrize("asker", ["clinic", "party 2"])
@pytest.mark.parametrize("target", ["ill", "colour", "v1"])
def test_posteriors_by_whoever_asks(model: PrivateForest, asker: str, target: str) -> None:
    clear, rows = model.open_parameters(), gaps(0.3)
    connected = model.connect(asker)
    for asked in (ROWS, rows, rows.select([n for n in rows.names if n != target])):
        found = connected.predict_proba(asked, target)
        np.testing.assert_allclose(found, clear.predict_proba(asked, target), atol=CLOSE)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        assert (connected.predict(asked, target) == clear.predict(asked, target)).all()


def test_a_posterior_is_one_query_of_all_classes(model: PrivateForest) -> None:
    before, model.queries_.entries[:] = dict(model.asked_), []
    model.connect("clinic").predict_proba(ROWS, "colour")
    assert model.asked_["clinic"] == before.get("clinic", 0) + 3 * len(ROWS)
    tags = [e.tag for e in model.queries_ if e.receiver == "clinic"]
    assert tags == ["query/root"] * 3


# ---------------------------------------------------------------------- gaps


def gaps(share: float, seed: int = 0) -> fc.Table:
    values = ROWS.values.copy()
    values[np.random.default_rng(seed).random(values.shape) < share] = np.nan
    return fc.Table(ROWS.schema, values)


def transcript(model: PrivateForest, ask: Any) -> list[tuple[str, str, str, int]]:
    before = len(model.queries_)
    ask()
    return [(e.sender, e.receiver, e.tag, e.bytes) for e in model.queries_.entries[before:]]


def test_messages_do_not_show_what_is_left_out(model: PrivateForest) -> None:
    """Ends, tags, numbers and sizes are the same for whole rows, other gaps and nothing known."""
    for question in ("score_samples", "predict_proba"):
        seen = []
        for rows in (ROWS, gaps(0.3), gaps(0.3, seed=1), gaps(1.0)):
            model.prepare(36)
            args = (rows,) if question == "score_samples" else (rows, "colour")
            seen.append(transcript(model, lambda q=question, a=args: getattr(model, q)(*a)))
        assert all(other == seen[0] for other in seen[1:]) and len(seen[0]) > 10


def test_columns_that_are_left_out_are_named() -> None:
    closed = PrivateForest(1, units=3, combine="em", max_iter=1, random_state=1)
    closed.fit(fc.split(TABLE, 3, seed=2))
    frame = ROWS.to_pandas().rename(columns={"v0": "v9"})
    said = r"12 points have values of 'v0' left out, which the parties do not allow"
    for asker in (closed, closed.connect("clinic")):
        with pytest.raises(QueryError, match=said) as refused:
            asker.score_samples(frame)
        assert "resume" not in str(refused.value)
    assert closed.asked_ == {} and len(closed.queries_) == 0  # nothing was sent, no mask is spent
    with pytest.raises(QueryError, match="unknown variable 'v9'"):
        closed.predict_proba(frame, "v9")


# ---------------------------------------------------------------------- sealed queries


def points_seen(engine: Watched, model: PrivateForest, cut: int) -> Any:
    """What whoever carries the messages makes of the shares of points: the sum of two of them
    with the weights of the value at 0; ``cut``: bytes before a payload's own."""
    shares = []
    width = len(ROWS) * sum(model.forest_.codes)
    for party in model.views_:
        [data] = [
            m.data for run in engine.records[-1:] for m in run["clinic"].sent
            if (m.party, m.tag) == (party, "query/points")
        ]  # fmt: skip
        fields = read(data)
        body = fields["data"] if "data" in fields else np.frombuffer(fields["body"], np.uint8)
        payload = body.reshape(-1)[cut : cut + 16 * width].copy()
        payload[15::16] &= 0x7F  # below 2^127
        shares.append(FIELD.unpacked(payload, (width,)))
    return FIELD.mix([[2, -1]], np.stack(shares[:2]))[0]


@pytest.mark.parametrize("sealed", [False, True])
def test_who_carries_sealed_messages_sees_sizes(sealed: bool) -> None:
    """Unsealed it could put the points together from all shares; sealed it has nothing of them."""
    chosen: dict[str, Any] = {
        "combine": "concatenate",
        "units": 3,
        "max_iter": 5,
        "random_state": 1,
    }
    engine = Watched()
    model = PrivateForest(1, sealed=sealed, **chosen).set_params(structures=3)
    model.fit(fc.split(TABLE, 3, seed=2, allow_collect=True), engine=engine)
    found = model.connect("clinic").score_samples(ROWS)
    plain = one_hot(model.forest_, ROWS.values).reshape(-1, 2)
    seen = [points_seen(engine, model, cut) for cut in (range(24) if sealed else (0,))]
    hits = [(own == plain).all() for own in seen]
    assert any(hits) == (not sealed)
    if sealed:  # uniform, as far as one can see: nearly every number has high bits
        assert all((own[:, 1] > 1 << 50).mean() > 0.95 for own in seen)
    np.testing.assert_allclose(found, model.open_parameters().score_samples(ROWS), atol=CLOSE)


def test_sealed_messages_are_longer_by_as_much_for_all_rows() -> None:
    """Sizes of sealed messages say how many rows, not which values or gaps."""
    chosen: dict[str, Any] = {
        "combine": "concatenate",
        "units": 3,
        "max_iter": 5,
        "random_state": 1,
    }
    model = PrivateForest(1, sealed=True, marginals=True, **chosen).set_params(structures=3)
    model.fit(fc.split(TABLE, 3, seed=2))
    seen = []
    for rows in (ROWS, gaps(0.5)):
        model.prepare(len(rows))
        seen.append(
            transcript(model, lambda rows=rows: model.connect("clinic").score_samples(rows))
        )
    assert seen[0] == seen[1]
