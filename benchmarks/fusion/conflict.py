"""How far owners alone disagree (figure 3 of the paper): rows by the entropy of their predictions.

Semi-synthetic rows, random split, the encoders of the tables.
"""

import numpy as np
from matplotlib.figure import Figure

from benchmarks.fusion.kept import Figures, Kept
from benchmarks.fusion.sets import TARGET
from benchmarks.fusion.tables import prepared
from fedcircuits.estimators.feature_fusion import FeatureFusion

BINS = 20
NAME, HOW = "semi-synthetic", "random"


def run_one(kept: Kept, seed: int, owners: int | None = None) -> None:
    kept.found((NAME, HOW, seed, "conflict"), lambda: _counts(seed, owners))


def _counts(seed: int, owners: int | None) -> Figures:
    """Shares of test rows by entropy, and the shares of rows on which owners agree or nearly."""
    train, test, ready = prepared(NAME, owners, HOW, seed)  # type: ignore[arg-type]
    model = FeatureFusion(ready, head="vote", random_state=seed).fit(train, target=TARGET)
    found = model.conflict(test)
    shares = np.histogram(found, BINS, (0.0, 1.0))[0] / len(found)
    named = {f"bin {i}": float(share) for i, share in enumerate(shares)}
    return {"mean": float(found.mean()), "above 0.5": float((found > 0.5).mean()), **named}


def picture(kept: Kept) -> Figure:
    """The mean over seeds of the distribution."""
    figure = Figure(figsize=(6, 3.4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    found = [kept.over_seeds(NAME, HOW, "conflict", f"bin {i}") for i in range(BINS)]
    if all(found):
        left = np.arange(BINS) / BINS
        axes.bar(left, [100 * np.mean(f) for f in found], 1 / BINS, align="edge", edgecolor="white")
    axes.set_xlabel("entropy of owners' predictions of a row, bits")
    axes.set_ylabel("rows, %")
    return figure
