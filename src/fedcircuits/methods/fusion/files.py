"""Fusions in files: what is no array as JSON, the rest as arrays of the fuse node.

    Fusion   its settings, seed and best epoch as JSON; the parameters of its head (heads.py) under
             their names, "graph" (owners, owners), "scale/mean" and "scale/rate" of what owners
             send, "history/training" and "history/held back" as arrays
    Votes    which vote, its threshold, its best owner; no arrays

Read with all shapes checked against the numbers of owners, representations and outputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import get_args

import numpy as np

from fedcircuits.errors import FileError
from fedcircuits.learning.stored import AnyArray, Fields, StoredArrays, plain
from fedcircuits.methods.fusion.consensus_graph import REFERENCES
from fedcircuits.methods.fusion.fitting import Fusion, FusionSettings, GraphName, Scale
from fedcircuits.methods.fusion.heads import LAYERS, Align, Head
from fedcircuits.methods.fusion.votes import VOTES, Votes

ALIGNS: tuple[Align, ...] = ("linear", "sinkhorn", None)
GRAPHS: tuple[GraphName, ...] = ("learned", "expected", "complete", "knn", "given", None)
HEADS: tuple[Head, ...] = get_args(Head)
MOST_SEEDS = 2**64 - 1  # that a generator takes
PRESENCE = "presence"  # of owners, which not every fusion of numbers has learned from
HISTORY = ("training", "held back")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a fusion's shapes follow from."""

    owners: int
    width: int
    outputs: int


# ---------------------------------------------------------------------- to files


def settings_stored(settings: FusionSettings) -> dict[str, object]:
    return {name: plain(value) for name, value in asdict(settings).items()}


def fusion_stored(fusion: Fusion) -> tuple[dict[str, object], dict[str, AnyArray]]:
    about: dict[str, object] = {
        "parameters": list(fusion.values),
        "seed": int(fusion.seed),
        "best": int(fusion.best),
        "standardised": fusion.scale is not None,
    }
    arrays: dict[str, AnyArray] = dict(fusion.values)
    if fusion.graph is not None:
        arrays["graph"] = fusion.graph
    if fusion.scale is not None:
        arrays |= {"scale/mean": fusion.scale.mean, "scale/rate": fusion.scale.rate}
    for name in HISTORY:
        arrays[f"history/{name}"] = np.array(fusion.history.get(name, []), np.float64)
    return about, arrays


def votes_stored(votes: Votes) -> dict[str, object]:
    return {"vote": votes.kind, "threshold": float(votes.threshold), "best": int(votes.best)}


# ---------------------------------------------------------------------- from files


def settings_of(about: Fields) -> FusionSettings:
    return FusionSettings(
        about.word("align", ALIGNS),
        about.word("graph", GRAPHS),
        about.word("head", HEADS),
        about.word("reference", REFERENCES),
        about.number("temperature", above=0),
        about.whole("graph_draws", 1),
        about.share("owner_dropout"),
        about.whole("hidden", 1),
        about.whole("epochs", 1),
        about.whole("patience", 1),
        about.number("learning_rate", above=0),
        about.whole("batch", 1),
        about.number("weight_decay"),
    )


def fusion_of(
    about: Fields, arrays: StoredArrays, settings: FusionSettings, sizes: Sizes, classes: bool
) -> Fusion:
    known = shapes(settings, sizes)
    if not classes and settings.head in ("gcn", "mean") and PRESENCE in about.texts("parameters"):
        known[PRESENCE] = (1,)
    if set(about.texts("parameters")) != set(known):
        raise FileError(f"{about.what}: expected the parameters {', '.join(known)}")
    values = {name: arrays.take(name, shape).astype(np.float32) for name, shape in known.items()}
    graph = None
    if settings.head == "gcn" and settings.graph is not None:
        graph = arrays.take("graph", (sizes.owners, sizes.owners), "float64").astype(np.float64)
        most = 1.0 if settings.learns_graph else np.inf
        if (graph < 0).any() or (graph > most).any():
            raise FileError(f"{about.what}: numbers of 'graph' must be from 0 to {most:g}")
    history = {n: arrays.take(f"history/{n}", (None,), "float64", finite=False) for n in HISTORY}
    return Fusion(
        settings,
        "classes" if classes else "numbers",
        values,
        graph,
        {name: losses.tolist() for name, losses in history.items()},
        about.whole("best"),
        about.whole("seed", most=MOST_SEEDS),
        _scale(arrays, sizes) if about.flag("standardised") else None,
    )


def _scale(arrays: StoredArrays, sizes: Sizes) -> Scale:
    shape = (sizes.owners, 1, sizes.width)
    mean, rate = (arrays.take(f"scale/{n}", shape).astype(np.float32) for n in ("mean", "rate"))
    return Scale(mean, rate)


def votes_of(about: Fields, owners: int, classes: int) -> Votes:
    kind = about.word("vote", VOTES)
    if kind == "threshold" and classes != 2:
        raise FileError(f"{about.what}: a threshold is for two classes, got {classes}")
    threshold = about.number("threshold", 0, 1)
    return Votes(kind, classes, threshold, about.whole("best", most=owners - 1))


def shapes(settings: FusionSettings, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Of the parameters of a head, as ``heads.start`` makes them."""
    owners, width, outputs = sizes.owners, sizes.width, sizes.outputs
    found: dict[str, tuple[int, ...]] = {}
    if settings.align is not None and settings.head != "concat":
        found["align"] = (owners, width, width)
    if settings.head == "transformer":
        for layer in range(LAYERS):
            found |= {f"queries {layer}": (width, 3 * width), f"joined {layer}": (width, width)}
            found |= {f"wide {layer}": (width, 2 * width), f"narrow {layer}": (2 * width, width)}
        return found | {"last": (width, outputs), "last bias": (outputs,)}
    first = (width, settings.hidden)
    found["first"] = (owners, *first) if settings.head == "concat" else first
    found |= {"first bias": (settings.hidden,), "last": (settings.hidden, outputs)}
    return found | {"last bias": (outputs,)}
