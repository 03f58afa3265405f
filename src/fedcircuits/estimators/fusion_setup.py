"""What FeatureFusion checks and prepares: arguments, encoders of owners, rows of questions.

Owners that are simulated in one process are trained at once: ``trained_at_once`` makes the jobs
that the owners' flows make, trains those of one shape in one batched computation, and hands the
results to the engine as work that is done already (as a resumed run does). The flows are the same
with and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, get_args

import numpy as np
import pandas as pd

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Variable
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.bars import current
from fedcircuits.estimators.training import at_one_party, require_summing
from fedcircuits.federation.agreement import in_agreed
from fedcircuits.federation.alignment import id_texts
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.consensus_graph import Reference, given
from fedcircuits.learning.encoders import (
    Encoder,
    NetworkEncoder,
    SequenceEncoder,
    TabularEncoder,
    encoder_of,
    fit_all,
)
from fedcircuits.learning.fusion import FusionSettings, GraphName
from fedcircuits.learning.heads import Head
from fedcircuits.learning.together import Together
from fedcircuits.learning.votes import VOTES
from fedcircuits.protocols.fusion import Plan, ids_of, job_of, step_of
from fedcircuits.protocols.fusion_rows import TRAFFIC

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

Missed: TypeAlias = Callable[[Federation, str], str]
GRAPHS = ("learned", "expected", "complete", "knn")


# ---------------------------------------------------------------------- arguments


def checked(model: FeatureFusion, federation: Federation, target: str | None) -> str:
    """The target's name, if everything fits together."""
    _check_words(model)
    _check_numbers(model)
    _check_together(model)
    name = target if target is not None else model.target
    if not isinstance(name, str):
        raise FederationError("name the column to predict: fit(federation, target='…')")
    variable = federation.schema[name]
    if model.head == "threshold" and variable.size != 2:
        kind = f"one of {variable.size} classes" if variable.size else "a number"
        raise FederationError(
            f"head='threshold' is for a target of two classes, {name!r} is {kind}: use head='vote'"
        )
    if isinstance(model.encoder, Mapping):
        absent = [n for n in federation.names if n not in model.encoder]
        if absent:
            raise FederationError(f"encoder has none for {absent[0]!r}: give one for each owner")
    for party in federation:
        encoder_for(model.encoder, party)
    if not isinstance(model.graph, str | None):
        graph_for(model, federation)
    return name


def _check_words(model: FeatureFusion) -> None:
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


def _check_together(model: FeatureFusion) -> None:
    if model.head in VOTES and model.training in ("joint", "scratch"):
        raise FederationError(
            f"training={model.training!r} trains encoders by a fusion, which head={model.head!r} "
            "has not: choose another head"
        )
    if model.summing is None:
        return
    require_summing("summing", model.summing)
    if model.align is not None or model.graph != "complete" or model.head != "gcn":
        raise FederationError(
            "summing shows the fusion sums of representations alone, which is enough for "
            "align=None, graph='complete' and head='gcn' only"
        )
    if model.training in ("joint", "scratch"):
        raise FederationError("summing hides representations, joint training shows them: choose")


