"""Files of rows that the command line is given for a model."""

from __future__ import annotations

from collections.abc import Sequence

from fedcircuits.app.training import parties_of
from fedcircuits.estimators.fedtrees import Predictions
from fedcircuits.estimators.model import Model
from fedcircuits.federation.federation import Federation
from fedcircuits.reports.rows import joined, read_rows
from fedcircuits.tables.table import Table


def parts(model: Model | Predictions, files: Sequence[str], row_id: str | None) -> dict[str, Table]:
    """The rows of every file in the columns of the model, by the names of parties."""
    return {
        name: read_rows(path, model.schema_, row_id) for name, path in parties_of(files).items()
    }


def whole(model: Model | Predictions, files: Sequence[str], row_id: str | None) -> Table:
    """The rows of all files, joined."""
    return joined(parts(model, files, row_id))


def owned(files: Sequence[str], row_id: str | None) -> Federation:
    """The rows of every file as those of an owner, for a fusion."""
    return Federation(parties_of(files), row_id)
