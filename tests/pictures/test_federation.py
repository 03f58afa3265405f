"""Pictures of federated circuits stay readable, whatever the number of circuits and parties."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.pictures.drawing import figure_of
from fedcircuits.pictures.federation import federated_drawing, leaf_shares

Federated = tuple[fc.Circuit, dict[str, str], list[str], Array]


def federated(parties: int, each: int) -> Federated:
    """Every party has so many circuits, some of which are combined."""
    rng, names = np.random.default_rng(0), [f"party {i + 1}" for i in range(parties)]
    nodes: list[Node] = []
    for i, name in enumerate(names):
        nodes += [Leaf(f"{name}/{k}", "gaussian", (f"x{i}",), 1) for k in range(each)]
    drawn = {tuple(rng.integers(each, size=parties).tolist()) for _ in range(2 * each)}
    chosen = sorted(drawn | {(k,) * parties for k in range(each)})
    products = [
        Product(f"p{j}", tuple(f"{name}/{k}" for name, k in zip(names, choice, strict=True)))
        for j, choice in enumerate(chosen)
    ]
    root = Sum("root", tuple(p.name for p in products), 1)
    schema = fc.Schema(tuple(fc.Variable(f"x{i}", "real") for i in range(parties)))
    circuit = fc.Circuit((*nodes, *products, root), schema)
    home = {n.name: n.name.split("/")[0] if "/" in n.name else "coordinator" for n in circuit.nodes}
    return circuit, home, names, rng.dirichlet(np.full(len(products), 0.5))


@pytest.mark.parametrize(
    ("parties", "each"), [(3, 1), (3, 10), (3, 28), (3, 100), (1, 300), (20, 5), (200, 2)]
)
def test_texts_never_overlap_and_edges_are_few(parties: int, each: int) -> None:
    figure = figure_of(federated_drawing(*federated(parties, each)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [axes] = figure.axes
    boxes = [t.get_window_extent() for t in axes.texts if t.get_text()]
    width, height = figure.get_size_inches() * figure.dpi
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= width and b.y1 <= height for b in boxes)
    edges = len(axes.lines) + len([p for p in axes.patches if type(p).__name__ == "PathPatch"])
    assert edges <= 60 and height < 14 * figure.dpi
    squares = [p for p in axes.patches if type(p) is Rectangle]
    assert len(squares) in (0, min(each, 120) * min(parties, 16))


def test_the_share_of_a_leaf_is_that_of_combinations_with_it() -> None:
    circuit, _, names, weights = federated(3, 4)
    shares = leaf_shares(circuit, weights)
    for name in names:
        assert sum(shares[f"{name}/{k}"] for k in range(4)) == pytest.approx(1.0)
    pairs = zip(circuit.root.children, weights, strict=True)
    first = [weight for child, weight in pairs if "party 1/0" in circuit[child].children]
    assert shares["party 1/0"] == pytest.approx(sum(first))
