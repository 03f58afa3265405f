"""What everybody is to do in one-pass training, from who holds which variables and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from fedcircuits.federation.federation import Subspace
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import Json
from fedcircuits.methods.fedpc.divisions import Division, by_rows_held, numbered
from fedcircuits.methods.fedpc.exchange import Piece
from fedcircuits.methods.meeting.hello import Told
from fedcircuits.methods.refinement.training import Way
from fedcircuits.tables.schema import Schema

HUB = Hub()
Rule = Literal["cooccurrence", "sizes", "em"]
Shared = Literal["divided", "cluster", "pooled"]
SMALL = 2_000  # rows: circuits are quickly learned from fewer, and mixing them gains more
INDEPENDENT = (
    "parties are taken to be independent beyond their clusters' sizes, because {}: give row ids "
    "that they share, Federation(…, row_id='…')"
)
STAY = (
    "EM over rows needs learned circuits to leave their parties, allow_collect=True: it was left "
    "out"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What all parties of a run do alike."""

    clusters: int | Literal["auto"] = "auto"
    products: int | Literal["auto"] = "auto"
    weights: Rule = "cooccurrence"
    shared: Shared = "divided"
    ensemble: int | Literal["auto"] = "auto"
    target: str | None = None
    share_target: bool = False
    share_clusters: bool = True
    refine: int = 0  # rounds of EM over weights and leaves, across the parties
    validation: float = 0.0  # the share of its rows that they hold back to stop by
    seed: int = 0
    summation: Summation = field(default=HUB, repr=False)


@dataclass(frozen=True, slots=True)
class Split:
    """How the variables lie, and what follows from it."""

    schema: Schema
    spaces: list[Subspace]
    horizontal: bool
    sealed: bool  # whether rows are matched by tokens

    def notes(self, plan: Plan) -> tuple[str, ...]:
        if self.sealed or self.horizontal or plan.weights == "sizes":
            return ()
        return (INDEPENDENT.format("not all of them have row ids"),)


@dataclass(frozen=True, slots=True)
class Work:
    pieces: tuple[Piece, ...]
    groups: dict[int, tuple[int, list[str]]]  # the variables of a leaf, and the division it is of
    pooled: frozenset[int]  # groups that are learned from all rows at once

    @classmethod
    def of(cls, told: Told) -> Work:
        pieces = tuple(Piece(**own) for own in told["pieces"])
        groups = {int(i): (d, names) for i, d, names in told["groups"]}
        return cls(pieces, groups, frozenset(told["pooled"]))


def divided(
    split: Split, members: Sequence[str], where: Labels, plan: Plan
) -> tuple[list[Division], tuple[str, ...]]:
    found = by_rows_held(split.spaces, members, where >= 0)
    if not found:
        why = "no row is held by parties that have all variables together"
        return numbered([split.spaces]), (INDEPENDENT.format(why),)
    if plan.shared != "divided":
        return numbered([split.spaces]), ()
    few = len(where) < SMALL
    times = (4 if few else 2) if plan.ensemble == "auto" else plan.ensemble
    made = numbered(found, times)
    unused = [p for p in members if not any(p in d.parties for d in made)]
    if not unused:
        return made, ()
    note = "{} shares no row with parties that hold the other variables: it was left out"
    return made, tuple(note.format(p) for p in unused)


def way_of_em(
    split: Split, plan: Plan, shared: Labels | None, allowed: bool
) -> tuple[Way | Literal[""], tuple[str, ...]]:
    """EM across parties on their own "rows", or on ``shared`` ones by the "network" or by secret
    "sums", or not at all; and why not, where it was asked for."""
    if not plan.refine and (split.horizontal or plan.weights != "em"):
        return "", ()
    if split.horizontal:
        return ("rows", ()) if allowed else ("", (STAY,))
    if shared is None or not len(shared):
        return "", ("no row is held by all parties: EM across them was left out",)
    return ("sums" if plan.summation.hides else "network"), ()


def work_of(party: str, divisions: Sequence[Division], split: Split, plan: Plan) -> dict[str, Json]:
    """What a client is to cluster and learn."""
    pieces: list[dict[str, object]] = []
    groups, pooled = [], []
    for number, division in enumerate(divisions):
        own = division.groups(party)
        if not own:
            continue
        together = {i for i, s in own.items() if plan.shared == "pooled" and len(s.holders) > 1}
        apart = [v for i, s in own.items() if i not in together for v in s.variables]
        clusters: Json = plan.clusters if len(division.parties) > 1 else 1
        columns = apart or [v for s in own.values() for v in s.variables]
        told = telling(division, split, plan)
        asked = {"division": number, "number": len(pieces), "columns": columns, "told": told}
        pieces.append({**asked, "clusters": clusters})
        groups += [[i, number, list(s.variables)] for i, s in own.items()]
        pooled += sorted(together)
    return {
        "pieces": cast(Json, pieces),
        "groups": cast(Json, groups),
        "pooled": cast(Json, pooled),
    }


def telling(division: Division, split: Split, plan: Plan) -> bool:
    """Whether the parties of a division hear of each other's clusters: every second circuit goes
    by own ones, so that what is mixed differs."""
    apart = len(division.parties) > 1 and all(len(s.holders) == 1 for s in division.spaces)
    told = division.turn % 2 == 0
    return split.sealed and plan.share_clusters and apart and told and plan.clusters != 1
