"""Sections of a report that draw a circuit: its marginals, and its structure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcircuits.app import comparing, report
from fedcircuits.app.inspecting import places
from fedcircuits.app.loading import AnyModel
from fedcircuits.app.report import Block, Heading, Paragraph, Picture
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.regions import EVERYTHING
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.record import TrainingRecord
from fedcircuits.pictures.drawing import Drawing, figure_of
from fedcircuits.pictures.federation import placed_drawing
from fedcircuits.pictures.graph import graph_drawing
from fedcircuits.pictures.judging import dependence_drawing
from fedcircuits.pictures.marginals import Beliefs, marginals_drawing
from fedcircuits.reports.comparison import Comparison, compare
from fedcircuits.tables.table import Table

MOST_PANELS = 12


def beliefs(model: Model, test: Table | None, seed: int) -> Iterator[Block]:
    """Marginals and dependencies, beside those of test rows."""
    yield Heading("Columns")
    shown = list(model.schema_.names[:MOST_PANELS])
    drawing = marginals_drawing(Beliefs(model._distribution, model._nothing(), EVERYTHING), shown)
    yield Picture(
        report.png_of(figure_of(drawing)), f"Marginal distributions of {len(shown)} columns."
    )
    if test is None:
        return
    comparison = compare(model, test, random_state=seed)
    yield Paragraph(
        "Total variation between samples of the model and test rows: 0 is the same, 1 is nothing "
        "in common. Distances near chance, that of as many samples of the model, are no difference."
    )
    yield comparing.columns(comparison)
    if len(comparison.pairs):
        yield Heading("Dependencies")
        yield Picture(
            report.png_of(figure_of(_pairs_drawing(comparison, test))),
            "How strongly columns depend on each other: below the diagonal in the model, above it "
            "in the test rows. The strongest dependence is the darkest.",
        )
        yield comparing.dependencies(comparison, ("model", "test rows"))


def _pairs_drawing(comparison: Comparison, test: Table) -> Drawing:
    named = {*comparison.pairs["column"], *comparison.pairs["with"]}
    names = [n for n in test.names if n in named]
    at = {n: i for i, n in enumerate(names)}
    sides: dict[str, Array] = {s: np.zeros((len(names), len(names))) for s in ("first", "second")}
    for _, line in comparison.pairs.iterrows():
        i, j = at[line["column"]], at[line["with"]]
        for side, square in sides.items():
            square[i, j] = square[j, i] = line[side]
    return dependence_drawing(names, sides["first"], sides["second"])


def graph(model: AnyModel, record: TrainingRecord | None) -> Iterator[Block]:
    """The circuit, by party if the placement is known."""
    yield Heading("The circuit")
    circuit = model.circuit_
    placement = {} if record is None else record.placement
    placed = {node.name for node in circuit.nodes} == placement.keys()
    if placed and len(circuit) > 1:
        yield places(circuit, placement)
    parameters = getattr(model, "parameters_", None)
    if placed and len(circuit) > 1 and circuit.is_density:
        if parameters is None:
            parameters = getattr(getattr(model, "joint_", None), "parameters", None)
        drawing = placed_drawing(circuit, placement, parameters)
        caption = (
            "Squares are circuits that a party has learned and keeps; the coordinator combines "
            "them. Wider lines and darker squares describe more rows."
        )
    else:
        drawing = graph_drawing(circuit, parameters)
        caption = "Layers of the circuit, its root on top."
        if placed:
            caption = f"One circuit for all parties. {caption}"
    yield Picture(report.png_of(figure_of(drawing)), caption)
