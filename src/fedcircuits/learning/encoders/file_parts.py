"""Parts that records of encoders share: what is read, and the owner's own regression."""

from __future__ import annotations

import msgspec
import numpy as np

from fedcircuits.circuits.graph.records import AnyArray, SchemaJson, Size, StoredArrays
from fedcircuits.errors import FileError
from fedcircuits.learning.encoders.foreign import LinearRule, RegressingEncoder
from fedcircuits.learning.encoders.inputs import InputReading
from fedcircuits.learning.features import FeatureLayout
from fedcircuits.tables.schema import Schema, Variable


class StoredReading(msgspec.Struct, frozen=True):
    """What an encoder reads; its scale is in arrays."""

    schema: SchemaJson
    series: list[tuple[str, Size, Size]]  # name, steps, channels
    in_steps: bool = msgspec.field(name="in steps")


def stored_reading(reading: InputReading) -> tuple[StoredReading, dict[str, AnyArray]]:
    series = [(name, *shape) for name, shape in reading.shapes.items()]
    record = StoredReading(reading.schema.to_json(), series, reading.in_steps)
    return record, {"mean": reading.mean, "spread": reading.spread}


def stored_rule(encoder: RegressingEncoder) -> dict[str, AnyArray]:
    """How its owner alone predicts; nothing without labels."""
    if encoder.target_ is None:
        return {}
    rule = encoder._rule
    arrays: dict[str, AnyArray] = {"centre": encoder._mean, "coefficients": rule.coefficients}
    arrays["intercept"] = rule.intercept
    if rule.classes is not None:
        arrays["classes"] = rule.classes
    return arrays


def stored_target(target: Variable | None) -> SchemaJson | None:
    return None if target is None else list(Schema((target,)).to_json())


# ---------------------------------------------------------------------- from files


def reading_of(record: StoredReading, arrays: StoredArrays) -> InputReading:
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


def set_rule(
    encoder: RegressingEncoder, arrays: StoredArrays, classes: int, width: int | None
) -> None:
    """Give it the logistic or ridge regression by which its owner alone predicts; ``width``: of its
    representations, None if the file does not say."""
    encoder._mean = arrays.take("centre", (width,), "float64").astype(np.float64)
    outputs, codes = 1, None
    if "classes" in arrays.left:
        codes = arrays.take("classes", (None,), "float64").astype(np.float64)
        different = len(set(codes.tolist())) == len(codes) > 1
        if not different or not set(codes.tolist()) <= set(range(classes)):
            raise FileError(f"{arrays.what}: 'classes' must be different codes below {classes}")
        outputs = 1 if len(codes) == 2 else len(codes)
    shape = outputs, len(encoder._mean)
    coefficients = arrays.take("coefficients", shape, "float64").astype(np.float64)
    intercept = arrays.take("intercept", (outputs,), "float64").astype(np.float64)
    if classes and codes is None and (coefficients.any() or intercept[0] not in range(classes)):
        raise FileError(f"{arrays.what}: of one class alone, 'intercept' must be its code")
    encoder._rule = LinearRule(coefficients, intercept, codes)
