"""Images in bits per dimension: hidden Chow–Liu trees of pixels with 256 levels, and a picture.

States and epochs are those of ``CASES``, chosen by cost; all else is the default of the learner,
chosen on training images of MNIST held back. Test images are read once. The curve gives the bits of
the images held back after every epoch against the CPU seconds so far, with one thread: all epochs
take the same time, so that it is their share of the whole fit. Colours are learned as YCoCg-R,
which is one to one, so that bits count per channel of red, green and blue. Where images are few,
their mirror images are learned from too, and a copy of each that is shifted by a pixel, with
missing values where nothing came in. None is held back then; settings were chosen by 500 training
images that were held back with their copies.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.errors import DatasetError
from fedcircuits.tables.images import ycocg, ycocg_schema

PICTURE = Path(__file__).parents[2] / "docs" / "densities.png"
SHOWN, DRAWS = 16, 16


@dataclass(frozen=True, slots=True)
class Case:
    data: str
    settings: dict[str, int | float]
    drawn: bool = False
    enlarged: bool = False


CASES = (
    Case("mnist", {"units": 32, "epochs": 3, "validation": 0.02}),
    Case("mnist", {"units": 64, "epochs": 4, "validation": 0.02}, drawn=True),
    Case(
        "cifar10_subset",
        {"units": 256, "epochs": 3, "validation": 0, "channels": 3, "range_smoothing": 150,
         "step": 0.1, "last_step": 0.003},
        enlarged=True,
    ),
)  # fmt: skip


def run(cases: tuple[Case, ...] = CASES, picture: Path = PICTURE) -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    curves: list[Json] = []
    for case in cases:
        try:
            found = fc.datasets.arrays(case.data)
        except DatasetError as error:
            print(f"  densities: {case.data} left out: {error}")
            continue
        images = found["x_train"]
        train, test = as_table(images), as_table(found["x_test"])
        if case.enlarged:
            train = enlarged(images, np.random.default_rng(0))
        begin = time.process_time()
        model = fc.HiddenChowLiuTree(random_state=0).set_params(**case.settings).fit(train)
        seconds = time.process_time() - begin
        bits = -model.score(test) / len(test.schema) / np.log(2)
        held = [-v / len(test.schema) / np.log(2) for v in model.validation_history_]
        curve = [(seconds * (i + 1) / len(held), float(b)) for i, b in enumerate(held)]
        curves += [{"part": "curve", "images": case.data, "cpu s": s, "bits": b} for s, b in curve]
        rows.append(_row(case, model, bits, seconds))
        print(f"\n{case.data}: images held back")
        print_table([{"cpu s": s, "bits": b} for s, b in curve])
        if case.drawn:
            draw(model, found["x_test"], picture)
            print(f"drawn: {picture}")
    print("\nHidden Chow–Liu trees on images, one thread")
    print_table(rows)
    found_rows: list[Json] = [{"part": "images", **row} for row in rows]
    return found_rows + curves


def as_table(images: np.ndarray) -> fc.Table:
    """Grey images as they are, colours as YCoCg-R."""
    if images.ndim == 3:
        return fc.Table.of(images)
    levels = ycocg(images).reshape(len(images), -1)
    return fc.Table(ycocg_schema(levels.shape[1] // 3), levels.astype(float))


def enlarged(images: np.ndarray, rng: np.random.Generator) -> fc.Table:
    """The images, their mirror images, and a copy of all of them shifted by a pixel at random."""
    whole = as_table(np.concatenate([images, images[:, :, ::-1]]))
    height, width = images.shape[1:3]
    plain = whole.values.reshape(len(whole), height, width, -1)
    moved = np.full_like(plain, np.nan)
    shifts = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]
    of = rng.integers(len(shifts), size=len(plain))
    for i, (y, x) in enumerate(shifts):
        to = np.s_[max(y, 0) : height + min(y, 0), max(x, 0) : width + min(x, 0)]
        out = np.s_[max(-y, 0) : height + min(-y, 0), max(-x, 0) : width + min(-x, 0)]
        for row in np.flatnonzero(of == i):
            moved[row][to] = plain[row][out]
    both = np.concatenate([whole.values, moved.reshape(len(moved), -1)])
    return fc.Table(whole.schema, both)


def _row(case: Case, model: fc.Model, bits: float, seconds: float) -> dict[str, Cell]:
    shown = ", ".join(f"{name} {value:g}" for name, value in case.settings.items())
    shown += ", mirrored and shifted" if case.enlarged else ""
    return {
        "images": case.data, "bits per dimension": float(bits), "cpu s": seconds,
        "parameters": model.parameters_.count(), "settings": shown,
    }  # fmt: skip


def draw(model: fc.Model, test: np.ndarray, path: Path) -> None:
    """Samples, and completions of hidden halves: drawn, their mean, and the most probable one."""
    rng = np.random.default_rng(0)
    height, width = test.shape[1:3]
    whole = test[:SHOWN].reshape(SHOWN, -1).astype(float)
    hidden = whole.reshape(SHOWN, height, width).copy()
    hidden[: SHOWN // 2, height // 2 :] = np.nan
    hidden[SHOWN // 2 :, :, width // 2 :] = np.nan
    rows = hidden.reshape(SHOWN, -1)
    distribution = fc.Distribution(model.circuit_, model.parameters_, torch.float32)
    drawn = distribution.sample(np.repeat(rows, DRAWS, axis=0), rng).reshape(SHOWN, DRAWS, -1)
    strips = {
        "samples": distribution.sample(np.full_like(rows, np.nan), rng), "images": whole,
        "hidden half": rows, f"mean of {DRAWS}": drawn.mean(axis=1), "drawn": drawn[:, 0],
        "most probable": distribution.mpe(rows).values,
    }  # fmt: skip
    figure = Figure(figsize=(8, 0.55 * len(strips)), dpi=150)
    shades = colormaps["gray"].with_extremes(bad="#7a9cc6")
    for axis, (title, images) in zip(figure.subplots(len(strips), 1), strips.items(), strict=True):
        strip = np.hstack(list(np.reshape(images, (SHOWN, height, width))))
        axis.imshow(strip, cmap=shades, vmin=0, vmax=255, interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(left=0.14, right=0.995, top=0.99, bottom=0.01, hspace=0.05)
    figure.savefig(path)
