"""A column of another party, inferred from what a party receives about its own rows.

The clinic knows the laboratory's column for half of its patients, from elsewhere. It takes every
message that contains a number or a label for each of its rows, trains trees on the known half to
predict the classes from these, and predicts the other half. Figures are the accuracy, rescaled so
that always predicting the most frequent class gives 0 and the whole column gives 1.
"""

from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import LabelEncoder

import fedcircuits as fc
from benchmarks.attacks.federations import federation, patients
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.attacks.wire import Role, Tap, walked
from fedcircuits.methods.meeting.tokens import tokens

ATTACKED: list[tuple[str, Any, dict[str, Any]]] = [
    ("FedPC", fc.FedPC, {}),
    ("FedPC, share_clusters=True", fc.FedPC, {"share_clusters": True}),
    ("FedPC, refine=2", fc.FedPC, {"refine": 2}),
    ("VerticalGaussianMixture(3)", partial(fc.VerticalGaussianMixture, 3), {}),
    ("VerticalKMeans(3)", partial(fc.VerticalKMeans, 3), {}),
]


def measures(seed: int) -> list[Measure]:
    found = []
    for title, model, settings in ATTACKED:
        for held in ("hiv", "diagnosis"):
            make = partial(made, model, {**settings, "random_state": seed})
            row = {"method": title, "laboratory's column": held}
            found.append(attempt("column read", row, partial(read, make, held, seed)))
    return found


def read(make: Any, column: str, seed: int) -> float:
    """How much of a column the clinic reads, 0 to 1; the laboratory holds it beside numbers."""
    frames = patients(seed)
    frames["laboratory"] = frames["laboratory"][["patient", "cd4", column]]
    tap = Tap()
    make().fit(federation(frames), engine=tap)
    tried = about_rows(tap.role("clinic"), frames["clinic"]["patient"].to_numpy())
    truth = frames["laboratory"].set_index("patient")[column]
    classes = LabelEncoder().fit_transform(truth.loc[frames["clinic"]["patient"]])
    return gained(tried, classes, np.random.default_rng(seed))


def about_rows(role: Role, ids: Any) -> list[Any]:
    """(rows, numbers) that a role received about its rows, in the order of its table.

    What is told about rows stands in an order that their holder knows: of tokens under the key, of
    places that it was told, or of its table. The attacker tries each."""
    rows = len(ids)
    told = [numbers for array in role.arrays() for numbers in by_row(array, rows)][-200:]
    columns = np.nan_to_num(np.stack([np.zeros(rows), *told], axis=1))
    tried = []
    for order in orders(role, ids):
        placed = np.empty_like(columns)
        placed[order] = columns
        tried.append(placed)
    return tried


def by_row(array: Any, rows: int) -> list[Any]:
    """Vectors (rows,) in an array: along an axis, or one after the other with a little more."""
    if array.dtype.kind not in "biuf" or array.dtype == np.uint64:
        return []
    flat = array.reshape(-1).astype(float)
    if array.ndim == 1 and len(flat) > rows and len(flat) % rows < 4:
        return list(flat[: len(flat) // rows * rows].reshape(-1, rows))
    axes = [axis for axis, size in enumerate(array.shape) if size == rows]
    return [v for axis in axes for v in np.moveaxis(array, axis, 0).reshape(rows, -1).T]


def orders(role: Role, ids: Any) -> list[Any]:
    found = [np.arange(len(ids))]
    for _, tag, data in [*role.received, *role.sent]:
        if tag == "key/tokens":
            key = data["key"] if isinstance(data, dict) else bytes.fromhex(data)
            found.append(np.argsort(tokens(ids, key)))
        if tag == "rows/places":
            places = np.concatenate([np.zeros(0, int), *_integers(data)])
            if sorted(places.tolist()) == list(range(len(ids))):
                found.append(np.argsort(places))
    return found


def _integers(data: Any) -> list[Any]:
    arrays = (a for a in walked(data) if isinstance(a, np.ndarray))
    return [a.reshape(-1) for a in arrays if a.dtype.kind in "iu"]


def gained(tried: list[Any], classes: Any, rng: np.random.Generator) -> float:
    """By the best of the tried features on the known half."""
    known, asked = np.array_split(rng.permutation(len(classes)), 2)
    forest = RandomForestClassifier(50, min_samples_leaf=2, oob_score=True, random_state=0)
    scores = [forest.fit(x[known], classes[known]).oob_score_ for x in tried]
    x = tried[int(np.argmax(scores))]
    said = forest.fit(x[known], classes[known]).predict(x[asked])
    blind = (classes[asked] == np.bincount(classes[known]).argmax()).mean()
    return max(0.0, ((said == classes[asked]).mean() - blind) / (1 - blind))
