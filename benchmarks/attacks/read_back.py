"""Read-back: what an attacker computes about a party's rows from answers, without collecting.

The attacker queries the probability of every diagnosis, multiplies it by the number of rows that a
leaf or the model represents, removes the smoothing that the library is known to add, and rounds. A
leaf may have been drawn to the frequencies of the whole table by several numbers of rows, and rare
diagnoses may have been pooled or left out: the attacker assumes whatever gives whole numbers. The
table shows the fraction of counts that it gets right, of all counts and of those from 1 to 4, which
concern few patients; "guess" knows only the overall frequencies. Diagnoses that the model has
pooled are assumed to be equally frequent.

    clusters    A clinic and a laboratory with the same patients, joined by combinations of
                clusters. The coordinator computes how many rows of each of the laboratory's
                clusters have which diagnosis. (Joined by pairs, it is told counts of categories.)
    together    The same, but the coordinator and all other parties combine the graph, their leaves
                and answers about 300 rows of evidence, and solve for the laboratory's leaves:
                answers of the root are linear in them.
    hospitals   Three hospitals with different patients, or two, which mix circuits of their own
                rows. The coordinator computes how many patients of each hospital have which
                diagnosis; of rare ones only how many have any of them, which it divides equally.
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

try:
    from fedcircuits.circuits.evaluation.network import UpperCircuit
except ImportError:  # an earlier checkout
    UpperCircuit = None  # type: ignore[assignment,misc]

Pairs = list[tuple[int, float]]  # true counts, and what the attacker makes of them
FEW = 4
LEAST = 5  # the default least count
EVIDENCE = 300  # rows
PULLS = 0.5 * 4.0 ** np.arange(7)  # rows by which leaves may be drawn to the whole table
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the model, of the federation
    "default": ({}, {}),
    "least_count=1": ({}, {"least_count": 1}),
    "least_count=20": ({}, {"least_count": 20}),
    "three parties": ({}, {"third": True}),
    "answers='root', three parties": ({"answers": "root"}, {"third": True}),
}
ALL = {"least_count": 1}
BY_CLUSTERS = {"dependence": "combinations"}
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
    for setting, allowed in {"two hospitals": {}, "two hospitals, least_count=1": ALL}.items():
        attack = partial(hospitals, fc.FedPC, {}, allowed, seed, number=2)
        found += _both("hospitals", "FedPC", setting, attack)
    guess = partial(hospitals, fc.FedPC, {}, {}, seed, guess=True, number=2)
    found += _both("hospitals", "guess", "two hospitals", guess)
    for setting in SETTINGS:
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


def counts_of(p: Any, rows: Any, share: Any = None, least: int = 1) -> Any:
    """Counts (values,) from the probabilities of a leaf of so many rows. ``share`` (values,): the
    frequencies of the table, to which a leaf of some of its rows is drawn; None for all rows.
    Counts below ``least`` may be missing: the others are scaled then, by fewer rows than that."""
    every = rows + 0.5 * len(p)
    tried = [p * (rows + 0.5 * leaves * len(p)) - 0.5 * leaves for leaves in range(9)]
    for pull in PULLS:
        if share is None:
            tried.append((p * (rows + pull) - 0.5 * pull / every) / (1 + pull / every))
        else:  # of several leaves below this one each was drawn
            tried += [p * (rows + n * pull) - n * pull * share for n in range(1, 9)]
    found = [(_not_whole(counts, share), counts) for counts in tried]
    for counts in tried:
        gone = np.abs(counts) < 1e-6
        for few in range(1, min(least, rows)) if gone.any() and share is not None else ():
            scaled = counts * (1 - few / rows)
            guess = np.where(gone, few * share / share[gone].sum(), scaled)
            found.append((_not_whole(scaled, share), guess))
    return min(found, key=lambda one: one[0])[1]


def _not_whole(counts: Any, share: Any) -> float:
    """How far counts are from whole ones. Those that were pooled stand in the ratio of the shares,
    and are whole together."""
    ratio = counts if share is None else np.round(counts / share, 6)
    alike = (ratio[:, None] == ratio).sum(axis=1) > (len(ratio) if share is None else 1)
    checked = np.append(counts[~alike], counts[alike].sum())
    return float(np.abs(checked - np.rint(checked)).sum() - 9 * np.minimum(counts, -1e-6).sum())


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


def _told(tap: Tap, fitted: Any) -> dict[str, Any]:
    """Probabilities of every diagnosis by the name of a leaf, where the coordinator hears them, and
    of the answer as "root"."""
    tap.runs.clear()
    told = {"root": np.exp(fitted.score_samples(_asked(fitted)))}
    places = fitted.joint_.placement
    leaves = [leaf for leaf in fitted.joint_.circuit.leaves() if "diagnosis" in leaf.scope]
    for sender, tag, data in tap.role("coordinator").received:
        if tag == "query/values":
            names = [leaf.name for leaf in leaves if places[leaf.name] == sender]
            values = np.exp(data["values"] if isinstance(data, dict) else data)
            told |= dict(zip(names, values, strict=True))
    return told


# ---------------------------------------------------------------------- clusters


def clusters(model: Any, settings: Any, allowed: Any, seed: int, guess: bool = False) -> Pairs:
    (frames, allowed), tap = _parties(seed, allowed), Tap()
    fitted = made(model, {**BY_CLUSTERS, **settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    truth = _truth(tap, fitted, frames["laboratory"])
    told = _told(tap, fitted)
    return _read(fitted, truth, {} if guess else told, told["root"], allowed)


def together(settings: Any, allowed: Any, seed: int) -> Pairs:
    (frames, allowed), tap = _parties(seed, allowed), Tap()
    fitted = made(fc.FedPC, {**BY_CLUSTERS, **settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    truth = _truth(tap, fitted, frames["laboratory"])
    rows = _joined(frames).iloc[:EVIDENCE]
    seen = _through(fitted, rows)  # by leaf of the laboratory (rows,): what the root is of it
    answers = np.stack(
        [
            np.exp(fitted.score_samples(rows.assign(diagnosis=d)))
            for d in _asked(fitted)["diagnosis"]
        ]
    )  # (diagnoses, rows)
    root = np.exp(fitted.score_samples(_asked(fitted)))
    return _read(fitted, truth, _solved(seen, answers, root), root, allowed)


def _solved(seen: dict[str, Any], answers: Any, root: Any) -> dict[str, Any]:
    """Leaves whose mixtures the answers are, as near to overall frequencies as answers allow."""
    through = np.stack(list(seen.values()), axis=1)  # (rows, leaves)
    scale = through.sum(axis=1, keepdims=True)
    beyond = answers.T / scale - root  # (rows, diagnoses)
    found = root + np.linalg.lstsq(through / scale, beyond, rcond=1e-7)[0]
    return dict(zip(seen, np.maximum(found, 0.0), strict=True))


def _read(fitted: Any, truth: Any, told: Any, root: Any, allowed: Any) -> Pairs:
    """Counts of every cluster from its leaf, drawn to the frequencies of the laboratory's table as
    the leaf of all rows tells them; where there is no leaf to read, the best guess."""
    space = next(iter(truth)).split("/")[2]
    every = int(sum(counts.sum() for name, counts in truth.items() if name.endswith(f"/{space}")))
    whole = told.get(f"laboratory/all/{space}", root)
    share = (counts_of(whole, every) + 0.5) / (every + 0.5 * len(root))
    pairs: Pairs = []
    for name, counts in truth.items():
        rows = int(counts.sum())
        said = rows * root
        if name in told:
            said = counts_of(told[name], rows, share, allowed.get("least_count", LEAST))
        pairs += _pairs(counts, _by_name(fitted, said))
    return pairs


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


def _through(fitted: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """By leaf of the laboratory: the root for evidence of the others, where this leaf is 1 and its
    other leaves are 0."""
    upper = UpperCircuit(fitted.joint_.circuit)
    packed = upper.pack(fitted.joint_.parameters)
    others = [view for name, view in fitted.views_.items() if name != "laboratory"]
    learned = {name: own for view in others for name, own in view.parameters.circuits.items()}
    leaves = list(fitted.joint_.circuit.leaves())
    given = np.full((len(leaves), len(rows)), -np.inf)
    theirs = {}
    for i, leaf in enumerate(leaves):
        if leaf.name in learned:
            model = fc.CircuitModel(*learned[leaf.name])
            given[i] = model.score_samples(rows[list(model.schema_.names)])
        else:
            theirs[leaf.name] = i
    found = {}
    for name, i in theirs.items():
        given[i] = 0.0
        found[name] = np.exp(upper.log_values(given, packed))
        given[i] = -np.inf
    return found


def _truth(tap: Tap, fitted: Any, frame: pd.DataFrame) -> dict[str, Any]:
    """By leaf of a cluster of the laboratory: how many rows of the cluster have which diagnosis."""
    role = tap.role("laboratory")
    codes = _codes(frame)[orders(role, frame["patient"].to_numpy())[-1]]
    names = [leaf.name for leaf in fitted.joint_.circuit.leaves() if "diagnosis" in leaf.scope]
    spaces = sorted({int(n.split("/")[2]) for n in names if n.startswith("laboratory/")})
    labels = [
        label
        for _, tag, data in role.sent
        if tag == "count/clusters"
        for _, label in sorted(data["labels"].items())
    ]
    tables = {}
    for space, label in zip(spaces, labels, strict=True):
        for cluster in range(int(label.max()) + 1):
            counts = np.bincount(codes[label == cluster], minlength=len(TRUE))
            tables[f"laboratory/{cluster}/{space}"] = counts
    return tables


# ---------------------------------------------------------------------- hospitals


def _hospitals(seed: int, number: int = 3, rows: int = 150) -> dict[str, pd.DataFrame]:
    every = patients(seed, number * rows)["laboratory"]
    return {f"hospital {i}": every.iloc[i * rows : (i + 1) * rows] for i in range(number)}


def _counted(frame: pd.DataFrame) -> Any:
    return np.bincount(_codes(frame), minlength=len(TRUE))


def hospitals(
    model: Any, settings: Any, allowed: Any, seed: int, guess: bool = False, number: int = 3
) -> Pairs:
    """Of every hospital, from the values of its leaf if it has one of its own."""
    frames, tap, allowed = _hospitals(seed, number), Tap(), _without_third(allowed)
    fitted = made(model, {**settings, "random_state": seed})
    fitted.fit(federation(frames, **allowed), engine=tap)
    told = _told(tap, fitted)
    pairs: Pairs = []
    for name, frame in frames.items():
        own = [p for leaf, p in told.items() if leaf.startswith(f"{name}/")]
        said = told["root"] * len(frame)
        if own and not guess:
            said = counts_of(own[0], len(frame))
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
    return _by_name(fitted, counts_of(p, rows))


def private(settings: Any, seed: int) -> Pairs:
    """An outsider asks a private forest, and knows the number of rows."""
    frames = {n: f[["diagnosis", "hiv"]] for n, f in _hospitals(seed).items()}
    whole = pd.concat(frames.values())
    fitted = fc.PrivateForest(random_state=seed, **settings).fit(fc.Federation(frames))
    both = [_asked(fitted).assign(hiv=hiv) for hiv in (False, True)]  # rows have no gaps
    p = sum(np.exp(fitted.connect().score_samples(rows)) for rows in both)
    return _pairs(_counted(whole), _of_all(fitted, p, len(whole)))
