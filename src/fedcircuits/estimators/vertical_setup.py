"""What vertical mixtures and vertical k-means share: programs of members, weights, going on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine, Kept
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.training import (
    State,
    answered,
    require_federation,
    require_summation,
)
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Gossip, Tree
from fedcircuits.federation.sums.topology import Neighbourhood, Topology, hubs
from fedcircuits.methods.vertical import answers as vertical_answers
from fedcircuits.methods.vertical.answers import Best, Mixing, Terms
from fedcircuits.methods.vertical.mixture import Plan, Progress
from fedcircuits.methods.vertical.rows import Hello, check_holdings
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

T = TypeVar("T")
Weights: TypeAlias = npt.ArrayLike | Mapping[str, float] | None  # or a pandas Series by row id


@dataclass(frozen=True, slots=True)
class Setting:
    """What is alike for all members of a run."""

    summation: Summation
    hubs: tuple[Neighbourhood, ...]
    seed: int
    secret: bytes

    @classmethod
    def of(
        cls, summation: Summation, hops: int, parties: Sequence[str], state: State, seed: int | None
    ) -> Setting:
        """A given seed fixes the key that hides row ids too: else the order of rows, and so what is
        drawn, would change from run to run."""
        found = hubs_of(summation, hops, parties)
        if seed is None:
            return cls(summation, found, state.seed, state.secret)
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise FederationError(f"random_state must be a whole number from 0, got {seed!r}")
        secret = hashlib.sha256(f"fedcircuits rows {seed}".encode()).digest()
        return cls(summation, found, int(seed), secret)

    def programs(
        self,
        function: Callable[..., Flow[T]],
        federation: Federation,
        of: Callable[[str], dict[str, object]],
    ) -> dict[str, Program[T]]:
        """One program a member; ``of`` says what it is told besides."""
        programs = {}
        for name in self.summation.members(federation.names):
            told: dict[str, object] = {
                "me": name,
                "parties": federation.names,
                "party": federation.parties.get(name),
                "summation": self.summation.for_party(),
                "secret": self.secret,
            }
            programs[name] = Program(function, told | of(name))
        return programs


def hubs_of(summation: Summation, hops: int, parties: Sequence[str]) -> tuple[Neighbourhood, ...]:
    if not isinstance(hops, int | np.integer) or hops < 0:
        raise FederationError(f"hops must be a number from 0, got {hops!r}")
    if not hops:
        return ()
    if not isinstance(summation, Tree | Gossip):
        raise FederationError(
            f"hops={hops} moves columns to neighbours in a graph, and {type(summation).__name__} "
            "has none: take a Tree, Chebyshev or Metropolis of a graph, or hops=0"
        )
    return hubs(Topology.of(summation.graph, parties), int(hops))


def vertical(
    given: object, estimator: str, summation: object, groups: Mapping[str, int]
) -> Federation:
    """A federation of parties that hold other columns about rows that can be matched.

    ``groups``: the name and value of the setting that needs as many rows.
    """
    federation = require_federation(given, estimator)
    require_summation("summation", summation)
    check_holdings({p.name: Hello.of(p.table) for p in federation})
    for name, number in groups.items():
        if not isinstance(number, int | np.integer) or number < 1:
            raise FederationError(f"{name} must be a whole number from 1, got {number!r}")
        if number <= max(len(p.table) for p in federation):
            continue
        rows = len({i for p in federation for i in _ids(p)})
        if number > rows:
            raise FederationError(
                f"{name}={number} and {rows:,} rows: take at most as many as there are rows"
            )
    return federation


def numbers_of(name: str, given: object) -> Array:
    """What a user gave as numbers, in an array."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise FederationError(f"{name}: expected numbers, got {str(given)[:60]}") from None


# ---------------------------------------------------------------------- weights of rows


