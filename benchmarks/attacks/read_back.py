"""Read-back: what an attacker computes about a party's rows from answers, without collecting.

The attacker queries the probability of every diagnosis, multiplies it by the number of rows that a
leaf or the model represents, removes the smoothing that the library is known to add, and rounds. If
a leaf may have been smoothed in several ways, it assumes the one that gives whole numbers. The
table shows the fraction of counts that it gets right, of all counts and of those from 1 to 4, which
concern few patients; "guess" knows only the overall frequencies. Diagnoses that the model has
pooled are assumed to be equally frequent.

    clusters    A clinic and a laboratory with the same patients. The coordinator computes how many
                rows of each of the laboratory's clusters have which diagnosis.
    together    The same, but the coordinator and all other parties combine the graph, their leaves
                and answers about 300 rows of evidence, and solve for the laboratory's leaves:
                answers of the root are linear in them.
    hospitals   Three hospitals with different patients. The coordinator computes how many patients
                of each hospital have which diagnosis.
    all rows    The same hospitals; whoever queries the model computes the same for all patients
                together.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from benchmarks.attacks.columns import orders
from benchmarks.attacks.federations import DIAGNOSES, federation, patients, with_pharmacy
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.attacks.wire import Tap
from fedcircuits.errors import FederationError

try:
    from fedcircuits.circuits.evaluation.network import UpperCircuit
except ImportError:  # an earlier checkout
    UpperCircuit = None  # type: ignore[assignment,misc]

Pairs = list[tuple[int, float]]  # true counts, and what the attacker makes of them
FEW = 4
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the model, of the federation
    "default": ({}, {}),
    "least_count=1": ({}, {"least_count": 1}),
    "least_count=20": ({}, {"least_count": 20}),
    "three parties": ({}, {"third": True}),
    "answers='root', three parties": ({"answers": "root"}, {"third": True}),
}
EPSILONS = (0.5, 1, 4)
TRUE = sorted(DIAGNOSES)


def measures(seed: int) -> list[Measure]:
    found: list[Measure] = []
    for what, attack in (("clusters", clusters), ("hospitals", hospitals), ("all rows", all_rows)):
        for setting, arguments in SETTINGS.items():
            if setting == "three parties" and attack is not clusters:
                continue  # hospitals are three
            found += _both(what, "FedPC", setting, partial(attack, fc.FedPC, *arguments, seed))
        if attack is not all_rows:
            guess = partial(attack, fc.FedPC, {}, {}, seed, guess=True)
            found += _both(what, "guess", "", guess)
    for setting in ("default", "three parties", "answers='root', three parties"):
        attack = partial(together, *SETTINGS[setting], seed)
        found += _both("together", "FedPC", setting, attack)
    found += _both("all rows", "PrivateForest", "default", partial(private, {}, seed))
    found += _both("all rows", "MixtureOfProducts", "by sums", partial(summed, None, seed))
    for epsilon in EPSILONS:
        attack = partial(summed, epsilon, seed)
        found += _both("all rows", "MixtureOfProducts", f"by sums, ε = {epsilon}", attack)
    return found


def _both(what: str, method: str, setting: str, attack: Any) -> list[Measure]:
    row = {"read": what, "method": method, "setting": setting}
    pairs: Pairs = []

    def every() -> float:
        pairs.extend(attack())
        return right(pairs)

    measured = attempt("counts found", row, every)
    few = [pair for pair in pairs if 1 <= pair[0] <= FEW]
    return [measured, Measure(f"counts of 1 to {FEW} found", row, right(few) if few else None)]


def right(pairs: Pairs) -> float:
    return float(np.mean([np.rint(said) == true for true, said in pairs]))


def unsmoothed(p: Any, rows: Any, shares: Any) -> Any:
    """Counts (leaves, values) from probabilities, sizes (leaves, 1) and overall shares."""
    tried = []
    for leaves in range(9):  # below this one, each of which was smoothed
        tried.append(p * (rows + 2 * leaves) - 2 * leaves * shares)
        tried.append(p * (rows + 0.5 * leaves * p.shape[1]) - 0.5 * leaves)
    off = np.stack([np.abs(n - np.rint(n)).sum(axis=1) for n in tried])  # (tried, leaves)
    return np.stack(tried)[off.argmin(axis=0), np.arange(len(p))]


def _pairs(truth: Any, said: Any) -> Pairs:
    return list(zip(truth.reshape(-1).astype(int).tolist(), said.reshape(-1).tolist(), strict=True))


def _codes(frame: pd.DataFrame) -> Any:
    return np.searchsorted(TRUE, frame["diagnosis"].to_numpy(str))


def _asked(fitted: Any) -> pd.DataFrame:
    """One row for every diagnosis that the model has, in the order of codes."""
    return pd.DataFrame({"diagnosis": list(fitted.circuit_.schema["diagnosis"].categories)})


def _by_name(fitted: Any, counts: Any) -> Any:
    """(…, all diagnoses) from (…, those of the model): pooled ones are taken to be equally many."""
    known = _asked(fitted)["diagnosis"].tolist()
    pooled = [name for name in TRUE if name not in known]
    places = [known.index(name if name in known else "other") for name in TRUE]
    return counts[..., places] / np.where(np.isin(TRUE, pooled), len(pooled), 1)


def _told(tap: Tap, fitted: Any) -> tuple[Any, dict[str, Any]]:
    """Probabilities of every diagnosis: the answer, and by party those of its leaves."""
    tap.runs.clear()
    root = np.exp(fitted.score_samples(_asked(fitted)))
    told: dict[str, Any] = {}
    for sender, tag, data in tap.role("coordinator").received:
        if tag == "query/values":
            told[sender] = np.exp(data["values"] if isinstance(data, dict) else data)
    return root, told


# ---------------------------------------------------------------------- clusters


def clusters(model: Any, settings: Any, allowed: Any, seed: int, guess: bool = False) -> Pairs:
    (frames, allowed), tap = _parties(seed, allowed), Tap()
    fitted = made(model, {**settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    truth = _truth(tap, frames["laboratory"])  # by cluster and diagnosis, of every division
    sizes = truth.sum(axis=1, keepdims=True)
    root, told = _told(tap, fitted)
    shares = root / root.sum()
    said = told.get("laboratory")
    if guess or said is None or len(said) != len(truth):  # leaves are not told apart
        return _pairs(truth, sizes * _by_name(fitted, shares))
    return _pairs(truth, _by_name(fitted, unsmoothed(said, sizes, shares)))


def together(settings: Any, allowed: Any, seed: int) -> Pairs:
    (frames, allowed), tap = _parties(seed, allowed), Tap()
    fitted = made(fc.FedPC, {**settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    truth = _truth(tap, frames["laboratory"])
    rows = _joined(frames).iloc[:300]
    seen = _through(fitted, rows)  # (leaves of the laboratory, rows): what the root is of each
    answers = np.stack(
        [
            np.exp(fitted.score_samples(rows.assign(diagnosis=d)))
            for d in _asked(fitted)["diagnosis"]
        ]
    )  # (diagnoses, rows)
    scale = seen.sum(axis=0)
    found = np.linalg.lstsq((seen / scale).T, (answers / scale).T, rcond=None)[0]
    if len(found) != len(truth):
        raise FederationError("the laboratory has leaves of other clusters than it counted")
    shares = np.exp(fitted.score_samples(_asked(fitted)))
    counts = unsmoothed(found, truth.sum(axis=1, keepdims=True), shares)
    return _pairs(truth, _by_name(fitted, counts))


def _parties(seed: int, allowed: Any) -> tuple[Any, dict[str, Any]]:
    """Two, or three if that is allowed, and what else is."""
    frames = patients(seed)
    if allowed.get("third"):
        frames = with_pharmacy(frames, seed)
    return frames, _without_third(allowed)


def _without_third(allowed: Any) -> dict[str, Any]:
    return {name: value for name, value in allowed.items() if name != "third"}


def _joined(frames: Any) -> pd.DataFrame:
    """What all but the laboratory know of the clinic's patients."""
    rows = frames["clinic"]
    if "pharmacy" in frames:
        rows = rows.merge(frames["pharmacy"], on="patient")
    return rows.drop(columns="patient")