def _check_numbers(model: FeatureFusion) -> None:
    for name in ("graph_draws", "hidden", "epochs", "patience", "batch"):
        value = getattr(model, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise FederationError(f"{name} must be a whole number from 1, got {value!r}")
    for name in ("owner_dropout", "validation"):
        value = getattr(model, name)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise FederationError(f"{name} must be a share from 0 to below 1, got {value!r}")
    for name in ("temperature", "learning_rate", "clip"):
        value = getattr(model, name)
        if not (isinstance(value, int | float) and value > 0) and (name, value) != ("clip", None):
            raise FederationError(f"{name} must be a number above 0, got {value!r}")
    if model.noise < 0 or (model.noise and model.clip is None):
        raise FederationError("noise is a share of clip, from 0: say clip=… too")


def plan_of(model: FeatureFusion, target: str, seed: int, federation: Federation | None) -> Plan:
    """What parties do alike; a question needs no graph."""
    vote = model.head if model.head in VOTES else None
    graph: GraphName = model.graph if isinstance(model.graph, str) else None  # type: ignore[assignment]
    weights = None
    if model.graph is not None and not isinstance(model.graph, str):
        graph = "given"
        weights = None if federation is None else graph_for(model, federation)
    if model.summing is not None:
        graph = None  # of sums the mean is there already
    settings = FusionSettings(
        model.align, graph, "gcn" if vote else model.head, model.reference,  # type: ignore[arg-type]
        model.temperature, model.graph_draws, model.owner_dropout, model.hidden, model.epochs,
        model.patience, model.learning_rate, model.batch,
    )  # fmt: skip
    return Plan(
        target, settings, vote, model.share_target, model.traffic, model.validation, model.clip,
        model.noise, weights, seed, model.training, model.summing,
    )  # fmt: skip


def at_owner(plan: Plan) -> Plan:
    """With a key of its own, where shares are dealt."""
    return plan if plan.summing is None else replace(plan, summing=at_one_party(plan.summing))


def graph_for(model: FeatureFusion, federation: Federation) -> Array:
    """The graph that was given, for these owners: a frame is read by its names."""
    graph, names = model.graph, list(federation.names)
    if isinstance(graph, pd.DataFrame):
        absent = [n for n in names if n not in graph.index or n not in graph.columns]
        if absent:
            raise FederationError(f"graph has no row and column for {absent[0]!r}")
        graph = graph.loc[names, names].to_numpy()
    return given(graph, len(names))  # type: ignore[arg-type]


def encoder_for(encoder: object, party: Party) -> Encoder:
    own = encoder[party.name] if isinstance(encoder, Mapping) else encoder
    if own is None:
        own = SequenceEncoder() if party.table.series else TabularEncoder()
    return encoder_of(own)


# ---------------------------------------------------------------------- owners in one process


def in_one_process(engine: str | Engine) -> bool:
    return engine == "memory" or engine is memory.run


def trained_at_once(
    model: FeatureFusion, federation: Federation, plan: Plan
) -> dict[tuple[str, str], object]:
    """By owner and step: the encoders that owners would train one after the other."""
    jobs = {}
    for party in federation:
        encoder = encoder_for(model.encoder, party)
        if isinstance(encoder, NetworkEncoder):
            target = federation.schema[plan.target]
            table = in_agreed(party.table, federation.schema)
            y = _labels(federation, party, target, plan)
            jobs[party.name] = job_of(party, table, target, y, encoder, plan)
    bar = current()

    def report(done: int, total: int) -> None:
        if bar is not None:
            bar.tell(done, total, f"{len(jobs)} owners, epoch {done} of at most {total}")

    learned = fit_all(list(jobs.values()), report)
    steps = ((name, step_of(job, plan)) for name, job in jobs.items())
    return dict(zip(steps, learned, strict=True))


def _labels(federation: Federation, party: Party, target: Variable, plan: Plan) -> Array:
    """What the owner holds or, with share_target, is told."""
    if target.name in party.table.schema or not plan.share_target:
        holders = [party]
    else:
        holders = [p for p in federation if target.name in p.table.schema]
    told = _told(holders, federation, target)
    ids = map(str, ids_of(party.table, party).tolist())
    return np.array([told.get(i, np.nan) for i in ids])


def _told(holders: list[Party], federation: Federation, target: Variable) -> dict[str, float]:
    """By row id; of two that tell one row, the later one counts, as in the flow."""
    found: dict[str, float] = {}
    for party in holders:
        table = in_agreed(party.table, federation.schema)
        if target.name in table.schema:
            values = table.values[:, table.schema.index(target.name)]
            ids = map(str, ids_of(party.table, party).tolist())
            found |= dict(zip(ids, values.tolist(), strict=True))
    return found


# ---------------------------------------------------------------------- questions


def askable(model: FeatureFusion, given_rows: object) -> Federation:
    if not isinstance(given_rows, Federation):
        raise QueryError(
            f"a fusion is asked with a Federation of new rows, got {type(given_rows).__name__}: "
            "Federation({'owner': table, …}) with the names of training"
        )
    strange = [n for n in given_rows.names if n not in model.views_]
    if strange:
        raise QueryError(
            f"{strange[0]!r} is no owner of this fusion: {', '.join(list(model.views_)[:8])} are"
        )
    if len(given_rows) > 1 and any(p.table.row_ids is None for p in given_rows):
        raise QueryError("owners' rows are joined by row ids, and not all have them")
    return given_rows


def cover(federation: Federation) -> tuple[list[str], dict[str, list[str]]]:
    """All ids in their first order; and parties that together hold all rows, with their ids."""
    seen: dict[str, None] = {}
    askers: dict[str, list[str]] = {}
    for party in federation:
        own = _ids(party)
        if any(i not in seen for i in own):
            seen |= dict.fromkeys(own)
            askers[party.name] = own
    return list(seen), askers


def _ids(party: Party) -> list[str]:
    if party.table.row_ids is None:
        return [str(i) for i in range(len(party.table))]
    return id_texts(party)


def in_order(
    federation: Federation, where: Labels, orders: Mapping[str, Labels]
) -> tuple[Labels, int]:
    """Of each row that the coordinator has matched: its place among all ids; and their number."""
    ids, _ = cover(federation)
    place = {text: i for i, text in enumerate(ids)}
    found = np.full(len(where), -1)
    for i, party in enumerate(federation):
        own = np.array([place[text] for text in _ids(party)])[orders[party.name]]
        has = where[:, i] >= 0
        found[has] = own[where[has, i]]
    return found, len(ids)


def truth_of(federation: Federation, ids: list[str], target: Variable) -> Array:
    """(rows,) codes or numbers that parties hold of the target, NaN if none does."""
    found: dict[str, float] = {}
    for party in federation:
        if target.name in party.table.schema:
            column = party.table.column(target.name)
            for i, value in zip(_ids(party), column.tolist(), strict=True):
                code = target.encode(value)
                if i not in found or np.isnan(found[i]):
                    found[i] = code
    return np.array([found.get(i, np.nan) for i in ids])
