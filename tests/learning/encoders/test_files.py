"""Encoders and fusions as JSON and arrays: shapes are those that training makes."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FileError
from fedcircuits.learning.encoders.files import StoredEncoder, stored
from fedcircuits.learning.stored import Fields, StoredArrays
from fedcircuits.methods.fusion import heads
from fedcircuits.methods.fusion.files import ALIGNS, Sizes, settings_of, settings_stored, shapes
from fedcircuits.methods.fusion.fitting import FusionSettings

ROWS = 50
RNG = np.random.default_rng(0)
WORDS = np.array(["one", "two", "three"])[np.arange(ROWS) % 3]
TABLE = fc.Table.from_series(
    {"speed": RNG.normal(size=(ROWS, 5, 2)), "load": RNG.normal(size=(ROWS, 3))},
    {"words": WORDS, "x": RNG.normal(size=ROWS), "yes": RNG.random(ROWS) < 0.5},
)


def back(about: Any, arrays: Any) -> Any:
    """Through the text of JSON."""
    return StoredEncoder(Fields.of("it", json.loads(json.dumps(about))), arrays).encoder()


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
    again = back(*stored(encoder))
    assert type(again) is type(encoder) and again.get_params() == encoder.get_params()
    assert np.array_equal(again.encode(TABLE), encoder.encode(TABLE))
    assert again.network_ == encoder.network_ and again.target_ == encoder.target_
    assert np.array_equal(again.history_, encoder.history_)
    if target is not None:
        assert np.array_equal(again.predict_vector(TABLE), encoder.predict_vector(TABLE))


def test_layers_that_do_not_fit_the_weights() -> None:
    about, arrays = stored(fc.TabularEncoder(hidden=(4, 3), width=2, epochs=1).fit(TABLE, "x"))
    for wrong in ([4], [4, 3, 1], [3, 4], [], [4, 0], [4, "3"], [10**30, 3]):
        with pytest.raises(FileError, match=r"weight|hidden"):
            back({**about, "hidden": wrong}, arrays)


@pytest.mark.parametrize("head", get_args(heads.Head))
@pytest.mark.parametrize("align", ALIGNS)
def test_shapes_are_those_that_training_starts_from(head: Any, align: Any) -> None:
    settings = FusionSettings(align, head=head, hidden=5)
    start = heads.start(3, 4, 2, 5, align, head, np.random.default_rng(0))
    found = shapes(settings, Sizes(owners=3, width=4, outputs=2))
    assert found == {name: value.shape for name, value in start.items()}
    assert settings_of(Fields("it", settings_stored(settings))) == settings


def test_fields_say_what_they_expect() -> None:
    found = Fields("the thing", {"a": 3, "b": True, "c": "x", "d": [1.0, None], "e": 1e400})
    assert found.whole("a") == 3 and found.flag("b") and found.number("a") == 3.0
    for ask, message in (
        (lambda: found.whole("b"), "the thing: 'b' must be a whole number from 0, got True"),
        (lambda: found.whole("a", 4), "'a' must be a whole number from 4, got 3"),
        (lambda: found.number("a", above=3), "'a' must be a number above 3, got 3"),
        (lambda: found.number("e"), "'e' must be a number, got inf"),
        (lambda: found.share("a"), "'a' must be a share"),
        (lambda: found.word("c", ("y", None)), "'c' must be one of 'y', None, got 'x'"),
        (lambda: found.pair("d"), "'d' must be two numbers"),
        (lambda: found.texts("d"), "'d' must be texts"),
        (lambda: found.inner("c"), "'c' of the thing must be an object"),
        (lambda: found.text("f"), "the thing has no field 'f'"),
    ):
        with pytest.raises(FileError, match=message):
            ask()
    arrays = StoredArrays("north", {"a": np.ones((2, 3)), "b": np.ones(1)})
    with pytest.raises(FileError, match=r"north: expected 'a' of the shape \(2, any, 1\)"):
        arrays.take("a", (2, None, 1), "float64")
    with pytest.raises(FileError, match="north has an array 'b'"):
        arrays.end()
