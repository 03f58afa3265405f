"""Encoders as JSON and arrays: what is read is what was written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.records import StoredArrays, fields_of, record_of
from fedcircuits.errors import FileError
from fedcircuits.learning.encoders.files import AnyStoredEncoder, stored

ROWS = 50
RNG = np.random.default_rng(0)
WORDS = np.array(["one", "two", "three"])[np.arange(ROWS) % 3]
TABLE = fc.Table.from_series(
    {"speed": RNG.normal(size=(ROWS, 5, 2)), "load": RNG.normal(size=(ROWS, 3))},
    {"words": WORDS, "x": RNG.normal(size=ROWS), "yes": RNG.random(ROWS) < 0.5},
)


def back(about: Any, arrays: Any) -> Any:
    """Through the text of JSON."""
    kind: Any = AnyStoredEncoder
    record = record_of(kind, json.loads(json.dumps(about)), "it")
    return record.encoder(StoredArrays("it", arrays))


@pytest.mark.parametrize("target", ["words", "x", "yes", None])
@pytest.mark.parametrize(
    "encoder",
    [
        fc.SequenceEncoder(width=3, epochs=1),
        fc.SequenceEncoder(cell="gru", width=2, epochs=1, random_state=3),
        fc.TabularEncoder(width=3, epochs=1),
        fc.TabularEncoder(hidden=(), width=2, epochs=1),
        fc.TabularEncoder(hidden=(4, 3), width=2, epochs=1),
    ],
    ids=str,
)
def test_networks(encoder: Any, target: str | None) -> None:
    encoder.fit(TABLE, target)
    record, arrays = stored(encoder)
    again = back(fields_of(record), arrays)
    assert type(again) is type(encoder) and again.get_params() == encoder.get_params()
    assert np.array_equal(again.encode(TABLE), encoder.encode(TABLE))
    assert again.network_ == encoder.network_ and again.target_ == encoder.target_
    assert np.array_equal(again.history_, encoder.history_)
    if target is not None:
        assert np.array_equal(again.predict_vector(TABLE), encoder.predict_vector(TABLE))


def test_layers_that_do_not_fit_the_weights() -> None:
    record, arrays = stored(fc.TabularEncoder(hidden=(4, 3), width=2, epochs=1).fit(TABLE, "x"))
    about = fields_of(record)
    for wrong in ([4], [4, 3, 1], [3, 4], [], [4, 0], [4, "3"], [10**30, 3]):
        with pytest.raises(FileError, match=r"weight|hidden"):
            back({**about, "hidden": wrong}, arrays)


@pytest.mark.parametrize("target", ["words", "x", "yes", None])
@pytest.mark.parametrize(
    "encoder",
    [
        fc.SummaryEncoder(),
        fc.SummaryEncoder(width=5),
        fc.RocketEncoder(kernels=7, width=4, random_state=2),
        fc.RocketEncoder(kernels=3),
    ],
    ids=str,
)
def test_fixed_encoders(encoder: Any, target: str | None) -> None:
    encoder.fit(TABLE, target)
    record, arrays = stored(encoder)
    again = back(fields_of(record), arrays)
    assert type(again) is type(encoder) and again.get_params() == encoder.get_params()
    assert np.array_equal(again.encode(TABLE), encoder.encode(TABLE))
    assert again.target_ == encoder.target_
    if target is not None:
        assert np.array_equal(again.predict_vector(TABLE), encoder.predict_vector(TABLE))


def test_a_fixed_encoder_that_was_changed_is_refused() -> None:
    record, arrays = stored(fc.RocketEncoder(kernels=7, width=4).fit(TABLE, "yes"))
    about = fields_of(record)
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"width": 3}, {}, "expected 1 to 3 numbers"),
        ({"reduced": False}, {}, "expected 1 to 4 numbers"),
        ({"kernels": 6}, {}, "convolutions"),
        ({"random_state": -1}, {}, "random_state"),
        ({}, {"spread of numbers": -arrays["spread of numbers"]}, "above 0"),
        ({}, {"dilations": 10 + arrays["dilations"]}, "must rise"),
        ({}, {"dilations": 0 * arrays["dilations"]}, "must rise"),
        ({}, {"thresholds": arrays["thresholds"] * np.nan}, "finite"),
        ({}, {"axes": arrays["axes"][:-1]}, "axes"),
        ({}, {"centre": arrays["centre"][:-1]}, "centre"),
        ({}, {"more": np.zeros(2)}, "none of its own"),
    ]
    for fields, given, problem in wrong:
        with pytest.raises(FileError, match=problem):
            back({**about, **fields}, {**arrays, **given})
    flat = {**about["reading"], "in steps": False}
    with pytest.raises(FileError, match=r"mean|in steps"):
        back({**about, "reading": flat}, arrays)
