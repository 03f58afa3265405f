"""Encoders in files: what is no array as JSON, the rest as arrays of the owner's leaf.

    SequenceEncoder, TabularEncoder   settings, network and reading as JSON; weights by their names
                                      (networks.py), "mean" and "spread" of the inputs, "history" of
                                      losses as arrays
    a model of another library        is not in the file: whoever loads it gives the model back.
                                      Written are its reading, and the arrays of the rule by which
                                      its owner alone predicts
    Frozen                            what it holds, and that it is frozen
    Silent                            nothing: of an owner that holds the target alone

All of it is checked when it is read: weights have the shapes that their network asks for, and its
inputs are those of the columns and series that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from fedcircuits.errors import FileError
from fedcircuits.learning.encoders.encoders import (
    Encoder,
    Frozen,
    NetworkEncoder,
    SequenceEncoder,
    Silent,
    TabularEncoder,
)
from fedcircuits.learning.encoders.foreign import ForeignEncoder, is_module
from fedcircuits.learning.encoders.inputs import Reading
from fedcircuits.learning.encoders.networks import (
    Cell,
    Network,
    Perceptron,
    Recurrent,
    flattened,
    views,
)
from fedcircuits.learning.stored import AnyArray, Fields, StoredArrays, plain
from fedcircuits.tables.schema import Schema, Variable

Stored: TypeAlias = tuple[dict[str, object], dict[str, AnyArray]]
OURS = ("SequenceEncoder", "TabularEncoder", "Silent")
KINDS = (*OURS, "model", "encoder")
ENCODE, TRANSFORM = "encode(table)", "transform(array), or be a torch module"
CELLS: tuple[Cell, ...] = ("lstm", "gru")


# ---------------------------------------------------------------------- to files


def stored(encoder: Encoder) -> Stored:
    """JSON and arrays of an encoder that has learned."""
    inner = encoder
    while isinstance(inner, Frozen):  # one around another changes nothing
        inner = inner.encoder
    about, arrays = _stored(inner)
    return {**about, "frozen": isinstance(encoder, Frozen)}, arrays


def _stored(encoder: Encoder) -> Stored:
    if isinstance(encoder, SequenceEncoder) and type(encoder) is SequenceEncoder:
        return _network_stored(encoder)
    if isinstance(encoder, TabularEncoder) and type(encoder) is TabularEncoder:
        return _network_stored(encoder)
    if isinstance(encoder, Silent):
        return {"kind": "Silent"}, {}
    if isinstance(encoder, ForeignEncoder) and hasattr(encoder, "model_"):
        return _foreign_stored(encoder)
    return {"kind": "encoder", "model": type(encoder).__name__}, {}


def _network_stored(encoder: NetworkEncoder) -> Stored:
    encoder._fitted()
    network = encoder.network_
    about: dict[str, object] = {
        "kind": type(encoder).__name__,
        "settings": {n: plain(v) for n, v in encoder.get_params(deep=False).items()},
        "width": network.width,
        "target": _variable(encoder.target_),
        "scale": list(encoder._scale),
    }
    if isinstance(network, Recurrent):
        about["cell"] = network.cell
    elif isinstance(network, Perceptron):
        about["hidden"] = plain(network.hidden)
    read, arrays = _reading_stored(encoder.reading_)
    weights = views(torch.from_numpy(encoder.weights_)[None], encoder._shapes)
    arrays |= {name: weight[0].numpy() for name, weight in weights.items()}
    return about | {"reading": read}, {**arrays, "history": encoder.history_}


def _reading_stored(reading: Reading) -> Stored:
    about: dict[str, object] = {
        "schema": reading.schema.to_json(),
        "series": [[name, *shape] for name, shape in reading.shapes.items()],
        "in steps": reading.in_steps,
    }
    return about, {"mean": reading.mean, "spread": reading.spread}


def _foreign_stored(encoder: ForeignEncoder) -> Stored:
    about: dict[str, object] = {
        "kind": "model",
        "model": type(encoder.model).__name__,
        "target": _variable(encoder.target_),
        "reading": None,
    }
    arrays: dict[str, AnyArray] = {}
    if hasattr(encoder, "reading_"):
        about["reading"], arrays = _reading_stored(encoder.reading_)
    if encoder.target_ is not None:
        rule = encoder._rule
        arrays |= {"centre": encoder._mean, "coefficients": np.atleast_2d(rule.coef_)}
        arrays["intercept"] = np.atleast_1d(rule.intercept_)
        if isinstance(rule, LogisticRegression):
            arrays["classes"] = np.asarray(rule.classes_, np.float64)
    return about, arrays


def _variable(target: Variable | None) -> object:
    return None if target is None else Schema((target,)).to_json()


# ---------------------------------------------------------------------- from files


@dataclass(frozen=True, slots=True)
class StoredEncoder:
    """An encoder as a file has it."""

    about: Fields
    arrays: Mapping[str, AnyArray]

    @property
    def name(self) -> str:
        """Of its class."""
        kind = self.about.word("kind", KINDS)
        return kind if kind in OURS else self.about.text("model")

    @property
    def needs(self) -> str | None:
        """What a model must have that is given back for it; None if the file has all."""
        kind = self.about.word("kind", KINDS)
        if kind in OURS:
            return None
        return TRANSFORM if kind == "model" and not self.about.none("reading") else ENCODE

    def encoder(self, given: object = None) -> Encoder:
        """``given``: a model that suits what it needs."""
        kind, arrays = self.about.word("kind", KINDS), StoredArrays(self.about.what, self.arrays)
        found: Encoder
        if kind == "encoder":
            found = cast(Encoder, given)
        elif kind == "Silent":
            found = Silent()
        elif kind == "model":
            found = _foreign(self.about, arrays, given)
        else:
            found = _network(self.about, arrays, kind)
        arrays.end()
        return Frozen(found) if self.about.flag("frozen") else found


def suits(given: object, needs: str) -> bool:
    if isinstance(given, type):
        return False
    if needs == ENCODE:
        return hasattr(given, "encode")
    return not hasattr(given, "encode") and (hasattr(given, "transform") or is_module(given))


def _network(about: Fields, arrays: StoredArrays, kind: str) -> Encoder:
    in_steps = kind == "SequenceEncoder"
    found: NetworkEncoder = SequenceEncoder() if in_steps else TabularEncoder()
    found.set_params(**_settings(about.inner("settings"), in_steps))
    found.reading_ = reading = _reading(about.inner("reading"), arrays, in_steps)
    found.target_ = None if about.none("target") else about.variable("target")
    width, inputs = about.whole("width", 1), len(reading.mean)
    network: Network
    if in_steps:
        network = Recurrent(about.word("cell", CELLS), reading.steps, inputs + 1, width)
        flat = reading.steps * (inputs + 1)
    else:
        network, flat = Perceptron(inputs, _sizes(about, "hidden"), width), inputs
    found.network_, found._scale = network, about.pair("scale")
    found._outputs = flat if found.target_ is None else found.target_.size or 1
    shapes = found._shapes
    found.weights_ = flattened({n: arrays.take(n, s) for n, s in shapes.items()}, shapes)
    found.history_ = arrays.take("history", (None,), finite=False).astype(np.float32)
    return found


def _settings(about: Fields, in_steps: bool) -> dict[str, object]:
    found: dict[str, object] = {n: about.whole(n, 1) for n in ("width", "epochs", "batch")}
    found["patience"] = about.whole("patience", 1)
    found["learning_rate"] = about.number("learning_rate", above=0)
    found["random_state"] = None
    if not about.none("random_state"):
        found["random_state"] = about.whole("random_state")
    if in_steps:
        return found | {"cell": about.word("cell", CELLS)}
    return found | {"hidden": _sizes(about, "hidden")}


def _sizes(about: Fields, name: str) -> tuple[int, ...]:
    each = {str(i): size for i, size in enumerate(about.rows(name))}
    layers = Fields(f"{name!r} of {about.what}", each)
    return tuple(layers.whole(i, 1) for i in each)


def _reading(about: Fields, arrays: StoredArrays, in_steps: bool) -> Reading:
    schema, shapes = about.schema("schema"), _series(about)
    if about.flag("in steps") != in_steps:
        raise FileError(f"{about.what}: 'in steps' must be {in_steps} for this kind of encoder")
    if not shapes and (in_steps or not len(schema)):
        raise FileError(f"{about.what}: there is no {'series' if in_steps else 'column'} to read")
    inputs = sum(v.size if v.size > 2 else 1 for v in schema)
    inputs += sum(channels * (1 if in_steps else steps) for steps, channels in shapes.values())
    mean, spread = (arrays.take(n, (inputs,)).astype(np.float32) for n in ("mean", "spread"))
    if (spread <= 0).any():
        raise FileError(f"{about.what}: 'spread' must be above 0")
    return Reading(schema, shapes, mean, spread, in_steps)


def _series(about: Fields) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in about.rows("series"):
        names = ("name", "steps", "channels")
        one = Fields(f"a series of {about.what}", {})
        if isinstance(row, list) and len(row) == 3:
            one = Fields(one.what, dict(zip(names, row, strict=True)))
        name, steps, channels = one.text("name"), one.whole("steps", 1), one.whole("channels", 1)
        if name in found or name in about.schema("schema"):
            raise FileError(f"{about.what}: {name!r} is named twice")
        found[name] = steps, channels
    return found


# ---------------------------------------------------------------------- models of other libraries


def _foreign(about: Fields, arrays: StoredArrays, given: object) -> ForeignEncoder:
    found = ForeignEncoder(given)
    found.model_ = given
    if not about.none("reading"):
        read = about.inner("reading")
        found.reading_ = _reading(read, arrays, read.flag("in steps"))
    found.target_ = None if about.none("target") else about.variable("target")
    if found.target_ is not None:
        _learn_rule(found, arrays, found.target_.size)
    return found


def _learn_rule(found: ForeignEncoder, arrays: StoredArrays, classes: int) -> None:
    """Give it the logistic or ridge regression by which its owner alone predicts."""
    found._mean = arrays.take("centre", (None,), "float64").astype(np.float64)
    width, outputs = len(found._mean), 1
    rule: LogisticRegression | Ridge = Ridge()
    if "classes" in arrays.left:
        rule = LogisticRegression()
        rule.classes_ = codes = arrays.take("classes", (None,), "float64")
        different = len(set(codes.tolist())) == len(codes) > 1
        if not different or not set(codes.tolist()) <= set(range(classes)):
            raise FileError(f"{arrays.what}: 'classes' must be different codes below {classes}")
        outputs = 1 if len(codes) == 2 else len(codes)
    rule.coef_ = arrays.take("coefficients", (outputs, width), "float64")
    rule.intercept_ = arrays.take("intercept", (outputs,), "float64")
    rule.n_features_in_ = width
    if isinstance(rule, Ridge):
        rule.coef_ = rule.coef_[0]
        if classes and (rule.coef_.any() or rule.intercept_[0] not in range(classes)):
            raise FileError(f"{arrays.what}: of one class alone, 'intercept' must be its code")
    found._rule = rule
