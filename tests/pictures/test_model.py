"""Pictures are drawn for real: their texts are read back, and no two of them touch."""

import io
import itertools
import subprocess
import sys
from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given as all_of
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from scipy.integrate import trapezoid
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import random_weights
from fedcircuits.errors import QueryError
from fedcircuits.estimators.model import Model
from fedcircuits.pictures.drawing import figure_of, shortened
from fedcircuits.pictures.folding import edges, fold, levels
from fedcircuits.pictures.graph import graph_drawing
from fedcircuits.pictures.marginals import Belief, Beliefs, marginals_drawing, percent


def circuit_picture(circuit: fc.Circuit, parameters: fc.Parameters | None = None) -> Figure:
    return figure_of(graph_drawing(circuit, parameters))


def marginals_picture(
    model: Model, given: object = None, columns: Sequence[str] | None = None
) -> Figure:
    beliefs = Beliefs(model._distribution, *model._given(given))  # type: ignore[arg-type]
    return figure_of(marginals_drawing(beliefs, columns))


def texts(figure: Figure) -> list[str]:
    found = (t.get_text() for t in figure.findobj(Text) if t.get_visible())
    return [t for t in found if t]


def boxes(figure: Figure) -> int:
    return len(figure.findobj(FancyBboxPatch))


def touching(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that overlap, and texts that leave the figure (with "")."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    places = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in shown]
    whole = figure.bbox
    outside = [
        (name, "")
        for name, b in places
        if b.x0 < whole.x0 or b.x1 > whole.x1 or b.y0 < whole.y0 or b.y1 > whole.y1
    ]
    pairs = itertools.combinations(places, 2)
    return outside + [(a, b) for (a, p), (b, q) in pairs if p.padded(-1).overlaps(q.padded(-1))]


def blank(figure: Figure) -> bool:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    file.seek(0)
    return float(np.ptp(imread(file)[..., :3])) < 0.5


def irregular(most: int, seed: int = 0) -> fc.Circuit:
    """A tree as a learner grows it: sums of two or three, uneven splits, leaves of two families."""
    rng = np.random.default_rng(seed)
    schema, nodes = fc.Schema.real(30), list[Node]()

    def leaf(variable: str) -> str:
        rule = "gaussian" if rng.random() < 0.7 else "student_t"
        nodes.append(Leaf(f"n{len(nodes)}", rule, (variable,)))
        return nodes[-1].name

    def grow(scope: list[str], left: int, mixes: bool) -> str:
        if len(scope) == 1:
            return leaf(scope[0])
        if left <= len(scope):
            children = [leaf(v) for v in scope]
        elif mixes:
            number = int(rng.integers(2, 4))
            children = [grow(scope, left // number, False) for _ in range(number)]
        else:
            cut, order = int(rng.integers(1, len(scope))), rng.permutation(scope).tolist()
            share = left * cut // len(scope)
            children = [grow(order[:cut], share, True), grow(order[cut:], left - share, True)]
        kind = Sum if mixes and left > len(scope) else Product
        nodes.append(kind(f"n{len(nodes)}", tuple(children)))
        return nodes[-1].name

    grow(list(schema.names), most, True)
    return fc.Circuit(tuple(nodes), schema)


def chain(length: int) -> fc.Circuit:
    """As deep as a circuit can be: every variable hangs below the one before."""
    schema = fc.Schema.real(length)
    nodes: list[Node] = []
    below = ""
    for name in reversed(schema.names):
        nodes.append(Leaf(name, "gaussian", (name,)))
        if below:
            nodes.append(Product(f"{name}*", (name, below)))
        below = nodes[-1].name
    return fc.Circuit(tuple(nodes), schema)


def tree(names: tuple[str, ...]) -> nx.Graph:
    shape = nx.random_labeled_tree(len(names), seed=1)
    return nx.relabel_nodes(shape, dict(enumerate(names)))


def discrete() -> fc.Schema:
    sizes = {"region of birth": 4, "a category with a long name": 9, "sex": 2}
    kept = [
        fc.Variable(n, "category", tuple(f"value {i}" for i in range(k))) for n, k in sizes.items()
    ]
    return fc.Schema((fc.Variable("smoker", "boolean"), *kept))


CIRCUITS = {
    "factorised": lambda: fc.structures.factorised(fc.Schema.real(5)),
    "random binary": lambda: fc.structures.random_binary(
        fc.Schema.real(30), depth=3, repetitions=5, units=8, rng=np.random.default_rng(0)
    ),
    "small random binary": lambda: fc.structures.random_binary(
        fc.Schema.real(30), depth=2, repetitions=3, units=4, rng=np.random.default_rng(0)
    ),
    "Poon–Domingos": lambda: fc.structures.poon_domingos(
        fc.Schema.real(784), height=28, width=28, step=4, units=10
    ),
    "hidden tree": lambda: fc.structures.latent_tree(
        fc.Schema.real(12), tree(fc.Schema.real(12).names), 4
    ),
    "large hidden tree": lambda: fc.structures.latent_tree(
        fc.Schema.real(60), tree(fc.Schema.real(60).names), 16
    ),
    "Chow–Liu": lambda: fc.structures.chow_liu(discrete(), tree(discrete().names)),
    "irregular": lambda: irregular(12_000),
    "chain": lambda: chain(3_000),
    "one leaf": lambda: fc.Circuit((Leaf("x", "gaussian", ("x0",)),), fc.Schema.real(1)),
}


@pytest.fixture(scope="module")
def model() -> fc.MixtureOfProducts:
    table = fc.datasets.load("breast_cancer")
    return fc.MixtureOfProducts(components=4, random_state=0).fit(table)


@pytest.fixture(scope="module")
def mixed() -> fc.MixtureOfProducts:
    rng = np.random.default_rng(0)
    age = rng.normal(50, 12, 400)
    columns = {
        "age": age,
        "children": rng.poisson(2 + (age > 50)),
        "steps": rng.poisson(4000, 400),
        "job": rng.choice(list("abcdefghij"), 400),
        "smoker": rng.random(400) < 0.3,
        "$x^$ <b>name</b>\nfar too long to be shown in one panel": np.exp(age / 20),
    }
    table = fc.Table.of(columns, kinds={"steps": "count"}, units={"age": "years"})
    return fc.MixtureOfProducts(components=4, random_state=0).fit(table)


# ---------------------------------------------------------------------- the graph


@pytest.mark.parametrize("name", CIRCUITS)
def test_a_circuit_is_readable(name: str) -> None:
    circuit = CIRCUITS[name]()
    figure = circuit_picture(circuit)
    assert boxes(figure) <= 60
    assert touching(figure) == []
    assert {f"{len(circuit):,}", f"{edges(circuit):,}"} <= set(texts(figure))
    assert max(figure.get_size_inches()) < 14
    assert not blank(figure)


def test_the_irregular_tree_is_as_large_as_it_should_be() -> None:
    assert 9_000 < len(CIRCUITS["irregular"]()) < 16_000


def test_a_small_circuit_is_drawn_node_by_node() -> None:
    found = texts(circuit_picture(CIRCUITS["Chow–Liu"]()))
    assert {shortened(name, 24) for name in discrete().names} <= set(found)
    assert found.count("⊕") == 4 and "⊗" in found


def test_a_large_circuit_says_what_is_in_a_box() -> None:
    found = texts(circuit_picture(CIRCUITS["Poon–Domingos"]()))
    assert "49 gaussian leaves" in found
    assert "10 units, 16 variables each" in found


def test_weights_are_widths() -> None:
    schema = fc.Schema.real(1)
    leaves = (Leaf("a", "gaussian", ("x0",)), Leaf("b", "gaussian", ("x0",)))
    circuit = fc.Circuit((*leaves, Sum("root", ("a", "b"))), schema)
    unit = {"mean": np.zeros((1, 1)), "variance": np.ones((1, 1))}
    values = {"a": unit, "b": unit, "root": {"weight": np.array([[0.9, 0.1]])}}
    figure = circuit_picture(circuit, fc.Parameters(values))
    widths = [line.get_linewidth() for axes in figure.axes for line in axes.lines]
    assert len(widths) == 2 and widths[0] > 3 * widths[1]
    assert {"6", "parameters"} <= set(texts(figure))


@all_of(
    depth=st.integers(1, 5),
    repetitions=st.integers(1, 4),
    units=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_folding_loses_nothing(depth: int, repetitions: int, units: int, seed: int) -> None:
    circuit = fc.structures.random_binary(
        discrete() if seed % 2 else fc.Schema.real(11),
        depth=depth,
        repetitions=repetitions,
        units=units,
        rng=np.random.default_rng(seed),
    )
    folded = fold(circuit)
    assert sum(b.nodes for b in folded.boxes) == len(circuit)
    assert sum(folded.bands.values()) == edges(circuit)
    assert all(folded.boxes[a].row >= folded.boxes[b].row for a, b in folded.bands)
    assert folded.levels[0] == (0, 0)
    assert folded.levels[-1][1] == max(levels(circuit).values())


# ---------------------------------------------------------------------- beliefs


def beliefs(model: fc.Model, given: str | None) -> Beliefs:
    return Beliefs(model._distribution, *model._given(given))


def area(belief: Belief, curve: np.ndarray, low: float = -np.inf) -> float:
    inside = belief.points >= low
    return float(trapezoid(curve[inside], belief.points[inside]))


def test_densities_agree_with_probabilities(model: fc.MixtureOfProducts) -> None:
    found = beliefs(model, "mean radius > 15").of("worst area")
    assert found.after is not None
    assert area(found, found.before) == pytest.approx(1, abs=0.02)
    assert area(found, found.after) == pytest.approx(1, abs=0.02)
    for curve, given in ((found.before, None), (found.after, "mean radius > 15")):
        asked = model.probability("worst area > 1000", given=given)
        assert area(found, curve, 1000) == pytest.approx(asked, abs=0.02)


def test_a_density_is_cut_off_where_the_evidence_says(model: fc.MixtureOfProducts) -> None:
    found = beliefs(model, "mean radius > 15").of("mean radius")
    assert found.known and found.after is not None
    assert not found.after[found.points < 15].any()
    assert found.after[found.points > 15].all()
    assert area(found, found.after) == pytest.approx(1, abs=0.02)


def test_counts_and_categories_are_exact(mixed: fc.MixtureOfProducts) -> None:
    asked = beliefs(mixed, "age > 60")
    for name, value in (("children", "3"), ("job", "d"), ("smoker", "true")):
        found = asked.of(name)
        variable = mixed.schema_[name]
        at = np.flatnonzero(found.points == variable.encode({"true": True}.get(value, value)))
        assert found.after is not None
        for curve, given in ((found.before, None), (found.after, "age > 60")):
            wanted = mixed.probability(f"{name} = {value}", given=given)
            assert curve[at].item() == pytest.approx(wanted, rel=1e-9)


def test_fixed_values_are_known(mixed: fc.MixtureOfProducts) -> None:
    asked = beliefs(mixed, "age = 61 and job = b")
    assert asked.known == ["age", "job"]
    assert asked.of("age").value == 61 and asked.of("age").after is None
    job = asked.of("job").after
    assert job is not None and job.tolist() == [0, 1, *[0] * 8]
    assert asked.words() == "age = 61 and job = b"


def test_what_changes_most_comes_first(model: fc.MixtureOfProducts) -> None:
    order = beliefs(model, "mean radius > 18").most_changed(31)
    assert order[0] == "mean radius"
    assert order.index("worst perimeter") < order.index("texture error")


def test_evidence_that_cannot_be_is_refused(mixed: fc.MixtureOfProducts) -> None:
    with pytest.raises(QueryError, match="probability zero"):
        marginals_picture(mixed, "age > 1e9")


def test_a_picture_shows_one_case(model: fc.MixtureOfProducts) -> None:
    rows = fc.datasets.load("breast_cancer").to_pandas().iloc[:3]
    with pytest.raises(QueryError, match="one row of evidence, got 3"):
        marginals_picture(model, rows)
    assert touching(marginals_picture(model, rows[["mean radius"]].iloc[:1])) == []


# ---------------------------------------------------------------------- panels


def test_at_most_sixteen_panels(model: fc.MixtureOfProducts) -> None:
    figure = marginals_picture(model, "mean radius > 15")
    found = texts(figure)
    assert "given mean radius > 15" in found and "16 of 31 variables shown" in found
    assert len(set(model.schema_.names) & set(found)) == 16
    assert found.count("known") == 1
    assert touching(figure) == [] and not blank(figure)


def test_columns_can_be_chosen(model: fc.MixtureOfProducts) -> None:
    found = texts(marginals_picture(model, columns=["diagnosis", "mean area"]))
    assert set(model.schema_.names) & set(found) == {"diagnosis", "mean area"}
    assert {"63 %", "37 %", "2 of 31 variables shown"} <= set(found)
    with pytest.raises(QueryError, match="did you mean 'mean area'"):
        marginals_picture(model, columns=["mean aera"])
    with pytest.raises(QueryError, match="at least one"):
        marginals_picture(model, columns=[])


@pytest.mark.parametrize(
    "given", [None, "age > 60 and smoker", "children = 2", {"job": {"a", "b"}}]
)
def test_all_kinds_have_their_panel(mixed: fc.MixtureOfProducts, given: str | None) -> None:
    figure = mixed.plot(given)
    found = texts(figure)
    assert {"age", "years", "children", "job", "5 others", "smoker"} <= set(found)
    assert any(t.startswith("$x^$") and "\n" not in t for t in found)
    assert touching(figure) == [] and not blank(figure)


def test_a_model_plots_itself(model: fc.MixtureOfProducts) -> None:
    found = texts(model.plot(given="diagnosis = malignant", columns=["mean area"]))
    assert {"MixtureOfProducts", "⊕", "mean area", "given diagnosis = malignant"} <= set(found)
    with pytest.raises(NotFittedError):
        fc.MixtureOfProducts().plot()


def test_a_model_plots_itself_in_axes_and_in_notebooks(model: fc.MixtureOfProducts) -> None:
    figure = model.plot(columns=["mean area"])
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    whole = Figure()
    left, right = whole.subplots(1, 2)
    assert model.plot(columns=["mean area"], ax=right) is whole
    (image,) = right.get_images()
    assert not left.get_images() and image.get_array().std() > 0 and not right.axison


def test_parameters_of_a_tree_are_drawn() -> None:
    circuit = CIRCUITS["Chow–Liu"]()
    values = {
        **random_weights(circuit, np.random.default_rng(0)),
        **fc.structures.indicator_codes(circuit),
    }
    figure = fc.CircuitModel(circuit, fc.Parameters(values)).plot("smoker")
    assert touching(figure) == [] and "smoker" in texts(figure)


def test_nothing_is_loaded_before_a_picture_is_asked_for() -> None:
    code = (
        "import sys, fedcircuits as fc; assert 'matplotlib' not in sys.modules\n"
        "from fedcircuits.pictures.drawing import figure_of\n"
        "from fedcircuits.pictures.graph import graph_drawing\n"
        "figure_of(graph_drawing(fc.structures.factorised(fc.Schema.real(2))))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (0.001, "< 1 %"), (0.374, "37 %"), (0.999, "> 99 %"), (1.0, "100 %")],
)
def test_percentages_do_not_round_to_certainty(share: float, words: str) -> None:
    assert percent(share) == words


@all_of(name=st.text(min_size=1, max_size=60), most=st.integers(8, 40))
def test_short_names_are_short(name: str, most: int) -> None:
    assert len(shortened(name, most)) <= most
    assert len(shortened(name, most).splitlines()) <= 1
