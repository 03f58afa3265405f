"""Who models which variable: divisions of the variables between their holders.

A division gives every variable to one of its holders, so it is a split by columns, learned as one:
clusters of the parties that are in it, joined by the rows they all hold. Where nothing is shared
there is one division. Where all hold everything there is one a party, of that party alone: data
split by rows. Between the two every party is the first choice in one of them and gets all it
holds; what is left goes to those it shares most rows with. A circuit mixes its divisions by their
rows. So a shared variable stays next to the other columns of whoever models it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.federation.federation import Subspace
from fedcircuits.federation.tokens import Labels

MOST_PATTERNS = 64  # sets of holders that a party looks for partners in
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Division:
    """Groups of variables and who models them; ``first`` is the number of the first group among
    those of all divisions. More than one holder only where a group is not divided (assembly.py)."""

    spaces: tuple[Subspace, ...]
    first: int = 0
    turn: int = 0  # which of several circuits over the same groups

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p for s in self.spaces for p in s.holders))

    def groups(self, party: str) -> dict[int, Subspace]:
        """The groups of one party by number."""
        numbered = enumerate(self.spaces, self.first)
        return {i: s for i, s in numbered if party in s.holders}


def numbered(divisions: Sequence[Sequence[Subspace]], times: int = 1) -> list[Division]:
    """Divisions whose groups have numbers of their own; those of several parties so many times."""
    found, first = [], 0
    for turn in range(times):
        for spaces in divisions:
            if turn == 0 or len(spaces) > 1:
                found.append(Division(tuple(spaces), first, turn))
                first += len(spaces)
    return found


def by_party(spaces: Sequence[Subspace], parties: Sequence[str]) -> list[list[Subspace]]:
    """All hold everything: a division of every party alone."""
    return [[Subspace((p,), tuple(v for s in spaces for v in s.variables))] for p in parties]


def by_rows_held(
    spaces: Sequence[Subspace], parties: Sequence[str], held: Flags
) -> list[list[Subspace]]:
    """``held`` (rows, parties): who has which row. Empty where no row has all variables."""
    sets, rows = np.unique(held, axis=0, return_counts=True)
    order = np.argsort(-rows, kind="stable")
    sets, rows = sets[order], rows[order]
    owners = np.array([[p in s.holders for p in parties] for s in spaces])  # (spaces, parties)
    covers = (sets.astype(int) @ owners.T.astype(int) > 0).all(axis=1)
    found: dict[tuple[int, ...], None] = {}
    for party in range(len(parties)):
        best = _best(party, owners, sets, rows, np.flatnonzero(covers & sets[:, party]))
        if best is not None:
            found[best] = None
    return [_spaces(spaces, parties, choice) for choice in found]


def _best(
    party: int, owners: Flags, sets: Flags, rows: Labels, candidates: Labels
) -> tuple[int, ...] | None:
    """Whom every subspace goes to when this party chooses first; the choice with most rows."""
    best, most = None, 0
    for i in candidates[:MOST_PATTERNS]:
        ranked = np.argsort(-owners.sum(axis=0), kind="stable")
        order = [party, *(p for p in ranked if sets[i, p] and p != party)]
        choice = tuple(next(p for p in order if held[p]) for held in owners)
        own = int(rows[sets[:, sorted(set(choice))].all(axis=1)].sum())
        if own > most:
            best, most = choice, own
    return best


def _spaces(
    spaces: Sequence[Subspace], parties: Sequence[str], choice: tuple[int, ...]
) -> list[Subspace]:
    return [
        Subspace((parties[p],), tuple(v for s, c in zip(spaces, choice, strict=True)
                                      for v in s.variables if c == p))
        for p in sorted(set(choice))
    ]  # fmt: skip


def together(division: Division, parties: Sequence[str], where: Labels) -> Labels:
    """Rows that all parties of a division hold: where each of them lists it (rows, its parties)."""
    own = where[:, [parties.index(p) for p in division.parties]]
    return own[(own >= 0).all(axis=1)]
