"""Identifying rows by known columns: can someone who knows one party's columns find the rows?

Five parties hold three columns each about the same 600 people. The coordinator knows the columns of
the first party from elsewhere, with names, and therefore what that party sends about each person:
it computes the same cells or clusters as the party does, also in views of a few columns. It
identifies the rows for which only one person has what was sent. "bits" is what it then learns about
the other parties' columns in a row, on average: the entropy of what they send about it, at most the
logarithm of the number of rows for each of them.
"""

from functools import cache, partial
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.attacks.measuring import Measure, attempt
from benchmarks.attacks.wire import Tap
from fedcircuits.methods.fedpc.cells import CellTask, cells_of, seen_in_views
from fedcircuits.methods.meeting.tokens import HiddenRows

ROWS, PARTIES = 600, 5
KNOWN = "party 1", "people"
SETTINGS: dict[str, dict[str, Any]] = {
    "the default": {},
    "dependence='tree'": {"dependence": "tree"},
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
        f"party {i}": _codes([data for sender, _, data in heard if sender == f"party {i}"])
        for i in range(1, PARTIES + 1)
    }
    work = [d for _, tag, d in tap.role("party 1").received if tag == "rows/plan"]
    asked = [CellTask(**task) for task in work[0]["cells"]] if work else []
    if not asked:
        return {**codes, "people": codes["party 1"]}
    known, least = parties["party 1"].table, parties["party 1"].least_count
    cells = {task.column: cells_of(known, task, least) for task in asked}
    least = 1 if settings.get("dependence") == "tree" else least
    people = HiddenRows(bytes(32), np.arange(ROWS, dtype=np.uint64))
    return {
        **codes,
        "people": _matrix(seen_in_views(people, asked, cells, np.arange(ROWS), least)[1]),
    }


def _matrix(cells: Any) -> Any:
    return np.stack([cells[name].astype(np.int64) for name in sorted(cells)], axis=1)


def _codes(messages: list[Any]) -> Any:
    """Cells, or whatever has one small whole number for each row, as tokens have not."""
    for one in messages:
        if isinstance(one, dict) and isinstance(one.get("cells"), dict):
            return _matrix(one["cells"])
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
    """Of all other parties together."""
    return sum(_entropy(of) for party, of in codes().items() if party not in KNOWN)


def _entropy(codes: Any) -> float:
    share = np.unique(codes, axis=0, return_counts=True)[1] / len(codes)
    return float(-(share * np.log2(share)).sum())
