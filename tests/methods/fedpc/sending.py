"""Plans of cells for parties, and what they send in views of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

import fedcircuits as fc
from fedcircuits.methods.fedpc.cells import (
    FinestCells,
    PairCells,
    cells_of,
    chosen_rows,
    finest_of,
    seen_in_views,
)
from fedcircuits.methods.fedpc.training import METHOD
from fedcircuits.methods.fedpc.views import CellPlan, cell_plans
from fedcircuits.methods.meeting.hello import Hello
from fedcircuits.methods.meeting.tokens import HiddenRows, tokens

KEY = bytes(range(32))


def hellos(columns: Sequence[Sequence[str]], rows: int) -> tuple[fc.Schema, dict[str, Hello]]:
    """Parties that hold these columns; "kind" has three classes."""
    names = sorted({name for own in columns for name in own})
    x = np.random.default_rng(0).normal(size=(9, len(names)))
    frame = pd.DataFrame(x, columns=names)
    if "kind" in names:
        frame["kind"] = list("abc") * 3
    table = fc.Table.of(frame)
    found = {}
    for i, own in enumerate(columns):
        own_table = fc.Table(table.schema.select(own), np.zeros((rows, len(own))), np.arange(rows))
        found[f"party {i}"] = Hello.of(own_table, METHOD)
    return table.schema, found


def of_columns(table: fc.Table, names: list[str], rows: np.ndarray) -> fc.Table:
    own = table.select(names)
    return fc.Table(own.schema, own.values[rows], rows)


def plans_of(parties: fc.Federation, schema: fc.Schema, target: str | None) -> dict[str, CellPlan]:
    greetings = {p.name: Hello.of(p.table, METHOD) for p in parties}
    return cell_plans(schema, greetings, target)


def sent_by(
    parties: fc.Federation, plans: Mapping[str, CellPlan], least: int, key: bytes = KEY
) -> dict[str, PairCells]:
    """What every party sends, with tokens from its ids."""
    sent = {}
    for party in parties:
        table, plan = party.table, plans[party.name]
        assert table.row_ids is not None
        hidden = HiddenRows(key, tokens(table.row_ids, key))
        cells = {t.column: cells_of(table, t, least) for t in plan.tasks}
        finest = {
            t.column: FinestCells.of(finest_of(table, t, least), cells[t.column], least)
            for t in plan.tasks
        }
        chosen = chosen_rows(table.row_ids, plan.thinned, 0)
        seen = seen_in_views(hidden, plan, table.schema, cells, finest, chosen, least)
        models = {t.column: finest[t.column] for t in plan.tasks if t.models}
        sent[party.name] = PairCells(*seen, models, 0.0)  # type: ignore[arg-type]
    return sent
