"""Encoders: gradients, many owners at once against one by one, odd data, models from elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.learning.encoders.choosing import EncoderJob, encoder_of, fit_all
from fedcircuits.learning.encoders.encoders import SequenceEncoder, TabularEncoder
from fedcircuits.learning.encoders.foreign import Encoder, ForeignEncoder, Frozen
from fedcircuits.learning.encoders.networks import Perceptron, Recurrent, flattened, lstm, views

ROWS, STEPS = 60, 5


def table(seed: int = 0, steps: int = STEPS, channels: int = 1, rows: int = ROWS) -> fc.Table:
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.4
    series = rng.normal(size=(rows, steps, channels)) + y[:, None, None]
    return fc.Table.from_series({"speed": series}, {"event": y}, np.arange(rows))


def job(encoder: object, seed: int = 0, **options: Any) -> EncoderJob:
    own = options.pop("table", None) or table(seed, **options)
    held = np.arange(len(own)) % 8 == 0
    return EncoderJob(encoder, own, "event", held, (seed, 1))  # type: ignore[arg-type]


def quick(**options: Any) -> SequenceEncoder:
    return SequenceEncoder(**{"width": 3, "epochs": 3, "batch": 20, **options})


# ---------------------------------------------------------------------- networks


@pytest.mark.parametrize(("width", "channels", "rows"), [(3, 2, 5), (16, 2, 33), (5, 7, 1)])
def test_the_lstm_and_its_gradient_are_those_of_torch(width: int, channels: int, rows: int) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.LSTM(channels, width, batch_first=True, bias=False)
    order = [0, 1, 3, 2]  # theirs: i, f, g, o
    ours = [torch.cat([w.detach().chunk(4)[i] for i in order])[None] for w in theirs.parameters()]
    weights = [torch.cat([w, 3 * w]).requires_grad_() for w in ours]  # of two owners
    x, weight = torch.randn(rows, STEPS, channels), torch.randn(rows, STEPS, width)
    found = lstm(x.permute(1, 2, 0)[:, None].expand(-1, 2, -1, -1), weights[0], weights[1])
    expected = theirs(x)[0]
    assert torch.allclose(found[:, 0].permute(2, 0, 1), expected, atol=1e-6)
    (weight * expected).sum().backward()
    (weight * found[:, 0].permute(2, 0, 1)).sum().backward()  # type: ignore[no-untyped-call]
    for own, other in zip(weights, theirs.parameters(), strict=True):
        assert own.grad is not None and other.grad is not None
        slope = torch.cat([other.grad.chunk(4)[i] for i in order])
        assert torch.allclose(own.grad[0], slope, rtol=1e-4, atol=1e-4)
        assert own.grad[1].abs().max() == 0


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_steps_after_the_end_do_not_count(cell: Any) -> None:
    network = Recurrent(cell, STEPS, 2, 3)
    flat = flattened(network.start(np.random.default_rng(0)), network.shapes())
    weights = views(torch.from_numpy(flat)[None], network.shapes())
    x = torch.randn(1, 2, STEPS, 2)
    x[..., -1] = 1.0
    x[:, 1, 3:, -1] = 0.0
    other = x.clone()
    other[:, 1, 3:, 0] = 7.0
    a, b = network.represent(weights, x), network.represent(weights, other)
    assert torch.equal(a, b) and a.shape == (1, 2, 3)


def test_owners_are_apart_in_a_batch() -> None:
    network = Perceptron(4, (5,), 3)
    flat = np.stack(
        [flattened(network.start(np.random.default_rng(i)), network.shapes()) for i in range(3)]
    )
    weights = torch.from_numpy(flat).requires_grad_()
    x = torch.randn(3, 7, 4)
    found = network.represent(views(weights, network.shapes()), x)
    found[1].sum().backward()  # type: ignore[no-untyped-call]
    assert weights.grad is not None
    assert weights.grad[[0, 2]].abs().max() == 0 < weights.grad[1].abs().max()


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize(
    "encoder",
    [quick(), quick(cell="gru"), quick(patience=1, epochs=6), TabularEncoder(width=3, epochs=3)],
)
def test_many_at_once_are_as_one_by_one(encoder: Any) -> None:
    jobs = [job(encoder, seed) for seed in range(5)]
    together = fit_all(jobs)
    for one, own in zip(together, jobs, strict=True):
        (alone,) = fit_all([own])
        assert np.allclose(one.weights_, alone.weights_, atol=1e-6)  # type: ignore[attr-defined]
        assert len(one.history_) == len(alone.history_)  # type: ignore[attr-defined]
        assert np.allclose(one.encode(own.table), alone.encode(own.table), atol=1e-5)
    assert not np.allclose(together[0].weights_, together[1].weights_, atol=1e-2)  # type: ignore[attr-defined]


def test_owners_of_different_shapes() -> None:
    jobs = [
        job(quick(), 0),
        job(quick(), 1, steps=7, channels=2),
        job(quick(width=2), 2),
        job(quick(), 3, rows=50),
        job(TabularEncoder(width=4, epochs=2), 4),
    ]
    widths = [np.shape(e.encode(j.table))[1] for e, j in zip(fit_all(jobs), jobs, strict=True)]
    assert widths == [3, 3, 2, 3, 4]


def test_it_learns() -> None:
    own = table(rows=400)
    encoder = SequenceEncoder(width=4, epochs=15, learning_rate=0.02, random_state=0)
    found = encoder.fit(own, "event").predict_vector(own)
    assert np.allclose(found.sum(axis=1), 1)
    assert (found.argmax(axis=1) == own.values[:, 0]).mean() > 0.8  # at best 0.87
    again = SequenceEncoder(width=4, epochs=15, learning_rate=0.02, random_state=0)
    assert np.array_equal(again.fit(own, "event").weights_, encoder.weights_)


def test_a_number_is_predicted_in_its_own_scale() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    own = fc.Table.of({"a": x[:, 0], "b": x[:, 1], "y": 500 + 40 * (x[:, 0] - x[:, 1])})
    found = TabularEncoder(epochs=30, learning_rate=0.02).fit(own, "y").predict_vector(own)
    assert np.corrcoef(found[:, 0], own.values[:, 2])[0, 1] > 0.95
    assert abs(found.mean() - 500) < 10


def test_odd_data() -> None:
    series = np.random.default_rng(0).normal(size=(ROWS, STEPS, 2))
    series[3:9, 3:] = np.nan  # shorter
    series[4, 1] = np.nan  # a gap
    series[7] = np.nan  # nothing
    y = np.where(np.arange(ROWS) < 20, None, np.arange(ROWS) % 2 == 0)  # labels missing
    columns = {"event": y, "kind": np.arange(ROWS) % 3, "level": np.linspace(0, 1, ROWS)}
    own = fc.Table.from_series({"speed": series, "still": np.ones((ROWS, 3))}, columns)
    found = quick().fit(own, "event").encode(own)
    assert np.isfinite(found).all()  # "still" is known in every row
    alone = own.select(["event", "speed"])
    found = quick().fit(alone, "event").encode(alone)
    assert np.isnan(found[7]).all() and np.isfinite(np.delete(found, 7, axis=0)).all()
    still = own.select(["event", "still"])
    assert np.ptp(quick().fit(still, "event").encode(still), axis=0).max() < 1e-6


def test_without_labels_it_learns_from_rows_alone() -> None:
    own = table().select(["speed"])
    encoder = SequenceEncoder(width=3, epochs=15, learning_rate=0.02).fit(own)
    assert encoder.history_[-1] < encoder.history_[0] and encoder.encode(own).shape == (ROWS, 3)
    with pytest.raises(ParameterError, match="without labels"):
        encoder.predict_vector(own)


def test_a_class_that_the_owner_has_never_seen() -> None:
    own = fc.Table.of({"x": np.arange(20.0), "y": ["a"] * 20}, categories={"y": ["a", "b", "c"]})
    found = TabularEncoder(width=2, epochs=2).fit(own, "y").predict_vector(own)
    assert found.shape == (20, 3)


def test_what_cannot_be_read() -> None:
    with pytest.raises(NotFittedError):
        quick().encode(table())
    with pytest.raises(TableError, match="reads series, this table has none"):
        quick().fit(table().select(["event"]), "event")
    with pytest.raises(TableError, match="nothing to encode"):
        TabularEncoder().fit(table().select(["event"]), "event")
    fitted = quick().fit(table(), "event")
    with pytest.raises(TableError, match="at most 5 steps of 1 channels"):
        fitted.encode(table(steps=6))
    with pytest.raises(TableError, match="expected the series 'speed'"):
        fitted.encode(fc.Table.from_series({"other": np.ones((4, 5))}))
    assert fitted.encode(table(steps=4)).shape == (ROWS, 3)  # shorter ones are
    empty = fc.Table.from_series({"speed": np.full((9, 3), np.nan)}, {"event": [True] * 9})
    with pytest.raises(TableError, match="all values are missing"):
        quick().fit(empty, "event")
    for wrong in ({"width": 0}, {"learning_rate": 0.0}, {"cell": "rnn"}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            quick(**wrong).fit(table(), "event")


# ---------------------------------------------------------------------- from elsewhere


class Means:
    """A user's own model."""

    def encode(self, X: fc.Table) -> Any:
        return X.series["speed"].mean(axis=1)


