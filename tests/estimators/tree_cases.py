"""Breast cancer over parties by rows, by columns and both, and trees of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc

CANCER = fc.datasets.load("breast_cancer")
SPLITS: dict[str, dict[str, Any]] = {
    "horizontal": {"parties": 4, "by": "rows", "skew": "label"},
    "vertical": {"parties": 2, "by": "columns"},
    "hybrid": {"parties": 3, "by": "both", "overlap": 0.2},
}


def federation(kind: str, target: str = "diagnosis", **options: Any) -> fc.Federation:
    how = {**SPLITS[kind], **options}
    if target != "diagnosis":
        how.pop("skew", None)
    return fc.split(CANCER.rows(slice(0, 400)), target=target, **how)


def fitted(kind: str, target: str = "diagnosis", **options: Any) -> fc.FedTrees:
    settings: dict[str, Any] = {"trees": 4, "share_target": True, "random_state": 1, **options}
    return fc.FedTrees(target=target, **settings).fit(federation(kind, target))


def gaps() -> pd.DataFrame:
    """Rows with holes, one without anything, and one twice."""
    frame = CANCER.rows(slice(400, 480)).to_pandas().drop(columns="diagnosis").astype(float)
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.3)
    frame.iloc[7] = np.nan
    frame.iloc[9] = frame.iloc[8]
    return frame
