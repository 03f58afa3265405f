"""One query to a federated circuit, and its messages (query.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from fedcircuits.circuits.graph.circuit import Leaf
from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.queryable import Regions
from fedcircuits.errors import SiteError
from fedcircuits.federation.agreement import in_agreed
from fedcircuits.federation.messages import Booleans, IntegerVector, Message, RealMatrix, Reals
from fedcircuits.federation.placement import View
from fedcircuits.tables.schema import Schema

QuestionKind = Literal["values", "moments", "best"]


@dataclass(frozen=True, eq=False)
class Question:
    """One question about rows and one box."""

    kind: QuestionKind
    x: Array  # (rows, variables)
    regions: Regions
    at: int = -1  # the column of moments
    region: Region = ()

    @cached_property
    def columns(self) -> frozenset[int]:
        """Columns that say something."""
        return frozenset((*self.seen, *self.regions, *([self.at] if self.at >= 0 else [])))

    @cached_property
    def seen(self) -> list[int]:
        """Columns with values."""
        return [int(c) for c in np.flatnonzero(~np.isnan(self.x).all(axis=0))]

    def leaves_asked(self, leaves: Iterable[Leaf], schema: Schema) -> list[Leaf]:
        """Those of a party's leaves that it is about; the best completion is about all."""
        known = {schema.names[c] for c in self.columns}
        return [leaf for leaf in leaves if self.kind == "best" or known & set(leaf.scope)]


def check_rows_behind(view: View, question: Question) -> None:
    """SiteError unless every row of a question is about as many of the party's rows as its owner
    wants: rows within the regions, with the same categories, booleans and counts."""
    least, table = view.budget.least, view.budget.table
    if not least:
        return
    rows = np.zeros((0, len(view.schema)))
    if table is not None:
        rows = in_agreed(table.select(view.schema.names), view.schema).values
    inside = np.ones(len(rows), np.bool_)
    boxes = {**question.regions, **({question.at: question.region} if question.region else {})}
    for column, region in boxes.items():
        inside &= np.any(
            [(rows[:, column] >= a) & (rows[:, column] <= b) for a, b in region], axis=0
        )
    exact = [c for c in question.seen if view.schema.variables[c].discrete]
    for row in np.unique(np.nan_to_num(question.x[:, exact], nan=np.inf), axis=0):
        known = np.isfinite(row)
        same = (rows[inside][:, exact][:, known] == row[known]).all(axis=1)
        if same.sum() < least:
            raise SiteError(
                f"{view.me} answers only queries that at least {least} of its rows support "
                f"(policy: least_rows_behind = {least})"
            )


class QueryEvidence(Message, frozen=True):
    """What is known of a client's columns, every different row once."""

    tag: ClassVar[str] = "query/evidence"

    kind: QuestionKind
    columns: tuple[str, ...]
    rows: RealMatrix  # (different rows, columns)
    regions: dict[str, Region]
    variable: str  # whose moments are asked for, "" if none of this client's
    region: Region  # to which this variable is restricted

    @property
    def revealing(self) -> str:
        """What it reveals, in words."""
        names = list(dict.fromkeys([*self.columns, *self.regions]))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        return f"evidence on {shown}" if names else "the query, without evidence"


class LeafAnswers(Message, frozen=True):
    """What a client's leaves say to the evidence."""

    tag: ClassVar[str] = "query/values"
    reveals: ClassVar[str] = "the likelihood of the evidence under each of its leaves"

    values: RealMatrix  # (leaves asked, rows), log-values
    moments: Reals | None  # (2, leaves asked, rows)


class ChosenLeaves(Message, frozen=True):
    """Which rows a client completes, and with which of its leaves."""

    tag: ClassVar[str] = "query/choice"
    reveals: ClassVar[str] = "which of the reader's leaves were chosen for each row"

    source: IntegerVector  # of every row to complete, among the rows of the evidence
    chosen: Booleans  # (leaves, rows to complete)
    columns: tuple[str, ...]  # to answer with


class CompletedRows(Message, frozen=True):
    """A client's columns, NaN where it was not chosen."""

    tag: ClassVar[str] = "query/completed"
    reveals: ClassVar[str] = "the completed values of its columns"

    values: RealMatrix  # (rows to complete, columns)
