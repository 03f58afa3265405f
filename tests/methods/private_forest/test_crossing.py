"""What never crosses: no row, id, number of rows, count or parameter of one party in the clear.

Messages are searched for single distinctive numbers, rows and texts, each in several ways to write
it; sums in the clear and planted leaks show that the search finds what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.structures import StructureFit, learned_alone
from fedcircuits.methods.private_forest.training import ForestPlan, LocalTraining
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.tables.table import Table
from tests.methods.private_forest.learning import (
    PLANS,
    TINY,
    alone,
    close,
    mean_by_use,
    parameters,
    programs,
    trained,
)
from tests.privacy.parties import messages

WIDE = (np.float64, np.int64)  # of which a single number is distinctive
KINDS = (*WIDE, np.float32, np.int32, np.uint8)


def secrets(plan: ForestPlan, party: Party, place: int) -> dict[str, set[bytes]]:
    """What must not be read in any message of a party: single numbers, single rows, ids."""
    assert party.table.row_ids is not None
    local = LocalTraining.of(party.table, plan, place, 3)
    rows = party.table.values[(party.table.values > 0).sum(1) > 2]
    codes = np.unique(party.table.values)
    learned = [
        learned_alone(circuit, start, local.rows, local.held, plan.schedule)[0]
        for circuit, start in zip(local.circuits, local.starts, strict=True)
    ]
    numbers = [a.ravel() for p in learned for n in p for a in p[n].values()]
    pairs = zip(local.circuits, local.starts, strict=True)
    fits = [StructureFit.of(circuit, start, local.rows, local.held) for circuit, start in pairs]
    counts = [fit.expected() for fit in fits]
    return {
        "ids of rows": {str(name).encode() for name in party.table.row_ids},
        "rows": {row.astype(kind).tobytes() for row in rows for kind in KINDS},
        "values": {code.astype(kind).tobytes() for code in codes[codes > 0] for kind in WIDE},
        "number of rows": {kind(local.size).tobytes() for kind in WIDE},
        "parameters": _written(np.concatenate(numbers)),
        "expected counts": _written(np.concatenate(counts)),
    }


def _written(numbers: np.ndarray) -> set[bytes]:
    """Numbers that are no whole ones, as floats, as logarithms and as fixed-point elements."""
    inner = numbers[(np.abs(numbers) > 1e-6) & (np.abs(numbers - np.rint(numbers)) > 1e-6)]
    assert len(inner) > 10
    logs = np.log2(np.abs(inner))
    points = [FixedPoint(fraction, 20).encode(v) for fraction in (36, 40) for v in (inner, logs)]
    elements = {FIELD.packed(e[None]).tobytes()[:8] for p in points for e in p}
    return {v.tobytes() for v in (*inner, *logs)} | elements


def with_ids(made: dict[str, Program[Any]]) -> dict[str, Program[Any]]:
    """The same, but every row has an id."""
    for me, program in made.items():
        party = program.arguments["party"]
        ids = np.array([f"patient {i} of {me}" for i in range(len(party.table))])
        table = Table(party.table.schema, party.table.values, ids)
        program.arguments["party"] = replace(party, table=table)
    return made


def leaks(plan: ForestPlan, sent: Mapping[str, list[Any]], made: Mapping[str, Program[Any]]) -> Any:
    """Which secrets of a party stand in its messages."""
    found = set()
    for place, (me, program) in enumerate(made.items()):
        data = b"".join(m.data for m in sent[me])
        for what, patterns in secrets(plan, program.arguments["party"], place).items():
            assert patterns and all(len(pattern) >= 6 for pattern in patterns)
            if any(pattern in data for pattern in patterns):
                found.add(what)
    return found


@pytest.mark.parametrize("what", PLANS)
def test_nothing_of_one_party_crosses_in_the_clear(what: str) -> None:
    plan, made = replace(PLANS[what], max_iter=5), with_ids(programs(PLANS[what]))
    for program in made.values():
        program.arguments["plan"] = plan
    _, sent = messages(made)
    assert leaks(plan, sent, made) == set()


def test_the_scan_finds_what_sums_in_the_clear_show() -> None:
    """Numbers of rows, and expected counts: the parties of a tree tell their sums."""
    for plan, shown in (
        (TINY, {"number of rows"}),
        (PLANS["em"], {"number of rows", "expected counts"}),
    ):
        made = with_ids(programs(plan))
        for program in made.values():
            program.arguments["summation"] = fc.Tree("cycle")
        _, sent = messages(made)
        assert leaks(plan, sent, made) == shown


@pytest.mark.parametrize("what", ["ids of rows", "rows", "values", "parameters"])
def test_the_scan_finds_a_planted_leak(what: str) -> None:
    """One secret of one party, written over some bytes of one message of shares."""
    made = with_ids(programs(TINY))
    _, sent = messages(made)
    pattern = min(secrets(TINY, made["party1"].arguments["party"], 1)[what])
    assert leaks(TINY, sent, made) == set()
    at = next(i for i, m in enumerate(sent["party1"]) if m.tag == "average/counts")
    data = sent["party1"][at].data
    data = data[:100] + pattern + data[100 + len(pattern) :]
    sent["party1"][at] = replace(sent["party1"][at], data=data)
    assert what in leaks(TINY, sent, made)


def test_the_mean_is_that_of_what_was_scanned_for() -> None:
    """Those are the parameters that the forest is made of."""
    outcome = trained(replace(TINY, max_iter=5))
    close(parameters(outcome), mean_by_use(outcome, alone(replace(TINY, max_iter=5), 3)))