def _through(fitted: Any, rows: pd.DataFrame) -> Any:
    """The root for evidence of the others, where one leaf of the laboratory is 1 and others 0."""
    upper = UpperCircuit(fitted.joint_.circuit)
    packed = upper.pack(fitted.joint_.parameters)
    others = [view for name, view in fitted.views_.items() if name != "laboratory"]
    learned = {name: own for view in others for name, own in view.parameters.circuits.items()}
    leaves = list(fitted.joint_.circuit.leaves())
    given = np.full((len(leaves), len(rows)), -np.inf)
    theirs = []
    for i, leaf in enumerate(leaves):
        if leaf.name in learned:
            model = fc.CircuitModel(*learned[leaf.name])
            given[i] = model.score_samples(rows[list(model.schema_.names)])
        else:
            theirs.append(i)
    found = []
    for i in theirs:
        given[i] = 0.0
        found.append(np.exp(upper.log_values(given, packed)))
        given[i] = -np.inf
    return np.stack(found)


def _truth(tap: Tap, frame: pd.DataFrame) -> Any:
    role = tap.role("laboratory")
    codes = _codes(frame)[orders(role, frame["patient"].to_numpy())[-1]]
    tables = []
    for _, tag, data in role.sent:
        if tag == "count/clusters":
            for label in data.get("labels", data).values():
                table = np.zeros((int(label.max()) + 1, len(TRUE)))
                np.add.at(table, (label.astype(int), codes), 1)
                tables.append(table)
    return np.concatenate(tables)


