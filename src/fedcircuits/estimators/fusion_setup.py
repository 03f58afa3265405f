"""What FeatureFusion checks and prepares: arguments, encoders of owners, rows of questions.

Owners that are simulated in one process are trained at once: ``trained_at_once`` makes the jobs
that the owners' flows make, trains those of one shape in one batched computation, and hands the
results to the engine as work that is done already (as a resumed run does). The flows are the same
with and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FedcircuitsError, FederationError, ParameterError, QueryError
from fedcircuits.estimators import fusion_checks
from fedcircuits.estimators.progress import current
from fedcircuits.federation.agreement import in_agreed
from fedcircuits.federation.alignment import id_texts
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.encoders.encoders import (
    Encoder,
    Job,
    NetworkEncoder,
    SequenceEncoder,
    TabularEncoder,
    encoder_of,
    fit_all,
    nothing_to_read,
)
from fedcircuits.methods.fusion.consensus_graph import given
from fedcircuits.methods.fusion.fitting import FusionSettings, GraphName
from fedcircuits.methods.fusion.training import Plan, ids_of, job_of, step_of
from fedcircuits.methods.fusion.votes import VOTES
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

Missed: TypeAlias = Callable[[Federation, str], str]


# ---------------------------------------------------------------------- arguments


def checked(model: FeatureFusion, federation: Federation, target: str | None) -> str:
    """The target's name, if everything fits together."""
    fusion_checks.check_words(model)
    fusion_checks.check_numbers(model)
    fusion_checks.check_together(model)
    name = target if target is not None else model.target
    if not isinstance(name, str):
        raise FederationError("name the column to predict: fit(federation, target='…')")
    fusion_checks.check_rows(federation, name)
    variable = federation.schema[name]
    if model.head == "threshold" and variable.size != 2:
        kind = f"one of {variable.size} classes" if variable.size else "a number"
        raise FederationError(
            f"head='threshold' is for a target of two classes, {name!r} is {kind}: use head='vote'"
        )
    _check_encoders(model, federation, name)
    if not isinstance(model.graph, str | None):
        graph_for(model, federation, name)
    return name


def _check_encoders(model: FeatureFusion, federation: Federation, target: str) -> None:
    owners = [p for p in federation if not nothing_to_read(p.table, target)]
    if not owners:
        raise FederationError(f"nobody holds a column beside {target!r} to predict it from")
    if isinstance(model.encoder, Mapping):
        for party in owners:
            if party.name not in model.encoder:
                raise FederationError(f"encoder has none for {party.name!r}: give one for each")
    epochs: dict[object, str] = {}
    for party in owners:
        try:
            own = encoder_for(model.encoder, party)
        except ParameterError as error:
            raise ParameterError(f"{party.name}: {error}") from None
        if isinstance(own, NetworkEncoder):
            epochs.setdefault(own.epochs, party.name)
    if model.training in ("tied", "averaged") and len(epochs) > 1:
        (a, first), (b, second), *_ = epochs.items()
        raise FederationError(
            f"training={model.training!r}: encoders that are trained together must have one shape "
            f"and one number of epochs, {first} has {a} and {second} {b}"
        )


def plan_of(
    model: FeatureFusion,
    target: str,
    seed: int,
    federation: Federation | None,
    began: Sequence[str] | None = None,
) -> Plan:
    """What parties do alike; a question needs no graph. ``began``: owners before some were lost."""
    vote = model.head if model.head in VOTES else None
    graph: GraphName = model.graph if isinstance(model.graph, str) else None  # type: ignore[assignment]
    weights = None
    if model.graph is not None and not isinstance(model.graph, str):
        graph = "given"
        weights = None if federation is None else graph_for(model, federation, target, began)
    if model.summation is not None:
        graph = None  # of sums the mean is there already
    settings = FusionSettings(
        model.align, graph, "gcn" if vote else model.head, model.reference,  # type: ignore[arg-type]
        float(model.temperature), int(model.graph_draws), float(model.owner_dropout),
        int(model.hidden), int(model.epochs), int(model.patience), float(model.learning_rate),
        int(model.batch),
    )  # fmt: skip
    clip = None if model.clip is None else float(model.clip)
    return Plan(
        target, settings, vote, bool(model.share_target), model.traffic, float(model.validation),
        clip, float(model.noise), weights, int(seed), model.training, model.summation,
    )  # fmt: skip


def at_owner(plan: Plan) -> Plan:
    """With a key of its own, where shares are dealt."""
    return plan if plan.summation is None else replace(plan, summation=plan.summation.for_party())


