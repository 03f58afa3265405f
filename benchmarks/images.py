"""Images: einsum networks on Poon–Domingos structures, in bits per dimension, and a picture.

    python -m benchmarks.run images

Pixels are k/255. Networks are learned on densities; a test image then counts as a mass: the leaves
become "gaussian_mass" with the same parameters, whose end bins take the tails, so masses sum to 1.
"bits, density/255" takes the density times the width of a bin: close to masses without tails where
σ is far above 1/255, as with the paper's bounds, and no mass at all where it is below. Updates
every 5 batches of 64 images are updates of batches of 320. Samples and in-paintings show the modes
of drawn leaves, not pixel noise. Seconds are those of the whole fit, start included, by epochs.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.evaluation.leaves import LeafStep
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.evaluation.step import Descent
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import DatasetError

TOP = 255
PICTURE = Path(__file__).parents[1] / "docs" / "images.png"
SHOWN = 16  # images in a row of the picture
DRAWS = 32  # that a mean is taken of


@dataclass(frozen=True, slots=True)
class Case:
    data: str
    title: str
    units: int
    settings: dict[str, int | float] = field(default_factory=dict)
    drawn: bool = False


PAPER: dict[str, int | float] = {
    "pieces": 8, "epochs": 5, "batch_size": 320, "step": 0.1, "last_step": 0.1,
    "minimum_variance": 1e-3, "maximum_variance": 0.25,
}  # fmt: skip
CASES = (
    Case("mnist", "paper's settings", 10, PAPER),
    Case("mnist", "ours, one epoch", 10, {"pieces": 8, "epochs": 1, "batch_size": 320}, True),
    Case("mnist", "ours, 4 pieces", 10, {"pieces": 4, "epochs": 5, "batch_size": 320}),
    Case("cifar10_subset", "ours", 10, {"pieces": 8, "epochs": 3, "batch_size": 256}),
)


def run(cases: tuple[Case, ...] = CASES, picture: Path = PICTURE) -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    for case in cases:
        try:
            train, test = _images(case.data)
        except DatasetError as error:
            print(f"  images: {case.data} left out: {error}")
            continue
        model, seconds = _learn(case, train)
        rows.append(_row(case, model, seconds, test))
        if case.drawn:
            _draw(model, test, picture)
            print(f"drawn: {picture}")
    print("\nEinsum networks on images, one thread")
    print_table(rows)
    return [dict(row) for row in rows]


def _images(name: str) -> tuple[Array, Array]:
    """Train and test images, (rows, height, width, channels), from 0 to 1."""
    found = fc.datasets.arrays(name)
    train, test = (found[part].astype(float) / TOP for part in ("x_train", "x_test"))
    return train.reshape(*train.shape[:3], -1), test.reshape(*test.shape[:3], -1)


def _table(images: Array) -> fc.Table:
    """Every pixel is a real number, even one that is black in all images."""
    values = images.reshape(len(images), -1)
    return fc.Table(fc.Schema(tuple(fc.Variable(f"x{i}") for i in range(values.shape[1]))), values)


def _learn(case: Case, images: Array) -> tuple[fc.EinsumNetwork, float]:
    height, width, channels = images.shape[1:]
    model = fc.EinsumNetwork(
        case.units, image=(height, width, channels), validation=0.0, random_state=0
    )
    model.set_params(**case.settings)
    begin = time.process_time()
    model.fit(_table(images))
    return model, time.process_time() - begin


def _row(case: Case, model: fc.EinsumNetwork, seconds: float, test: Array) -> dict[str, Cell]:
    x = test.reshape(len(test), -1)
    circuit, parameters, pixels = model.circuit_, model.parameters_, x.shape[1]
    density = fc.Distribution(circuit, parameters, torch.float32).log_likelihood(x).mean()
    masses = _masses(model).log_likelihood(x)
    shown = ", ".join(f"{name} {value:g}" for name, value in case.settings.items())
    return {
        "images": case.data,
        "network": case.title,
        "bits per dimension": float(-masses.mean() / pixels / np.log(2)),
        "bits, density/255": float(np.log2(TOP) - density / pixels / np.log(2)),
        "density, nats": float(density),
        "cpu s per epoch": seconds / len(model.history_),
        "parameters": sum(a.size for n in parameters for a in parameters[n].values()),
        "settings": f"K {case.units}, {shown}",
    }


def _masses(model: fc.EinsumNetwork) -> fc.Distribution:
    """The model over the 256 levels of every pixel."""
    circuit = model.circuit_
    nodes = (
        replace(n, family="gaussian_mass") if isinstance(n, fc.Leaf) else n for n in circuit.nodes
    )
    masses = fc.Circuit(tuple(nodes), circuit.schema)
    return fc.Distribution(masses, model.parameters_, torch.float32)


# ---------------------------------------------------------------------- the picture


def _draw(model: fc.EinsumNetwork, test: Array, path: Path) -> None:
    rng = np.random.default_rng(0)
    height, width = test.shape[1:3]
    originals = test[:SHOWN].reshape(SHOWN, height, width)
    hidden = originals.copy()
    hidden[: SHOWN // 2, height // 2 :] = np.nan
    hidden[SHOWN // 2 :, :, width // 2 :] = np.nan
    rows = hidden.reshape(SHOWN, -1)
    drawn = _completed(model, np.repeat(rows, DRAWS, axis=0), rng).reshape(SHOWN, DRAWS, -1)
    strips = {
        "samples": _completed(model, np.full_like(rows, np.nan), rng),
        "images": originals,
        "hidden half": hidden,
        f"mean of {DRAWS}": drawn.mean(axis=1),
        "drawn": drawn[:, 0],
        "drawn again": drawn[:, 1],
    }
    figure = Figure(figsize=(8, 0.55 * len(strips)), dpi=150)
    axes = figure.subplots(len(strips), 1)
    shades = colormaps["gray"].with_extremes(bad="#7a9cc6")
    for axis, (title, images) in zip(axes, strips.items(), strict=True):
        strip = np.hstack(list(np.reshape(images, (SHOWN, height, width))))
        axis.imshow(strip, cmap=shades, vmin=0, vmax=1, interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(left=0.12, right=0.995, top=0.99, bottom=0.01, hspace=0.05)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _completed(model: fc.EinsumNetwork, x: Array, rng: np.random.Generator) -> Array:
    """NaN filled by the modes of leaves that are drawn given the rest: images without noise."""
    program = CircuitProgram(model.circuit_, torch.float32)
    packed = program.pack(model.parameters_)
    state = program.upward(program.read(torch.from_numpy(x), packed), packed)
    chosen = torch.full((len(program.layout.number) + 1, len(x)), -1, dtype=torch.int32)
    chosen[program.layout.number[model.circuit_.root.name]] = 0
    inner, leaves = Descent(chosen, x.copy(), rng), Descent(chosen, x.copy(), None)
    for step, own in zip(reversed(program.steps), reversed(packed.values), strict=True):
        step.choose(own, state, leaves if isinstance(step, LeafStep) else inner)
    return leaves.out