class Flat(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ torch.ones(STEPS, 2)


@pytest.mark.parametrize(("model", "width"), [(Means(), 1), (Flat(), 2), (PCA(3), 3)])
def test_the_open_door(model: object, width: int) -> None:
    own = table(rows=120)
    encoder = encoder_of(model)
    assert isinstance(encoder, Encoder)
    (fitted,) = fit_all([job(model, table=own)])
    assert isinstance(fitted, ForeignEncoder)
    assert fitted.encode(own).shape == (120, width)
    assert (fitted.predict_vector(own).argmax(axis=1) == own.values[:, 0]).mean() > 0.8


def test_an_encoder_that_has_learned_is_used_as_it_is() -> None:
    own = table()
    learned = quick().fit(own, "event")
    (found,) = fit_all([job(Frozen(learned), table=own)])
    assert isinstance(found, Frozen) and found.encoder is learned
    assert np.array_equal(found.encode(own), learned.encode(own))
    assert np.array_equal(found.predict_vector(own), learned.predict_vector(own))
    assert found.target_ == own.schema["event"] and found.reading_ is learned.reading_


def test_a_model_that_is_none() -> None:
    for wrong in (3, PCA):
        with pytest.raises(ParameterError, match="an encoder must"):
            encoder_of(wrong)
    with pytest.raises(ParameterError, match="a vector of finite numbers"):
        ForeignEncoder(torch.nn.Flatten(0)).fit(table().select(["speed"])).encode(table())