def weights_of(given: Weights, federation: Federation) -> dict[str, Array] | None:
    """Of every party's rows: from weights by row id, or in the order of the first party's rows."""
    if given is None:
        return None
    first = next(iter(federation))
    ids = {p.name: _ids(p) for p in federation}
    if isinstance(given, pd.Series):
        values = numbers_of("sample_weight", given)
        known = dict(zip(map(str, given.index), values, strict=True))
    elif isinstance(given, Mapping):
        values = numbers_of("sample_weight", list(given.values()))
        known = dict(zip(map(str, given), values, strict=True))
    else:
        values = numbers_of("sample_weight", given)
        if values.shape != (len(first.table),):
            raise FederationError(
                f"sample_weight: expected one for each of the {len(first.table):,} rows of "
                f"{first.name}, got the shape {values.shape}; weights by row id are a Series"
            )
        known = dict(zip(ids[first.name], values, strict=True))
    found = {}
    for name, own in ids.items():
        absent = next((i for i in own if i not in known), None)
        if absent is not None:
            raise FederationError(
                f"sample_weight has none for row {absent!r} of {name}: give a Series or mapping "
                "of row ids to weights that has all"
            )
        found[name] = np.array([known[i] for i in own])
        if not (np.isfinite(found[name]).all() and (found[name] >= 0).all()):
            raise FederationError("sample_weight must be numbers from 0, some are not")
    if not any(w.sum() > 0 for w in found.values()):
        raise FederationError("sample_weight must be above 0 for some row, all are 0")
    return found


def _ids(party: Party) -> list[str]:
    ids = party.table.row_ids
    return [str(i) for i in (np.arange(len(party.table)) if ids is None else ids).tolist()]


# ---------------------------------------------------------------------- going on


def latest(kept: Kept, members: Sequence[str], plan: Plan) -> tuple[Kept, dict[str, Progress]]:
    """The last state that all members have kept of a run by this plan, and nothing else."""
    found: dict[tuple[int, int], dict[str, str]] = {}
    for (member, step), state in kept.items():
        if isinstance(state, Progress) and _alike(state.plan, plan):
            found.setdefault((state.run, state.round), {})[member] = step
    common = [place for place, steps in found.items() if set(members) <= set(steps)]
    if not common:
        return {}, {}
    steps = found[max(common)]
    left = {(m, steps[m]): kept[m, steps[m]] for m in members}
    return left, {m: state for (m, _), state in left.items() if isinstance(state, Progress)}


def _alike(before: Plan | None, plan: Plan) -> bool:
    """Whether states of one plan mean the same in another: hubs may have changed."""
    return before is not None and replace(before, hubs=plan.hubs) == plan


# ---------------------------------------------------------------------- answers


def answers_of_table(
    x: Array, schema: Schema, learned: Mapping[str, Terms], run: Engine, ledger: Ledger
) -> Array:
    """Terms (components, rows) of x (rows, variables), as the parties tell them."""
    evidence = {p: x[:, [schema.index(n) for n in t.schema.names]] for p, t in learned.items()}
    programs: dict[str, Program[object]] = {
        COORDINATOR: Program(vertical_answers.asker, {"evidence": evidence})
    }
    for party, own in learned.items():
        programs[party] = Program(vertical_answers.answerer, {"learned": own})
    found = answered(run, programs, ledger)
    assert isinstance(found, np.ndarray)
    return found


def answers_of_parties(
    setting: Setting,
    federation: Federation,
    learned: Mapping[str, Terms],
    schema: Schema,
    components: int,
    then: Mixing | Best,
    run: Engine,
    ledger: Ledger,
) -> Array:
    """What ``then`` says of every row (…, rows): in the order of the first party's rows, then rows
    that it does not hold."""
    known = _readable(federation, schema, learned, setting.hubs)

    def of(name: str) -> dict[str, object]:
        return {"learned": learned.get(name), "components": components, "then": then,
                "hubs": setting.hubs}  # fmt: skip

    outcome = run(setting.programs(vertical_answers.member, known, of))
    ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"the question could not be answered: {error}") from error
    parts = [pd.DataFrame(outcome.results[p.name].T, index=_ids(p)) for p in known]
    whole = pd.concat(parts)
    return np.ascontiguousarray(whole[~whole.index.duplicated()].to_numpy().T)


def _readable(
    federation: Federation,
    schema: Schema,
    learned: Mapping[str, Terms],
    hubs: Sequence[Neighbourhood],
) -> Federation:
    """The parties' columns that the model knows, in its codes; each with the party that has it."""
    root = {m: hub.root for hub in hubs for m in hub.members}
    tables = {}
    for party in federation:
        home = learned.get(root.get(party.name, party.name))
        names = [n for n in party.table.names if n in schema]
        for name in names:
            if home is None or name not in home.schema:
                holder = next((p for p, own in learned.items() if name in own.schema), "another")
                raise QueryError(
                    f"{party.name} has {name!r}, which the model has learned at {holder}: parties "
                    "need the columns they had in training; or ask with a table"
                )
        own = Table.of(party.table.select(names), schema=schema.select(names))
        tables[party.name] = Table(own.schema, own.values, party.table.row_ids)
    return Federation(tables)
