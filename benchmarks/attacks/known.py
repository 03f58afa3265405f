"""Identifying rows by known columns: can someone who knows one party's columns find the rows?

Five parties hold three columns each about the same 600 people. The coordinator knows the columns of
the first party from elsewhere, with names, and therefore what that party sends about each person:
it computes the same cells or clusters as the party does, in every view of two columns. It
identifies the rows for which only one person has what was sent. "bits" is what it then learns about
the other parties' columns in a row, on average: the entropy of what they send about it, at most the
logarithm of the number of rows for each of them. In views it is that of the view with most, among
those that have a column of the first party.
"""

from functools import cache, partial
from typing import Any

import msgspec
import numpy as np

import fedcircuits as fc
from benchmarks.attacks.measuring import Measure, attempt
from benchmarks.attacks.wire import Tap
from fedcircuits.methods.fedpc.cells import FinestCells, cells_of, codes_in_view, finest_of
from fedcircuits.methods.fedpc.views import CellPlan, views_of

ROWS, PARTIES = 600, 5
KNOWN = "party 1", "people"
SETTINGS: dict[str, dict[str, Any]] = {
    "the default": {},
    "dependence='combinations'": {"dependence": "combinations"},
    "summation=Secret()": {"summation": fc.Secret()},
}


def measures(seed: int) -> list[Measure]:
    found = []
    for title, settings in SETTINGS.items():
        codes = cache(partial(told, settings, seed))
        row = {"method": "FedPC", "setting": title}
        found.append(attempt("rows named", row, partial(named, codes)))
        found.append(attempt("bits", row, partial(bits, codes)))
    return found


def told(settings: Any, seed: int) -> dict[str, Any]:
    """By party, what it told the coordinator of each of its rows (rows, numbers); under "people"
    what the first party would tell of all people in all views."""
    rng = np.random.default_rng([seed, 5])
    hidden = rng.normal(size=(ROWS, 2))
    x = hidden @ rng.normal(size=(2, 3 * PARTIES)) + rng.normal(size=(ROWS, 3 * PARTIES))
    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(3 * PARTIES)}
    for i in range(0, 3 * PARTIES, 3):
        columns[f"x{i}"] = x[:, i] > 1
    table, tap = fc.Table.of(columns), Tap()
    parties = fc.split(table, PARTIES, by="columns", seed=seed)
    fc.FedPC(random_state=seed, **settings).fit(parties, engine=tap)
    heard = tap.role("coordinator").received
    codes = {
        name: _codes([data for sender, _, data in heard if sender == name], _work(tap, name))
        for name in parties.names
    }
    work = _work(tap, "party 1")
    if not work or not work[0]["cells"]["tasks"]:
        return {**codes, "people": codes["party 1"]}
    plan = msgspec.convert(work[0]["cells"], CellPlan)
    known, least = parties["party 1"].table, parties["party 1"].least_count
    cells = {task.column: cells_of(known, task, least) for task in plan.tasks}
    finest = {
        t.column: FinestCells.of(finest_of(known, t, least), cells[t.column], least)
        for t in plan.tasks
    }
    of_people = [
        codes_in_view(plan, view, own, known.schema, cells, finest, least)
        for view, own in plan.views()
    ]
    return {**codes, "people": _in_views(np.concatenate(of_people), plan)}


def _work(tap: Tap, party: str) -> list[Any]:
    """What a party was asked for."""
    return [d for _, tag, d in tap.role(party).received if tag == "rows/plan"]


def _in_views(codes: Any, plan: CellPlan) -> Any:
    """Which view, and the code of a party there, for every row of it (views · rows, 2)."""
    every = views_of(plan.blocks)
    numbers = np.repeat([every.index(view) for view, _ in plan.views()], ROWS)
    return np.stack([numbers, codes.astype(np.int64)], axis=1)


def _codes(messages: list[Any], work: list[Any]) -> Any:
    """Codes in views, or whatever has one small whole number for each row, as tokens have not."""
    for one in messages:
        if isinstance(one, dict) and "codes" in one:
            return _in_views(one["codes"], msgspec.convert(work[0]["cells"], CellPlan))
    found = [np.zeros(ROWS, np.int64)]
    waiting = list(messages)
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += list(one.values())
        elif isinstance(one, list | tuple):
            waiting += list(one)
        elif isinstance(one, np.ndarray) and one.shape == (ROWS,) and one.dtype != np.uint64:
            found.append(one.astype(np.int64))
    return np.stack(found, axis=1)


def named(codes: Any) -> float:
    """The share of rows for which one person alone has what the first party sent."""
    sent, people = codes()["party 1"], codes()["people"]
    _, at, rows = np.unique(people, axis=0, return_inverse=True, return_counts=True)
    one = {tuple(code) for code in people[rows[at.reshape(-1)] == 1].tolist()}
    return float(np.mean([tuple(code) in one for code in sent.tolist()]))


def bits(codes: Any) -> float:
    """Of all other parties together, or of the one that a view has beside the known one."""
    others = [of for party, of in codes().items() if party not in KNOWN]
    if len(codes()["party 1"]) == ROWS:
        return sum(_entropy(of) for of in others)
    seen = [of[np.isin(of[:, 0], codes()["party 1"][:, 0])] for of in others]
    return max(_entropy(of[of[:, 0] == view]) for of in seen for view in np.unique(of[:, 0]))


def _entropy(codes: Any) -> float:
    share = np.unique(codes, axis=0, return_counts=True)[1] / len(codes)
    return float(-(share * np.log2(share)).sum())
