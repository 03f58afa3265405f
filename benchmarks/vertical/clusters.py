"""Clusters of pulsar candidates (the paper's Table 1), over starts and graphs.

Accuracy is the share of rows whose cluster is their class, with the clusters named the better way
round. It says little here: "no pulsar" for all rows scores more than every mixture, so the adjusted
Rand index stands beside it, which is 0 for clusters drawn by chance. "VP" is the vertical mixture
of 8 parties with a feature each; with 1 hop the features move into hubs, so that blocks of
covariances follow the graph. On a ring other graphs are other orders of the features. Sums go along
trees, so are exact; the paper's 100 rounds of Metropolis are run once a graph beside them.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from benchmarks.vertical.sets import Labels, columns_of, geometric, htru2, names_of
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.sums.topology import hubs

STARTS, GRAPHS = 5, 8
PAPER = {"k-means": 76.7, "EM": 84.3, "cycle": 85.7, "geometric": 84.4, "scale-free": 87.2}
Run = tuple[float, float, float | None]  # accuracy in per cent, Rand index, log-likelihood per row


def run() -> list[Json]:
    x, classes = htru2()
    rows = one_place(x, classes) + _vertical(x, classes)
    print("\nHTRU2, 17,898 rows: least to largest over starts and graphs")
    print_table(rows)
    return [{"table": "clusters", **row} for row in rows]


def graph_of(kind: str, seed: int) -> fc.Topology:
    """Over 8 parties; of a cycle there is one."""
    if kind == "cycle":
        return fc.Topology.of("cycle", names_of(8))
    if kind == "geometric":
        return geometric(8, 16, seed)
    return fc.Topology.of("scale-free", names_of(8), links=3, seed=seed)


def one_place(x: Array, classes: Labels, starts: int = STARTS) -> list[dict[str, Cell]]:
    """Plain guesses, k-means and EM of scikit-learn."""
    z = (x - x.mean(0)) / x.std(0)
    everybody = [_figures(np.zeros(len(classes), np.int64), classes, None)]
    rows = [_row('always "no pulsar"', everybody)]
    for title, values in (("k-means", x), ("k-means, standardised", z)):
        labels = [KMeans(2, n_init=1, random_state=s).fit_predict(values) for s in range(starts)]
        rows.append(_row(title, [_figures(own, classes, None) for own in labels], title))
    for title, kind in (("EM", "full"), ("EM, diagonal", "diag")):
        fits = []
        for start in range(starts):
            for init in ("kmeans", "random_from_data"):
                model = GaussianMixture(2, covariance_type=kind, init_params=init)
                found = model.set_params(random_state=start).fit_predict(x)
                fits.append(_figures(found, classes, model.score(x)))
        rows.append(_row(title, fits, title))
    return rows


def _vertical(x: Array, classes: Labels) -> list[dict[str, Cell]]:
    parties = columns_of(x, 8)
    starts = [clustered(parties, classes, s) for s in range(STARTS)]
    rows = [_row("vertical k-means", starts)]
    starts = [clustered(parties, classes, s, standardise=True) for s in range(STARTS)]
    rows.append(_row("vertical k-means, standardised", starts))
    whole = [_mixed(columns_of(x, 1), classes, fc.Hub(), 0, s) for s in range(STARTS)]
    rows.append(_row("vertical, one party (full)", whole))
    alone = [_mixed(parties, classes, fc.Hub(), 0, s) for s in range(STARTS)]
    rows.append(_row("VP, 0 hops (any graph)", alone))
    for kind in ("cycle", "geometric", "scale-free"):
        rows += _graph_rows(x, classes, kind)
        print(f"  {kind}: done", flush=True)
    return rows


def on_graphs(x: Array, classes: Labels, kind: str, starts: int, graphs: int) -> list[Run]:
    """Every start on every graph, features moved into hubs."""
    found = []
    for seed in range(graphs):
        rng = np.random.default_rng(seed)
        order = rng.permutation(8) if kind == "cycle" and seed else np.arange(8)
        parties, graph = columns_of(x[:, order], 8), graph_of(kind, seed)
        found += [_mixed(parties, classes, fc.Tree(graph), 1, start) for start in range(starts)]
    return found


def _graph_rows(x: Array, classes: Labels, kind: str) -> list[dict[str, Cell]]:
    found = on_graphs(x, classes, kind, STARTS, GRAPHS)
    graphs = [graph_of(kind, seed) for seed in range(GRAPHS)]
    blocks = [len(hub.members) for graph in graphs for hub in hubs(graph, 1)]
    paper = fc.Metropolis(graphs[0], rounds=100)
    gossiped = [_mixed(columns_of(x, 8), classes, paper, 1, 0)]
    width = f", blocks of {min(blocks)} to {max(blocks)}"
    return [
        _row(f"VP, 1 hop, {kind}{width}", found, kind),
        _row(f"  100 rounds of Metropolis; first graph and start, {kind}", gossiped),
        _row(f"  the same by a tree, {kind}", found[:1]),
    ]


def _mixed(
    parties: fc.Federation, classes: Labels, how: fc.Hub | fc.Tree | fc.Metropolis, hops: int,
    start: int,
) -> Run:  # fmt: skip
    model = fc.VerticalGaussianMixture(2, summation=how, hops=hops, random_state=start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.set_params(init_params="random_from_data" if start % 2 else "k-means++").fit(parties)
    return _figures(model.labels_[parties.names[0]], classes, model.lower_bound_)


def clustered(
    parties: fc.Federation, classes: Labels, start: int, standardise: bool = False
) -> Run:
    """K-means of parties."""
    model = fc.VerticalKMeans(2, standardise=standardise, random_state=start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(parties)
    return _figures(model.labels_[parties.names[0]], classes, None)


def _figures(found: Labels, classes: Labels, bound: float | None) -> Run:
    right = float((found == classes).mean())
    return 100 * max(right, 1 - right), float(adjusted_rand_score(classes, found)), bound


def _row(title: str, runs: Sequence[Run], paper: str = "") -> dict[str, Cell]:
    accuracy, rand, bounds = zip(*runs, strict=True)
    known = [b for b in bounds if b is not None]
    return {
        "": title,
        "runs": len(runs),
        "accuracy, %": between(accuracy, 1),
        "median": round(float(np.median(accuracy)), 1),
        "paper": f"{PAPER[paper]}" if paper in PAPER else "",
        "adjusted Rand": between(rand, 3),
        "log-likelihood": between(known, 3) if known else "",
    }


def between(values: Sequence[float], digits: int) -> str:
    """Least to largest."""
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
