"""Encoders in files: what is no array as a record of JSON, the rest as arrays of the owner's leaf.

    SequenceEncoder, TabularEncoder   settings, network and reading as JSON; weights by their names
                                      (networks.py), "mean" and "spread" of the inputs, "history" of
                                      losses as arrays
    a model of another library        is not in the file: whoever loads it gives the model back.
                                      Written are its reading, and the arrays of the rule by which
                                      its owner alone predicts
    Frozen                            what it holds, and that it is frozen
    LabelsOnly                        nothing: of a party that holds the target alone

All of it is checked when it is read: weights have the shapes that their network asks for, and its
inputs are those of the columns and series that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from fedcircuits.circuits.graph.records import (
    AnyArray,
    Place,
    Positive,
    SchemaJson,
    Size,
    StoredArrays,
    variable_of,
)
from fedcircuits.errors import FileError
from fedcircuits.learning.encoders.encoders import NetworkEncoder, SequenceEncoder, TabularEncoder
from fedcircuits.learning.encoders.foreign import (
    Encoder,
    ForeignEncoder,
    Frozen,
    LabelsOnly,
    is_module,
)
from fedcircuits.learning.encoders.inputs import InputReading
from fedcircuits.learning.encoders.networks import Cell, Perceptron, Recurrent, flattened, views
from fedcircuits.tables.features import FeatureLayout
from fedcircuits.tables.schema import Schema, Variable

ENCODE, TRANSFORM = "encode(table)", "transform(array), or be a torch module"


class StoredReading(msgspec.Struct, frozen=True):
    """What an encoder reads; its scale is in arrays."""

    schema: SchemaJson
    series: list[tuple[str, Size, Size]]  # name, steps, channels
    in_steps: bool = msgspec.field(name="in steps")


class NetworkSettings(msgspec.Struct, frozen=True):
    """The arguments that both networks have."""

    width: Size
    epochs: Size
    learning_rate: Positive
    batch: Size
    patience: Size
    random_state: Place | None


class SequenceSettings(NetworkSettings, frozen=True):
    cell: Cell


class TabularSettings(NetworkSettings, frozen=True):
    hidden: tuple[Size, ...]


class StoredEncoder(msgspec.Struct, frozen=True, tag_field="kind"):
    """An encoder as a file has it; which one is said by "kind"."""

    frozen: bool

    @property
    def name(self) -> str:
        """Of its class."""
        return str(self.__struct_config__.tag)

    @property
    def needs(self) -> str | None:
        """What a model must have that is given back for it; None if the file has all."""
        return None

    def encoder(self, arrays: StoredArrays, given: object = None) -> Encoder:
        """``given``: a model that has what it needs."""
        encoder = self._encoder(arrays, given)
        arrays.end()
        return Frozen(encoder) if self.frozen else encoder

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        raise NotImplementedError


class StoredNetwork(StoredEncoder, frozen=True):
    width: Size
    target: SchemaJson | None  # None: learned without labels
    scale: tuple[float, float]
    reading: StoredReading


class StoredSequence(StoredNetwork, frozen=True, tag="SequenceEncoder"):
    settings: SequenceSettings
    cell: Cell

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        reading = _reading(self.reading, arrays)
        if not reading.in_steps:
            raise FileError(f"{arrays.what}: it must read series in steps")
        inputs = len(reading.mean) + 1
        network = Recurrent(self.cell, reading.steps, inputs, self.width)
        encoder = SequenceEncoder(**msgspec.structs.asdict(self.settings))
        encoder.network_ = network
        return _filled(encoder, self, reading, arrays, reading.steps * inputs)


class StoredTabular(StoredNetwork, frozen=True, tag="TabularEncoder"):
    settings: TabularSettings
    hidden: tuple[Size, ...]

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        reading = _reading(self.reading, arrays)
        if reading.in_steps:
            raise FileError(f"{arrays.what}: it must read series end to end")
        inputs = len(reading.mean)
        encoder = TabularEncoder(**msgspec.structs.asdict(self.settings))
        encoder.network_ = Perceptron(inputs, self.hidden, self.width)
        return _filled(encoder, self, reading, arrays, inputs)


class StoredLabels(StoredEncoder, frozen=True, tag="Silent"):
    @property
    def name(self) -> str:
        return LabelsOnly.__name__

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        return LabelsOnly()


class StoredObject(StoredEncoder, frozen=True, tag="encoder"):
    model: str  # its class

    @property
    def name(self) -> str:
        return self.model

    @property
    def needs(self) -> str | None:
        return ENCODE

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        return cast(Encoder, given)


class StoredForeign(StoredObject, frozen=True, tag="model"):
    target: SchemaJson | None
    reading: StoredReading | None

    @property
    def needs(self) -> str | None:
        return ENCODE if self.reading is None else TRANSFORM

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        encoder = ForeignEncoder(given)
        encoder.model_ = given
        if self.reading is not None:
            encoder.reading_ = _reading(self.reading, arrays)
        encoder.target_ = None if self.target is None else variable_of(self.target, "the target")
        if encoder.target_ is not None:
            _set_rule(encoder, arrays, encoder.target_.size)
        return encoder


AnyStoredEncoder: TypeAlias = (
    StoredSequence | StoredTabular | StoredLabels | StoredObject | StoredForeign
)
Stored: TypeAlias = tuple[AnyStoredEncoder, Mapping[str, AnyArray]]


# ---------------------------------------------------------------------- to files


def stored(encoder: Encoder) -> Stored:
    """The record and arrays of an encoder that has learned."""
    inner, frozen = encoder, isinstance(encoder, Frozen)
    while isinstance(inner, Frozen):  # one around another changes nothing
        inner = inner.encoder
    if isinstance(inner, NetworkEncoder) and type(inner) in (SequenceEncoder, TabularEncoder):
        return _stored_network(inner, frozen)
    if isinstance(inner, LabelsOnly):
        return StoredLabels(frozen), {}
    if isinstance(inner, ForeignEncoder) and hasattr(inner, "model_"):
        return _stored_foreign(inner, frozen)
    return StoredObject(frozen, type(inner).__name__), {}


def _stored_network(encoder: NetworkEncoder, frozen: bool) -> Stored:
    encoder._fitted()
    network, settings = encoder.network_, encoder.get_params(deep=False)
    weights = views(torch.from_numpy(encoder.weights_)[None], encoder._shapes)
    reading, arrays = _stored_reading(encoder.reading_)
    arrays |= {name: weight[0].numpy() for name, weight in weights.items()}
    arrays["history"] = encoder.history_
    parts = frozen, network.width, _stored_target(encoder.target_), encoder._scale, reading
    if isinstance(network, Recurrent):
        return StoredSequence(*parts, SequenceSettings(**settings), network.cell), arrays
    assert isinstance(network, Perceptron)
    settings["hidden"] = tuple(settings["hidden"])
    return StoredTabular(*parts, TabularSettings(**settings), network.hidden), arrays


def _stored_reading(reading: InputReading) -> tuple[StoredReading, dict[str, AnyArray]]:
    series = [(name, *shape) for name, shape in reading.shapes.items()]
    record = StoredReading(reading.schema.to_json(), series, reading.in_steps)
    return record, {"mean": reading.mean, "spread": reading.spread}


def _stored_foreign(encoder: ForeignEncoder, frozen: bool) -> Stored:
    reading: StoredReading | None = None
    arrays: dict[str, AnyArray] = {}
    if hasattr(encoder, "reading_"):
        reading, arrays = _stored_reading(encoder.reading_)
    if encoder.target_ is not None:
        rule = encoder._rule
        arrays |= {"centre": encoder._mean, "coefficients": np.atleast_2d(rule.coef_)}
        arrays["intercept"] = np.atleast_1d(rule.intercept_)
        if isinstance(rule, LogisticRegression):
            arrays["classes"] = np.asarray(rule.classes_, np.float64)
    name, target = type(encoder.model).__name__, _stored_target(encoder.target_)
    return StoredForeign(frozen, name, target, reading), arrays


def _stored_target(target: Variable | None) -> SchemaJson | None:
    return None if target is None else list(Schema((target,)).to_json())


# ---------------------------------------------------------------------- from files


def suits(given: object, needs: str) -> bool:
    """Whether a model has what the encoder of a file needs."""
    if isinstance(given, type):
        return False
    if needs == ENCODE:
        return hasattr(given, "encode")
    return not hasattr(given, "encode") and (hasattr(given, "transform") or is_module(given))


def _filled(
    encoder: NetworkEncoder, record: StoredNetwork, reading: InputReading, arrays: StoredArrays,
    inputs: int,
) -> Encoder:  # fmt: skip
    """With what it has learned; ``inputs``: how many numbers it gives back without labels."""
    target = None if record.target is None else variable_of(record.target, "the target")
    encoder.reading_, encoder.target_, encoder._scale = reading, target, record.scale
    encoder._outputs = inputs if target is None else target.size or 1
    shapes = encoder._shapes
    encoder.weights_ = flattened({n: arrays.take(n, s) for n, s in shapes.items()}, shapes)
    encoder.history_ = arrays.take("history", (None,), finite=False).astype(np.float32)
    return encoder


def _reading(record: StoredReading, arrays: StoredArrays) -> InputReading:
    schema = Schema.from_json(record.schema)
    shapes = {name: (steps, channels) for name, steps, channels in record.series}
    if len(shapes) < len(record.series) or set(shapes) & set(schema.names):
        raise FileError(f"{arrays.what}: a column or series is named twice")
    if not shapes and (record.in_steps or not len(schema)):
        raise FileError(
            f"{arrays.what}: there is no {'series' if record.in_steps else 'column'} to read"
        )
    inputs = len(FeatureLayout.of(schema))
    inputs += sum(c * (1 if record.in_steps else steps) for steps, c in shapes.values())
    mean, spread = (arrays.take(n, (inputs,)).astype(np.float32) for n in ("mean", "spread"))
    if (spread <= 0).any():
        raise FileError(f"{arrays.what}: 'spread' must be above 0")
    return InputReading(schema, shapes, mean, spread, record.in_steps)


def _set_rule(encoder: ForeignEncoder, arrays: StoredArrays, classes: int) -> None:
    """Give it the logistic or ridge regression by which its owner alone predicts."""
    encoder._mean = arrays.take("centre", (None,), "float64").astype(np.float64)
    width, outputs = len(encoder._mean), 1
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
    encoder._rule = rule
