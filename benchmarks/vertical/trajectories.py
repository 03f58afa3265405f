"""Log-likelihoods of the paper's synthetic set-up against EM on pooled columns, with its picture.

100 parties with a feature each, 3 components, 150,000 rows; dense graphs (average over 3 runs that
differ in graph, rows and start) and a sparse one (rows and start of the first of these runs). The
paper does not say how many hops it allows: both 0 and 1 are shown. These sums go along trees, so
they are those of EM with blocks in one place. EM on pooled columns is scikit-learn's with full
covariances from the same means.

Gossip sends 200 to 1,500 times as much, so it runs with 500 rows of the same set: by a tree, by
Chebyshev to 1e-6 and by the paper's 100 rounds of Metropolis, each from the same start. "Said" is
the log-likelihood per row that the first party ends with, "true" that of the model the parties hold
then, asked of all of them by exact sums.
"""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from benchmarks.vertical.sets import (
    COMPONENTS,
    DENSE,
    PARTIES,
    SPARSE,
    columns_of,
    geometric,
    synthetic,
)
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import hubs

PICTURE = Path(__file__).parents[2] / "docs" / "vertical.png"
ROWS, FEW = 150_000, 500
ITERATIONS = 12
DENSE_RUNS = 3
Line = list[float]  # log-likelihood per row after the start and after every update


def run(picture: Path = PICTURE, rows: int = ROWS) -> list[Json]:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = along_trees(rows)
        gossip = {kind: _gossiped(links) for kind, links in (("dense", DENSE), ("sparse", SPARSE))}
    print(f"\nLog-likelihood per row, {rows:,} rows, {PARTIES} parties")
    means = {
        k: {t: np.mean(own, axis=0).tolist() for t, own in v.items()} for k, v in lines.items()
    }
    print_table([_line(kind, t, own) for kind, v in means.items() for t, own in v.items()])
    print(f"\nGossip, {FEW:,} rows")
    table = [_gossip_row(kind, t, own, v) for kind, v in gossip.items() for t, own in v.items()]
    print_table(table)
    _draw(means, gossip, rows, picture)
    print(f"drawn: {picture}")
    found: list[Json] = [{"table": "gossip", **row} for row in table]
    for kind, own in lines.items():
        for title, several in own.items():
            runs: list[Json] = [[*line] for line in several]
            found.append({"table": "trajectories", "graph": kind, "": title, "runs": runs})
    return found


def _line(kind: str, title: str, own: Line) -> dict[str, Cell]:
    falls = [b - a for a, b in pairwise(own)]
    kept = {f"{t}": own[t] for t in (0, 1, 2, 4, 8, len(own) - 1)}
    return {"graph": kind, "": title, **kept, "least step": f"{min(falls):.1e}"}


# ---------------------------------------------------------------------- all rows, along trees


Lines = dict[str, list[Line]]
FULL, ALONE, HUBS = "EM, full covariances", "0 hops, blocks of 1", "1 hop, one block per hub"


def along_trees(rows: int, runs: int = DENSE_RUNS) -> dict[str, Lines]:
    """By graph and title a line a run; what does not depend on the graph is run once."""
    dense: Lines = {FULL: [], ALONE: [], HUBS: []}
    sparse: Lines = {}
    for seed in range(runs):
        x = synthetic(rows, PARTIES, seed)
        start = x[np.random.default_rng(seed).choice(rows, COMPONENTS, replace=False)]
        dense[FULL].append(_pooled(x, start))
        parties, graph = columns_of(x, PARTIES), geometric(PARTIES, DENSE, seed)
        dense[ALONE].append(_bounds(_model(start, fc.Tree(graph), 0).fit(parties)))
        dense[HUBS].append(_in_hubs(start, graph, parties))
        if not seed:
            few = geometric(PARTIES, SPARSE, seed)
            sparse = {FULL: dense[FULL][:], ALONE: dense[ALONE][:]}
            sparse[HUBS] = [_in_hubs(start, few, parties)]
    return {"dense": dense, "sparse": sparse}


def _in_hubs(start: Array, graph: fc.Topology, parties: fc.Federation) -> Line:
    line = _bounds(_model(start, fc.Tree(graph), 1).fit(parties))
    sizes = sorted((len(hub.members) for hub in hubs(graph, 1)), reverse=True)
    print(f"  {len(graph.edges)} links: done; hubs of {sizes}", flush=True)
    return line


