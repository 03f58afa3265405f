"""Encoders in files: settings as a JSON record, arrays as arrays of the owner's leaf.

    SequenceEncoder, TabularEncoder   settings, network and reading as JSON; weights by their names
                                      (networks.py), "mean" and "spread" of the inputs, "history" of
                                      losses as arrays
    SummaryEncoder, RocketEncoder     settings and reading as JSON; scale, principal components,
                                      convolutions and the owner's own regression as arrays
    a model of another library        is not in the file: it must be supplied when loading. Written
                                      are its reading and the arrays of the owner's own regression
    Frozen                            the encoder inside, and that it is frozen
    LabelsOnly                        nothing: for a party that only holds the target

All of it is checked when it is read: weights have the shapes that their network asks for, and its
inputs are those of the columns and series that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec
import numpy as np
import torch
from sklearn.exceptions import NotFittedError

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
from fedcircuits.learning.encoders.file_parts import (
    StoredReading,
    reading_of,
    set_rule,
    stored_reading,
    stored_rule,
    stored_target,
)
from fedcircuits.learning.encoders.fixed import (
    Convolutions,
    FixedEncoder,
    RocketEncoder,
    SummaryEncoder,
    longest,
)
from fedcircuits.learning.encoders.foreign import (
    Encoder,
    ForeignEncoder,
    Frozen,
    LabelsOnly,
    is_module,
)
from fedcircuits.learning.encoders.inputs import InputReading
from fedcircuits.learning.encoders.networks import Cell, Perceptron, Recurrent, flattened, views

ENCODE, TRANSFORM = "encode(table)", "transform(array), or be a torch module"


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
        """The name of its class."""
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
        reading = reading_of(self.reading, arrays)
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
        reading = reading_of(self.reading, arrays)
        if reading.in_steps:
            raise FileError(f"{arrays.what}: it must read series end to end")
        inputs = len(reading.mean)
        encoder = TabularEncoder(**msgspec.structs.asdict(self.settings))
        encoder.network_ = Perceptron(inputs, self.hidden, self.width)
        return _filled(encoder, self, reading, arrays, inputs)


class StoredFixed(StoredEncoder, frozen=True):
    """An encoder whose numbers are fixed; ``reduced``: to principal components."""

    width: Size
    target: SchemaJson | None
    reading: StoredReading
    reduced: bool

    def _filled(self, encoder: FixedEncoder, arrays: StoredArrays) -> Encoder:
        """``encoder`` has its reading and its convolutions."""
        numbers = encoder.numbers
        encoder._centre = arrays.take("centre of numbers", (numbers,), "float64")  # type: ignore[assignment]
        encoder._spread = arrays.take("spread of numbers", (numbers,), "float64")  # type: ignore[assignment]
        if (encoder._spread <= 0).any():
            raise FileError(f"{arrays.what}: 'spread of numbers' must be above 0")
        encoder._axes, width = None, numbers
        if self.reduced:
            axes = arrays.take("axes", (numbers, None), "float64")
            encoder._axes, width = axes.astype(np.float64), axes.shape[1]
        if not 0 < width <= self.width:
            raise FileError(f"{arrays.what}: expected 1 to {self.width} numbers, got {width}")
        encoder.target_ = None if self.target is None else variable_of(self.target, "the target")
        if encoder.target_ is not None:
            set_rule(encoder, arrays, encoder.target_.size, width)
        return encoder


class StoredSummary(StoredFixed, frozen=True, tag="SummaryEncoder"):
    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        encoder = SummaryEncoder(width=self.width)
        encoder.reading_ = reading_of(self.reading, arrays)
        if encoder.reading_.in_steps != bool(encoder.reading_.shapes):
            raise FileError(f"{arrays.what}: it must read series in steps")
        return self._filled(encoder, arrays)


class StoredRocket(StoredFixed, frozen=True, tag="RocketEncoder"):
    kernels: Size
    random_state: Place | None

    def _encoder(self, arrays: StoredArrays, given: object) -> Encoder:
        encoder = RocketEncoder(
            kernels=self.kernels, width=self.width, random_state=self.random_state
        )
        encoder.reading_ = reading = reading_of(self.reading, arrays)
        if not reading.in_steps:
            raise FileError(f"{arrays.what}: it must read series in steps")
        shape = (self.kernels, reading.channels, longest(reading.steps))
        weights = arrays.take("convolutions", shape).astype(np.float32)
        dilations = arrays.take("dilations", shape[:1], "int64").astype(np.int64)
        thresholds = arrays.take("thresholds", shape[:1]).astype(np.float32)
        most = max(reading.steps - 1, 1)
        if dilations[0] < 1 or dilations[-1] > most or (np.diff(dilations) < 0).any():
            raise FileError(f"{arrays.what}: 'dilations' must rise from 1 to at most {most}")
        encoder.convolutions_ = Convolutions(weights, dilations, thresholds)
        return self._filled(encoder, arrays)


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
            encoder.reading_ = reading_of(self.reading, arrays)
        encoder.target_ = None if self.target is None else variable_of(self.target, "the target")
        if encoder.target_ is not None:
            set_rule(encoder, arrays, encoder.target_.size, None)
        return encoder


AnyStoredEncoder: TypeAlias = (
    StoredSequence
    | StoredTabular
    | StoredSummary
    | StoredRocket
    | StoredLabels
    | StoredObject
    | StoredForeign
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
    if isinstance(inner, SummaryEncoder | RocketEncoder):
        return _stored_fixed(inner, frozen)
    if isinstance(inner, LabelsOnly):
        return StoredLabels(frozen), {}
    if isinstance(inner, ForeignEncoder) and hasattr(inner, "model_"):
        return _stored_foreign(inner, frozen)
    return StoredObject(frozen, type(inner).__name__), {}


def _stored_network(encoder: NetworkEncoder, frozen: bool) -> Stored:
    encoder._fitted()
    network, settings = encoder.network_, encoder.get_params(deep=False)
    weights = views(torch.from_numpy(encoder.weights_)[None], encoder._shapes)
    reading, arrays = stored_reading(encoder.reading_)
    arrays |= {name: weight[0].numpy() for name, weight in weights.items()}
    arrays["history"] = encoder.history_
    parts = frozen, network.width, stored_target(encoder.target_), encoder._scale, reading
    if isinstance(network, Recurrent):
        return StoredSequence(*parts, SequenceSettings(**settings), network.cell), arrays
    assert isinstance(network, Perceptron)
    settings["hidden"] = tuple(settings["hidden"])
    return StoredTabular(*parts, TabularSettings(**settings), network.hidden), arrays


def _stored_foreign(encoder: ForeignEncoder, frozen: bool) -> Stored:
    reading: StoredReading | None = None
    arrays: dict[str, AnyArray] = {}
    if hasattr(encoder, "reading_"):
        reading, arrays = stored_reading(encoder.reading_)
    arrays |= stored_rule(encoder)
    name, target = type(encoder.model).__name__, stored_target(encoder.target_)
    return StoredForeign(frozen, name, target, reading), arrays


def _stored_fixed(encoder: SummaryEncoder | RocketEncoder, frozen: bool) -> Stored:
    if not hasattr(encoder, "_centre"):
        raise NotFittedError(f"this {type(encoder).__name__} is not fitted yet: call fit")
    reading, arrays = stored_reading(encoder.reading_)
    arrays |= {"centre of numbers": encoder._centre, "spread of numbers": encoder._spread}
    arrays |= stored_rule(encoder)
    if encoder._axes is not None:
        arrays["axes"] = encoder._axes
    target, reduced = stored_target(encoder.target_), encoder._axes is not None
    parts = frozen, encoder.width, target, reading, reduced
    if isinstance(encoder, SummaryEncoder):
        return StoredSummary(*parts), arrays
    drawn = encoder.convolutions_
    arrays |= {"convolutions": drawn.weights, "dilations": drawn.dilations}
    arrays["thresholds"] = drawn.thresholds
    return StoredRocket(*parts, len(drawn.weights), encoder.random_state), arrays


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
    """The encoder with its learned state; ``inputs``: its number of outputs without labels."""
    target = None if record.target is None else variable_of(record.target, "the target")
    encoder.reading_, encoder.target_, encoder._scale = reading, target, record.scale
    encoder._outputs = inputs if target is None else target.size or 1
    shapes = encoder._shapes
    encoder.weights_ = flattened({n: arrays.take(n, s) for n, s in shapes.items()}, shapes)
    encoder.history_ = arrays.take("history", (None,), finite=False).astype(np.float32)
    return encoder
