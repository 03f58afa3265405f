"""Files of rows that the command line is given for a model.

They are read like the training files of the model: the options given then (--decimal, --dates,
--ids …) apply again unless others are given, and what is ambiguous in a file is read as in the
file of the same party, or as in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedcircuits.app.columns import ColumnOptions
from fedcircuits.app.training import parties_of, row_id_of
from fedcircuits.estimators import record
from fedcircuits.estimators.fedtrees import Predictions
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.record import TrainingRecord
from fedcircuits.federation.federation import Federation
from fedcircuits.reports.rows import joined, rows_of
from fedcircuits.tables.declared import DeclaredTable, contents
from fedcircuits.tables.readers import TextFrame
from fedcircuits.tables.schema import ReadingHabits, Schema
from fedcircuits.tables.table import Table


@dataclass(frozen=True)
class RowReader:
    """Reads rows for the model in the file ``path``, which records how its training files were
    read."""

    path: Path
    words: ColumnOptions
    row_id: Sequence[str] = ()

    @cached_property
    def before(self) -> TrainingRecord | None:
        return record.read(self.path)

    @cached_property
    def declared(self) -> DeclaredTable:
        return self.words.declared(None if self.before is None else self.before.reading)

    def contents(self, party: str, path: Path) -> object:
        """The uninterpreted content of a file, with the habits for reading it."""
        content = contents(path, self.declared.reading)
        return content.following(self._habits(party)) if isinstance(content, TextFrame) else content

    def rows(self, party: str, data: object, schema: Schema) -> Table:
        """Content of a party's file in the columns of a model."""
        row_id = row_id_of(self.row_id, [party]).get(party)
        return rows_of(data, schema, row_id, self.declared.reading)

    def one(self, schema: Schema, path: str | Path) -> Table:
        """The rows of one file."""
        return self.rows(*self.file(path), schema)

    def file(self, path: str | Path) -> tuple[str, object]:
        """The party of one file, which NAME=FILE names, and the uninterpreted content."""
        (party, file), *_ = parties_of([str(path)]).items()
        return party, self.contents(party, file)

    def parts(self, model: Model | Predictions, files: Sequence[str]) -> dict[str, Table]:
        """The rows of every file in the columns of the model, by party."""
        return {
            name: self.rows(name, self.contents(name, path), model.schema_)
            for name, path in parties_of(files).items()
        }

    def whole(self, model: Model | Predictions, files: Sequence[str]) -> Table:
        """The rows of all files, joined."""
        return joined(self.parts(model, files))

    def owned(self, files: Sequence[str]) -> Federation:
        """A federation with the rows of every file, for a fusion."""
        parties = parties_of(files)
        return Federation(parties, row_id_of(self.row_id, parties) or None, declared=self.declared)

    def _habits(self, party: str) -> ReadingHabits:
        if self.before is None or not self.before.habits:
            return ReadingHabits()
        known = self.before.habits
        if party in known:
            return known[party]
        if party in self.before.parties:  # one whose file told nothing
            return ReadingHabits()
        points, orders = ({getattr(h, n) for h in known.values()} for n in ("point", "order"))
        point = points.pop() if len(points) == 1 else None
        return ReadingHabits(point, orders.pop() if len(orders) == 1 else None)
