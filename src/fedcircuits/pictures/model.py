"""Pictures of a fitted model: its circuit, and what it believes of every variable.

circuit_picture     the graph, node by node or folded by layers
marginals_picture   every variable before and after evidence
picture             both side by side
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from matplotlib.figure import Figure

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.regions import Event
from fedcircuits.pictures.beliefs import Beliefs, checked, one_row
from fedcircuits.pictures.drawing import Drawing, beside, figure_of
from fedcircuits.pictures.graph import graph_drawing
from fedcircuits.pictures.marginals import marginals_drawing
from fedcircuits.tables.schema import Schema

MOST_PANELS = 16


class Drawable(Protocol):
    """What a fitted model has for its picture."""

    circuit_: Circuit
    parameters_: Parameters

    @property
    def schema_(self) -> Schema: ...

    @property
    def _distribution(self) -> Distribution: ...

    def _check_fitted(self) -> None: ...

    def _given(self, given: Any) -> tuple[Array, Event]: ...


def circuit_picture(circuit: Circuit, parameters: Parameters | None = None) -> Figure:
    """The graph; with parameters, the edges of a small one are as wide as their weights."""
    return figure_of(graph_drawing(circuit, parameters))


def marginals_picture(
    model: Drawable, given: object = None, columns: Sequence[str] | None = None
) -> Figure:
    """Panels for ``columns``, or for the 16 variables that ``given`` changes most."""
    return figure_of(_marginals(model, given, columns))


def picture(model: Drawable, given: object = None, columns: Sequence[str] | None = None) -> Figure:
    """The circuit and the marginals of a fitted model; only the circuit if it is no density."""
    model._check_fitted()
    graph = graph_drawing(model.circuit_, model.parameters_)
    if model.circuit_.is_density:
        graph = beside(graph, _marginals(model, given, columns))
    return figure_of(graph, title=type(model).__name__)


def _marginals(model: Drawable, given: object, columns: Sequence[str] | None) -> Drawing:
    x, event = model._given(given)
    beliefs = Beliefs(model._distribution, one_row(x), event)
    if columns is None:
        names = beliefs.most_changed(MOST_PANELS)
    else:
        names = checked(columns, model.schema_)
    return marginals_drawing([beliefs.of(n) for n in names], beliefs.words(), len(model.schema_))