def _model(start: Array, how: Summation, hops: int) -> fc.VerticalGaussianMixture:
    model = fc.VerticalGaussianMixture(COMPONENTS, tol=0.0, max_iter=ITERATIONS, summation=how)
    model.set_params(means_init=start, hops=hops, random_state=0)
    return model


def _bounds(model: fc.VerticalGaussianMixture) -> Line:
    return [*model.lower_bounds_, model.lower_bound_]


def _pooled(x: Array, start: Array) -> Line:
    """scikit-learn keeps only what it saw before the last update, so it goes step by step."""
    whole = np.linalg.inv(np.cov(x.T))
    model = GaussianMixture(COMPONENTS, tol=0.0, max_iter=1, warm_start=True, random_state=0)
    model.set_params(means_init=start, weights_init=np.full(COMPONENTS, 1 / COMPONENTS))
    model.set_params(precisions_init=np.stack([whole] * COMPONENTS))
    found = []
    for _ in range(ITERATIONS):
        model.fit(x)
        found.append(float(model.lower_bound_))
    return [*found, float(model.score(x))]


# ---------------------------------------------------------------------- few rows, by gossip


Ended = tuple[Line, float, float]  # what was said, the true log-likelihood, bytes


def _gossiped(links: int) -> dict[str, Ended]:
    x, graph = synthetic(ROWS, PARTIES, 0)[:FEW], geometric(PARTIES, links, 0)
    start = x[np.random.default_rng(0).choice(FEW, COMPONENTS, replace=False)]
    parties, found = columns_of(x, PARTIES), {}
    ways: dict[str, Summation] = {
        "Tree": fc.Tree(graph),
        "Chebyshev, 1e-6": fc.Chebyshev(graph, 1e-6),
        "Metropolis, 100 rounds": fc.Metropolis(graph, rounds=100),
    }
    for title, how in ways.items():
        model = _model(start, how, 0).fit(parties)
        true = model.score(fc.Table.of(x, names=[f"x{j}" for j in range(PARTIES)]))
        found[title] = (_bounds(model), true, float(model.ledger_.bytes))
        print(f"  {links} links, {title}: done", flush=True)
    return found


def _gossip_row(kind: str, title: str, own: Ended, others: dict[str, Ended]) -> dict[str, Cell]:
    said, true, sent = own
    off = np.abs(np.array(said) - np.array(others["Tree"][0])).max()
    return {
        "graph": kind,
        "": title,
        "said at the end": said[-1],
        "true": true,
        "farthest from the tree's": f"{off:.1e}",
        "times the tree's bytes": sent / others["Tree"][2],
    }


# ---------------------------------------------------------------------- the picture


def _draw(
    lines: dict[str, dict[str, Line]], gossip: dict[str, dict[str, Ended]], rows: int, path: Path
) -> None:
    figure = Figure(figsize=(10, 3.4), dpi=150)
    axes = figure.subplots(1, 3)
    runs = {"dense": f"mean of {DENSE_RUNS} runs", "sparse": "1 run"}
    for axis, (kind, own) in zip(axes, lines.items(), strict=False):
        for (title, line), style in zip(own.items(), ("k-", "C0o-", "C1s-"), strict=True):
            axis.plot(range(1, len(line)), line[1:], style, ms=3, lw=1.2, label=title)
        axis.set_title(f"{kind} graph, {rows:,} rows, {runs[kind]}", fontsize=8)
    axes[0].set_ylabel("log-likelihood per row", fontsize=8)
    _differences(axes[2], gossip)
    for axis in axes:
        axis.set_xlabel("updates", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=6.5, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _differences(axis: Axes, gossip: dict[str, dict[str, Ended]]) -> None:
    for kind, style in (("dense", "--"), ("sparse", "-")):
        exact = np.array(gossip[kind]["Tree"][0])
        for title, colour in (("Chebyshev, 1e-6", "C2"), ("Metropolis, 100 rounds", "C3")):
            off = np.abs(np.array(gossip[kind][title][0]) - exact)
            axis.plot(np.maximum(off, 1e-16), style, color=colour, label=f"{title}, {kind}")
    axis.set_yscale("log")
    axis.set_title(f"gossip against the tree, {FEW:,} rows", fontsize=8)
    axis.set_ylabel("difference of the log-likelihood", fontsize=8)