def graph_for(
    model: FeatureFusion, federation: Federation, target: str, began: Sequence[str] | None = None
) -> Array:
    """The graph that was given, for these owners.

    A frame is read by its names, and need not have those who hold the target alone. An array is
    one of the owners that training began with, some of whom may be lost by now.
    """
    graph, names = model.graph, list(federation.names)
    if not isinstance(graph, pd.DataFrame):
        rows = list(began or names)
        whole = given(graph, len(rows))  # type: ignore[arg-type]
        here = [rows.index(n) for n in names]
        return whole[np.ix_(here, here)]
    nodes = [p.name for p in federation if not nothing_to_read(p.table, target)]
    for axis in (list(graph.index), list(graph.columns)):
        for name in nodes:
            if axis.count(name) != 1:
                how = "twice" if name in axis else "no row and column for"
                raise FederationError(f"graph has {how} {name!r}: expected one for each owner")
    here = [names.index(n) for n in nodes]
    found = np.zeros((len(names), len(names)))
    found[np.ix_(here, here)] = given(graph.loc[nodes, nodes].to_numpy(), len(nodes))
    return found


def encoder_for(encoder: object, party: Party) -> Encoder:
    own = encoder.get(party.name) if isinstance(encoder, Mapping) else encoder
    if own is None:
        own = SequenceEncoder() if party.table.series else TabularEncoder()
    return encoder_of(own)


# ---------------------------------------------------------------------- owners in one process


def in_one_process(engine: str | Engine) -> bool:
    return engine == "memory" or engine is memory.run


def trained_at_once(
    model: FeatureFusion, federation: Federation, plan: Plan
) -> dict[tuple[str, str], object]:
    """By owner and step: the encoders that owners would train one after the other.

    Without those that an earlier run has left. Where owners may be lost, an owner's error is left
    to its flow, which then trains without the others.
    """
    jobs: dict[tuple[str, str], Job] = {}
    for party in federation:
        encoder = encoder_for(model.encoder, party)
        if isinstance(encoder, NetworkEncoder):
            target = federation.schema[plan.target]
            table = in_agreed(party.table, federation.schema)
            y = _labels(federation, party, target, plan)
            job = job_of(party, table, target, y, encoder, plan)
            jobs[party.name, step_of(job, plan)] = job
    left = model._state.kept
    jobs = {step: job for step, job in jobs.items() if step not in left}
    bar = current()

    def report(done: int, total: int) -> None:
        if bar is not None:
            bar.tell(done, total, f"{len(jobs)} owners, epoch {done} of at most {total}")

    try:
        learned = fit_all(list(jobs.values()), report)
    except FedcircuitsError:
        if model.on_lost == "stop":
            raise
        return {}
    if bar is not None:
        bar.tell(0, 0, "learning the fusion")
    return dict(zip(jobs, learned, strict=True))


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
    for party in given_rows:
        if len(given_rows) > 1 and party.table.row_ids is None:
            raise QueryError(
                f"owners' rows are joined by row ids, and {party.name} has none: Federation(…, "
                "row_id='…')"
            )
    owners = model.fusion_.owners
    asked = [p for p in given_rows if p.name in owners or not _labels_alone(model, p)]
    strange = [p.name for p in asked if p.name not in owners]
    if strange:
        raise QueryError(
            f"{strange[0]!r} is no owner of this fusion: {', '.join(owners[:8])} are; "
            "Federation.select(names) leaves others out"
        )
    if not any(len(p.table) for p in asked):
        raise QueryError("there are no rows to predict: expected at least one of some owner")
    return (
        given_rows.select([p.name for p in asked]) if len(asked) < len(given_rows) else given_rows
    )


def _labels_alone(model: FeatureFusion, party: Party) -> bool:
    """Whether it has values to compare with, and nothing to predict from."""
    return model.target_ in party.table.schema and nothing_to_read(party.table, model.target_)


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


def truth_of(
    federation: Federation, ids: list[str], target: Variable, given: npt.ArrayLike | None
) -> Array:
    """(rows,) codes or numbers: those given, or what parties hold; NaN where nobody knows."""
    if given is not None:
        said = np.asarray(given)
        if said.shape != (len(ids),):
            raise QueryError(
                f"y must have a value for each of {len(ids)} rows, got an array of the shape "
                f"{said.shape}"
            )
        return Table.of({target.name: said}, schema=Schema((target,))).values[:, 0]
    found: dict[str, float] = {}
    for party in federation:
        if target.name in party.table.schema:
            column = party.table.column(target.name)
            for i, value in zip(_ids(party), column.tolist(), strict=True):
                if i not in found or np.isnan(found[i]):
                    found[i] = target.encode(value)
    return np.array([found.get(i, np.nan) for i in ids])
