"""What FeatureFusion checks and prepares: arguments, encoders of owners, rows of questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ParameterError, QueryError, TableError
from fedcircuits.estimators import fusion_checks
from fedcircuits.federation.alignment import id_texts
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.encoders.encoders import (
    Encoder,
    NetworkEncoder,
    SequenceEncoder,
    TabularEncoder,
    encoder_of,
    nothing_to_read,
)
from fedcircuits.methods.fusion.consensus_graph import given
from fedcircuits.methods.fusion.fitting import FusionSettings, GraphName
from fedcircuits.methods.fusion.training import Plan
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
            if isinstance(own, NetworkEncoder):
                own.check(party.table, target)
        except (ParameterError, TableError) as error:
            raise type(error)(f"{party.name}: {error}") from None
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
