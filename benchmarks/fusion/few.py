"""Encoders where there are few rows, and where there are many: what "auto" chooses.

    python -m benchmarks.fusion.few --keep few.jsonl

vowels          12 owners of one channel each, 7 to 29 steps, 9 speakers, 270 rows to learn from and
                370 to test on: drawn so that a class is in levels at the start and end of a channel
                and in its deviation, with an offset of every row. It stands in for spoken vowels.
waves           6 owners, 120 steps, 4 classes that differ in frequency alone, under noise; 300 rows
digits          the 8 rows of small images, 200 of them to learn from
semi-synthetic  20 detectors of the set of sets.py, 2,284 rows

Accuracy on rows to test on, with all owners, and with half of them missing, drawn four times.
"pooled" is logistic regression on the mean and deviation of every channel in one place; with half
of the owners it is learned anew from those that are there. Seeds 0 were looked at while encoders
were made; others are reported.
"""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedcircuits as fc
from benchmarks.fusion.kept import Figures, Kept
from benchmarks.fusion.sets import TARGET, Owners, load
from benchmarks.runner import Cell, print_table

SEEDS = (1, 2, 3)
ENCODERS = ("summary", "rocket", "recurrent", "auto")
HALVES = 4
Drawn = tuple[Owners, int]  # and how many rows come first, to learn from


def vowels(seed: int) -> Drawn:
    rng = np.random.default_rng([seed, 1])
    rows, speakers, channels = 640, 9, 12
    y = np.concatenate([np.arange(270) % speakers, rng.integers(speakers, size=370)])
    begin = 0.75 * rng.normal(size=(speakers, channels))
    end = 0.5 * begin + 0.68 * rng.normal(size=(speakers, channels))
    deviation = 0.35 * np.exp(0.3 * rng.normal(size=(speakers, channels)))
    series = np.full((channels, rows, 29, 1), np.nan, np.float32)
    for i, who in enumerate(y):
        steps = int(rng.integers(7, 30))
        time = np.linspace(0, 1, steps)[:, None]
        noise = rng.normal(size=(steps, channels))
        for t in range(1, steps):
            noise[t] = 0.7 * noise[t - 1] + 0.7 * noise[t]
        offset = 0.6 * rng.normal(size=channels)
        x = begin[who] * (1 - time) + end[who] * time + offset + deviation[who] * noise
        series[:, i, :steps, 0] = x.T
    return Owners("vowels", series, y, None), 270


def waves(seed: int) -> Drawn:
    rng = np.random.default_rng([seed, 2])
    rows, steps, owners = 600, 120, 6
    y = rng.integers(4, size=rows)
    frequency = rng.uniform(0.04, 0.2, size=(4, owners))[y].T[..., None]  # (owners, rows, 1)
    phase = rng.uniform(0, 2 * np.pi, size=(owners, rows, 1))
    x = np.sin(2 * np.pi * frequency * np.arange(steps) + phase)
    x += 1.6 * rng.normal(size=x.shape)
    return Owners("waves", x[..., None].astype(np.float32), y, None), 300


def real(name: str, seed: int, owners: int | None, rows: int) -> Drawn:
    data = load(name, owners)
    order = np.random.default_rng([seed, 3]).permutation(len(data.y))
    return Owners(name, data.series[:, order], data.y[order], None), rows


SETS: dict[str, Callable[[int], Drawn]] = {
    "vowels": vowels,
    "waves": waves,
    "digits": lambda seed: real("digits", seed, None, 200),
    "semi-synthetic": lambda seed: real("semi-synthetic", seed, 20, 2284),
}


def halves(owners: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng([seed, 4])
    return [sorted(rng.permutation(owners)[: owners // 2].tolist()) for _ in range(HALVES)]


def pooled(data: Owners, cut: int, seed: int) -> Figures:
    x = data.series[..., 0]
    numbers = np.stack([np.nanmean(x, axis=2), np.nanstd(x, axis=2)])  # (2, owners, rows)

    def accuracy(owners: list[int]) -> float:
        own = numbers[:, owners].reshape(-1, len(data.y)).T
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        return float(model.fit(own[:cut], data.y[:cut]).score(own[cut:], data.y[cut:]))

    every = list(range(len(x)))
    some = [accuracy(half) for half in halves(len(x), seed)]
    return {"accuracy": accuracy(every), "half": float(np.mean(some))}


def fused(data: Owners, cut: int, seed: int, encoder: str) -> Figures:
    rows = np.arange(len(data.y))
    train, test = data.federation(rows[:cut]), data.federation(rows[cut:])
    model = fc.FeatureFusion(encoder, random_state=seed).fit(train, target=TARGET)
    some = [model.score(test.select([test.names[i] for i in half]))
            for half in halves(len(test), seed)]  # fmt: skip
    chosen = [type(getattr(view, "encoder", None)).__name__ for view in model.views_.values()]
    counts = {f"owners with {name}": float(chosen.count(name)) for name in sorted(set(chosen))}
    return {"accuracy": model.score(test), "half": float(np.mean(some)), **counts}


def run_one(kept: Kept, name: str, seed: int) -> None:
    data, cut = SETS[name](seed)
    kept.found((name, "few", seed, "pooled"), lambda: pooled(data, cut, seed))
    for encoder in ENCODERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept.found((name, "few", seed, encoder), lambda e=encoder: fused(data, cut, seed, e))  # type: ignore[misc]


def show(kept: Kept) -> None:
    shown: list[dict[str, Cell]] = []
    for name in SETS:
        for row in ("pooled", *ENCODERS):
            if (accuracy := kept.spread(name, "few", row, "accuracy")) is not None:
                half = kept.spread(name, "few", row, "half")
                seeds = len(kept.over_seeds(name, "few", row, "half"))
                shown.append({"set": name, "encoder": row, "accuracy": accuracy,
                              "half of the owners": half, "seeds": seeds})  # fmt: skip
    print_table(shown)


if __name__ == "__main__":
    found, _ = Kept.asked(__doc__.splitlines()[0])
    for at in SEEDS:
        for title in SETS:
            run_one(found, title, at)
    show(found)