# ---------------------------------------------------------------------- hospitals


def _hospitals(seed: int, rows: int = 150) -> dict[str, pd.DataFrame]:
    every = patients(seed, 3 * rows)["laboratory"]
    return {f"hospital {i}": every.iloc[i * rows : (i + 1) * rows] for i in range(3)}


def _counted(frame: pd.DataFrame) -> Any:
    return np.bincount(_codes(frame), minlength=len(TRUE))


def hospitals(model: Any, settings: Any, allowed: Any, seed: int, guess: bool = False) -> Pairs:
    """Of every hospital, from the values of its leaves."""
    frames, tap, allowed = _hospitals(seed), Tap(), _without_third(allowed)
    fitted = made(model, {**settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    root, told = _told(tap, fitted)
    pairs: Pairs = []
    for name, frame in frames.items():
        said = root * len(frame)
        if name in told and not guess:
            rows = np.full((len(told[name]), 1), len(frame))
            said = unsmoothed(told[name], rows, root)[0]
        pairs += _pairs(_counted(frame), _by_name(fitted, said))
    return pairs


def all_rows(model: Any, settings: Any, allowed: Any, seed: int) -> Pairs:
    """Of all hospitals together, from answers of the model."""
    frames, allowed = _hospitals(seed), _without_third(allowed)
    whole = pd.concat(frames.values())
    fitted = made(model, {**settings, "random_state": seed}).fit(federation(frames, **allowed))
    p = np.exp(fitted.score_samples(_asked(fitted)))
    return _pairs(_counted(whole), _of_all(fitted, p, len(whole)))


def summed(epsilon: float | None, seed: int) -> Pairs:
    """Whoever has a mixture by sums, whose categories are public, and knows the number of rows."""
    if not hasattr(fc, "DifferentialPrivacy"):
        raise TypeError("no differential privacy")
    frames = {n: f[["diagnosis", "hiv"]] for n, f in _hospitals(seed).items()}
    whole, known = pd.concat(frames.values()), {"diagnosis": TRUE}
    tables = {n: fc.Table.of(f, categories=known) for n, f in frames.items()}
    privacy = None if epsilon is None else fc.DifferentialPrivacy(epsilon, 1e-5)
    fitted = fc.MixtureOfProducts(2, privacy=privacy, random_state=seed).fit(fc.Federation(tables))
    p = np.exp(fitted.score_samples(_asked(fitted)))
    return _pairs(_counted(whole), _of_all(fitted, p, len(whole)))


def _of_all(fitted: Any, p: Any, rows: int) -> Any:
    return _by_name(fitted, unsmoothed(p[None], np.array([[rows]]), p[None]))


def private(settings: Any, seed: int) -> Pairs:
    """An outsider asks a private forest, and knows the number of rows."""
    frames = {n: f[["diagnosis", "hiv"]] for n, f in _hospitals(seed).items()}
    whole = pd.concat(frames.values())
    fitted = fc.PrivateForest(random_state=seed, **settings).fit(fc.Federation(frames))
    both = [_asked(fitted).assign(hiv=hiv) for hiv in (False, True)]  # rows have no gaps
    p = sum(np.exp(fitted.connect().score_samples(rows)) for rows in both)
    return _pairs(_counted(whole), _of_all(fitted, p, len(whole)))
