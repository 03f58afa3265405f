"""Log-values of a root as answers: what no row can be worth is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.errors import QueryError

ABSURD = 1200.0  # log density of a variable that no parameters give: a width of 1e-300 gives 690


def finite(log_values: Tensor) -> Tensor:
    """IMPOSSIBLE outside of a circuit is −∞."""
    return torch.where(log_values <= IMPOSSIBLE / 2, -torch.inf, log_values)


def as_answers(log_values: Tensor, circuit: Circuit) -> Tensor:
    """The same as an answer: QueryError where a number is none, or is larger than any density."""
    sound = log_values < ABSURD * len(circuit.schema)  # NaN is not
    if not bool(sound.all()):
        row = int(torch.nonzero(~sound)[0])
        raise QueryError(
            f"the log-likelihood of row {row} (rows count from 0) cannot be computed: values or "
            "parameters of the model are of too different scales; rescale the columns"
        )
    return finite(log_values)
