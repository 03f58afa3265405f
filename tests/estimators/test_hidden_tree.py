"""Hidden Chow–Liu trees on images, mixed tables and files; smoothing, restarts, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FedcircuitsError
from fedcircuits.estimators.hidden_tree import column_marginals
from fedcircuits.tables.images import ycocg, ycocg_schema
from fedcircuits.tables.schema import Schema, Variable


def images(rows: int = 400, seed: int = 0) -> np.ndarray:
    """Small grey images of a bright blob at one of three places; the first column is black."""
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 3, rows)
    grid = np.arange(5)[:, None] + np.arange(5)
    light = np.exp(-((grid - 2 - 2 * place[:, None, None]) ** 2) / 4)
    noisy = 255 * light + rng.normal(0, 12, light.shape)
    noisy[:, :, 0] = 0
    return np.clip(noisy, 0, 255).astype(np.uint8)


def bits(model: fc.Model, x: np.ndarray) -> float:
    return float(-model.score_samples(x).mean() / x[0].size / np.log(2))


def test_grey_levels_have_leaves_of_full_resolution() -> None:
    train, test = images(600), images(100, seed=1)
    model = fc.HiddenChowLiuTree(units=8, epochs=15, random_state=0).fit(train)
    assert {leaf.family for leaf in model.circuit_.leaves()} == {"categorical"}
    assert model.parameters_["leaf:x0"]["probability"].shape == (8, 1, 256)
    columns = fc.Table.of(train).schema
    alone = -sum(
        np.log(m[test.reshape(len(test), -1)[:, i]]).mean()
        for i, m in enumerate(column_marginals(fc.Table.of(train).values, columns).values())
    )
    assert np.isfinite(model.score_samples(test)).all()
    assert bits(model, test) < 0.95 * alone / 25 / np.log(2)
    bright = test[:1].copy()
    bright[0, 0, 0] = 200  # a level that this pixel never had
    assert np.isfinite(model.score_samples(bright)).all()


@pytest.mark.parametrize("name", ["binomial", "poisson", "categorical", "discretised_logistic"])
def test_families_by_name(name: str) -> None:
    model = fc.HiddenChowLiuTree(units=4, epochs=2, leaf_family=name, random_state=0)
    model.fit(images(200))
    assert {leaf.family for leaf in model.circuit_.leaves()} == {name}
    assert np.isfinite(model.score(images(50)))


def test_mixed_kinds_and_a_code_of_many_levels() -> None:
    rng = np.random.default_rng(0)
    state = rng.integers(0, 3, 900)
    frame = pd.DataFrame(
        {
            "code": [f"c{7 * s + i}" for s, i in zip(state, rng.integers(0, 40, 900), strict=True)],
            "level": rng.normal(size=900) + state, "count": rng.poisson(3 * state + 1),
            "flag": rng.random(900) < 0.2 + 0.3 * state,
        }
    )  # fmt: skip
    model = fc.HiddenChowLiuTree(units=6, epochs=10, leaf_family="categorical", random_state=0)
    model.fit(frame)
    families = {leaf.scope[0]: leaf.family for leaf in model.circuit_.leaves()}
    assert families["code"] == "categorical" and families["level"] == "gaussian"
    shares = model.predict_proba(frame.drop(columns="flag"), "flag")
    assert np.corrcoef(shares[:, 1], frame["flag"])[0, 1] > 0.2


def test_a_file_gives_what_memory_gives_and_models_survive_files(tmp_path: Path) -> None:
    train = images(300).reshape(300, -1)
    schema = fc.Table.of(train).schema
    pd.DataFrame(train, columns=list(schema.names)).to_parquet(tmp_path / "x.parquet")
    rows = fc.ParquetRows(tmp_path / "x.parquet", schema)
    model = fc.HiddenChowLiuTree(units=4, epochs=3, random_state=0).fit(rows)
    assert bits(model, train) < 8
    model.save(tmp_path / "m.fc")
    loaded = fc.load(tmp_path / "m.fc")
    assert loaded.schema_ == schema
    np.testing.assert_allclose(loaded.score_samples(train), model.score_samples(train))
    damaged = bytearray((tmp_path / "m.fc").read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "m.fc").write_bytes(bytes(damaged))
    with pytest.raises(FedcircuitsError):
        fc.load(tmp_path / "m.fc")


def test_the_colours_of_a_pixel_share_a_state() -> None:
    grey = images(300).reshape(300, -1, 1)
    colours = np.concatenate([grey, 255 - grey, grey // 2], axis=2)
    model = fc.HiddenChowLiuTree(units=6, epochs=6, channels=3, random_state=0)
    model.fit(fc.Table(ycocg_schema(25), ycocg(colours).reshape(300, -1).astype(float)))
    scopes = {leaf.scope for leaf in model.circuit_.leaves()}
    assert ("x0",) in scopes and ("x1", "x2") in scopes  # 256 levels, and twice 511
    assert sum(isinstance(n, fc.Sum) for n in model.circuit_.nodes) == 25
    with pytest.raises(FedcircuitsError, match="channels must divide"):
        fc.HiddenChowLiuTree(channels=7).fit(colours)


def test_of_several_starts_the_best_is_kept() -> None:
    train = images(300)
    settings = {"units": 4, "epochs": 2, "random_state": 0}
    model = fc.HiddenChowLiuTree(restarts=3, **settings).fit(train)
    assert len(model.history_) <= 2 and np.isfinite(model.score(train))


def test_marginals_give_room_to_what_was_not_seen() -> None:
    schema = Schema((Variable("a", "count", most=19), Variable("b", "boolean")))
    found = column_marginals(np.array([[3.0, 1.0], [3.0, 0.0], [np.nan, 1.0]]), schema)
    assert list(found) == ["a"] and found["a"].sum() == pytest.approx(1)
    assert found["a"].min() > 0 and found["a"].argmax() == 3


@pytest.mark.parametrize(
    ("argument", "value"),
    [("units", 0), ("restarts", 0), ("smoothing", -1.0), ("leaf_family", "no such"),
     ("leaf_family", 7), ("weight_smoothing", np.nan)],
)  # fmt: skip
def test_bad_settings_are_named(argument: str, value: object) -> None:
    with pytest.raises(FedcircuitsError, match=argument if argument != "leaf_family" else "family"):
        fc.HiddenChowLiuTree(**{argument: value}).fit(images(60))  # type: ignore[arg-type]
