"""Models of other libraries: modes and precision of modules, sparse results, models that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomTreesEmbedding

import fedcircuits as fc
from fedcircuits.errors import FedcircuitsError, ParameterError
from fedcircuits.learning.encoders.choosing import encoder_of
from fedcircuits.learning.encoders.encoders import TabularEncoder
from fedcircuits.learning.encoders.foreign import ForeignEncoder, Frozen

ROWS = 50
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
OWN = fc.Table.of({"a": RNG.normal(size=ROWS) + EVENT, "b": RNG.normal(size=ROWS), "event": EVENT})


def test_a_module_is_asked_in_evaluation_mode_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(2, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8)
    )
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    learned = ForeignEncoder(module).fit(OWN, "event")
    assert np.array_equal(learned.encode(OWN), learned.encode(OWN))
    assert [part.training for part in module] == [True, False, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_module_in_double_precision() -> None:
    module = torch.nn.Linear(2, 3).double()
    assert ForeignEncoder(module).fit(OWN, "event").encode(OWN).shape == (ROWS, 3)


def test_sparse_results() -> None:
    trees = RandomTreesEmbedding(4, max_depth=2, random_state=0)
    found = ForeignEncoder(trees).fit(OWN, "event").encode(OWN)
    assert found.shape[1] > 4 and np.allclose(found.sum(axis=1), 4)


class Given:
    """What the test says, whatever the rows."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def encode(self, X: fc.Table) -> Any:
        return self.found


class Unfit:
    def fit(self, X: fc.Table) -> Unfit:
        return self

    def encode(self, X: fc.Table) -> Any:
        return X.values


def test_tensors_with_gradients() -> None:
    found = torch.ones((ROWS, 2), requires_grad=True) * 2
    assert (ForeignEncoder(Given(found)).fit(OWN).encode(OWN) == 2).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PCA(9), r"PCA.fit failed on \(50, 2\) with ValueError"),
        (torch.nn.Linear(7, 2), r"Linear failed on \(50, 2\) with RuntimeError"),
        (Unfit(), r"Unfit.fit\(table, target\) failed on a table of 50 rows with TypeError"),
        (Given(np.full((ROWS, 2), np.nan)), "Given returns nothing for any of the 50 rows"),
        (Given(np.full((ROWS, 2), np.inf)), "Given: expected finite numbers"),
        (Given(np.zeros((ROWS, 0))), r"got an array of the shape \(50, 0\)"),
        (Given([["a"]] * ROWS), "failed on a table of 50 rows with ValueError"),
    ],
)
def test_models_that_fail(model: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ForeignEncoder(model).fit(OWN, "event")


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_an_owner_predicts_whatever_the_scale_of_its_numbers(scale: float) -> None:
    class Scaled:
        def encode(self, X: fc.Table) -> Any:
            return X.select(["a", "b"]).values * scale + scale

    alone = ForeignEncoder(Scaled()).fit(OWN, "event").predict_vector(OWN)
    assert (alone.argmax(axis=1) == EVENT).mean() > 0.6
    assert np.allclose(alone.sum(axis=1), 1.0)


def test_what_cannot_be_frozen() -> None:
    with pytest.raises(ParameterError, match=r"expected|with encode\(table\), got PCA"):
        encoder_of(Frozen(PCA(2)))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"Frozen\(TabularEncoder\).* not fitted"):
        Frozen(TabularEncoder()).encode(OWN)
    with pytest.raises(ParameterError, match="such as TabularEncoder"):
        encoder_of("lstm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": "x"}, "learning_rate must be a number above 0, got 'x'"),
        ({"learning_rate": np.inf}, "learning_rate must be a number above 0, got inf"),
        ({"width": True}, "width must be a whole number from 1, got True"),
        ({"hidden": 32}, r"such as \(32,\), got 32"),
        ({"hidden": (0,)}, r"hidden must have the widths of layers, .* got \(0,\)"),
        ({"random_state": "x"}, "random_state must be None or a whole number"),
        ({"random_state": -1}, "random_state must be None or a whole number"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FedcircuitsError, match=message):
        TabularEncoder(**options).fit(OWN, "event")


def test_settings_of_numpy() -> None:
    settings = {"width": np.int64(3), "epochs": np.int32(2), "random_state": np.int64(1)}
    encoder = TabularEncoder(**settings, learning_rate=np.float32(0.01), hidden=np.array([4, 4]))  # type: ignore[arg-type]
    assert encoder.fit(OWN, "event").encode(OWN).shape == (ROWS, 3)
