"""Figures of test rows: macro-F1 of a model, and mean ± deviation over seeds."""

import numpy as np
from sklearn.metrics import f1_score

import fedcircuits as fc
from benchmarks.federated.sets import Data
from fedcircuits.circuits.graph.family import Array


def macro_f1(model: fc.Model, data: Data) -> float:
    found = model.predict(data.test, data.target).astype(str)
    truth = data.test.column(data.target).astype(str)
    return float(f1_score(truth, found, average="macro"))


def spread(values: list[float] | Array) -> str:
    """Mean ± deviation."""
    if len(values) < 2:
        return f"{np.mean(values):.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
