"""What FeatureFusion refuses before anybody trains: words, numbers, rows that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.estimators.training import require_summation
from fedcircuits.federation.federation import Federation
from fedcircuits.learning.arguments import as_number, is_size, require_seed
from fedcircuits.methods.fusion.consensus_graph import Reference
from fedcircuits.methods.fusion.heads import Head
from fedcircuits.methods.fusion.rows import TRAFFIC
from fedcircuits.methods.fusion.together import Together
from fedcircuits.methods.fusion.votes import VOTES

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

GRAPHS = ("learned", "expected", "complete", "knn")


def check_rows(federation: Federation, target: str) -> None:
    """What the flows would find out too, after owners have trained."""
    for party in federation:
        if target in party.table.series:
            raise FederationError(
                f"{target!r} is a series of {party.name}: what is predicted must be an ordinary "
                "column"
            )
        if not len(party.table):
            raise FederationError(f"{party.name} has no rows to learn from")
        if len(federation) > 1 and party.table.row_ids is None:
            raise FederationError(
                f"owners' rows are joined by row ids, and {party.name} has none: Federation(…, "
                "row_id='…') or Table.from_series(…, row_id=ids)"
            )


def check_words(model: FeatureFusion) -> None:
    for name, word, known in (
        ("align", model.align, ("linear", "sinkhorn", None)),
        ("head", model.head, (*get_args(Head), *VOTES)),
        ("reference", model.reference, get_args(Reference)),
        ("traffic", model.traffic, TRAFFIC),
        ("on_lost", model.on_lost, ("stop", "continue")),
        ("training", model.training, ("apart", *get_args(Together))),
    ):
        if word not in known:
            shown = ", ".join(map(repr, known))
            raise FederationError(f"{name} must be one of {shown}, got {word!r}")
    if isinstance(model.graph, str) and model.graph not in GRAPHS:
        raise FederationError(
            f"graph must be one of {', '.join(map(repr, GRAPHS))}, None, or weights (owners, "
            f"owners), got {model.graph!r}"
        )


def check_together(model: FeatureFusion) -> None:
    if model.head in VOTES and model.training in ("joint", "scratch"):
        raise FederationError(
            f"training={model.training!r} trains encoders by a fusion, which head={model.head!r} "
            "has not: choose another head"
        )
    if model.summation is None:
        return
    require_summation("summation", model.summation)
    complete = isinstance(model.graph, str) and model.graph == "complete"
    if model.align is not None or not complete or model.head != "gcn":
        raise FederationError(
            "summation shows the fusion sums of representations alone, which is enough for "
            "align=None, graph='complete' and head='gcn' only"
        )
    if model.training in ("joint", "scratch"):
        raise FederationError("summation hides representations, joint training shows them: choose")


def check_numbers(model: FeatureFusion) -> None:
    for name in ("graph_draws", "hidden", "epochs", "patience", "batch"):
        if not is_size(value := getattr(model, name)):
            raise FederationError(f"{name} must be a whole number from 1, got {value!r}")
    for name in ("owner_dropout", "validation"):
        if not 0 <= as_number(value := getattr(model, name)) < 1:
            raise FederationError(f"{name} must be a share from 0 to below 1, got {value!r}")
    for name in ("temperature", "learning_rate", "clip"):
        value = getattr(model, name)
        if not 0 < as_number(value) < np.inf and (name, value) != ("clip", None):
            raise FederationError(f"{name} must be a number above 0, got {value!r}")
    if not 0 <= as_number(model.noise) < np.inf:
        raise FederationError(f"noise must be a share of clip, from 0, got {model.noise!r}")
    if model.noise and model.clip is None:
        raise FederationError("noise is a share of clip: say clip=… too")
    if not isinstance(model.share_target, bool | np.bool_):
        raise FederationError(f"share_target must be True or False, got {model.share_target!r}")
    require_seed(model.random_state)
