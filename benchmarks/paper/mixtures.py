"""Valdeira, Soares and Xavier (2022), Decentralized EM from Datasets Distributed by Features."""

from __future__ import annotations

from functools import partial

import numpy as np

import fedcircuits as fc
from benchmarks.paper.circuits import quiet
from benchmarks.paper.items import Item, Line, Missing, Paper, number
from benchmarks.paper.pieces import kept
from benchmarks.vertical import clusters, trajectories
from benchmarks.vertical.sets import columns_of, htru2

KINDS = {"cycle": "85.7", "geometric": "84.4", "scale-free": "87.2"}


def table_1(full: bool) -> list[Line]:
    x, classes = htru2()
    starts, graphs = (clusters.STARTS, clusters.GRAPHS) if full else (1, 1)
    lines = []
    with quiet():
        for row in clusters.one_place(x, classes, starts):
            title, found = str(row[""]), str(row["accuracy, %"])
            own = {"paper": str(row["paper"] or "")}
            plain = title.startswith("always")
            other = {"baseline": found} if plain else {"peers": f"scikit-learn {found}"}
            lines.append(Line(title, **own, **other))
        means = [clusters.clustered(columns_of(x, 8), classes, s)[0] for s in range(starts)]
        lines.append(Line("k-means of 8 parties", "", clusters.between(means, 1)))
        for kind, theirs in KINDS.items():
            work = partial(clusters.on_graphs, x, classes, kind, starts, graphs)
            found = [run[0] for run in kept(f"mixture · {kind}", work)]
            lines.append(Line(f"mixture of 8 parties, {kind} graph", theirs,
                              clusters.between(found, 1)))  # fmt: skip
    return lines


def figure_5(full: bool) -> list[Line]:
    rows = trajectories.ROWS if full else 3_000
    lines = []
    with quiet():
        runs = trajectories.DENSE_RUNS if full else 1
        found = kept("mixture · trees", partial(trajectories.along_trees, rows, runs))
    for kind, own in found.items():
        for title, several in own.items():
            line = np.mean(several, axis=0)
            text = f"from {number(line[1])} to {number(line[-1])}"
            falls = "" if (np.diff(line) > -1e-9).all() else ", falls on the way"
            pooled = title == trajectories.FULL
            told = {"peers": f"scikit-learn {text}"} if pooled else {"ours": text + falls}
            lines.append(Line(f"{kind} graph, {title}", "rises, EM above" if pooled else "rises",
                              **told))  # fmt: skip
    return lines


def figure_6(full: bool) -> list[Line]:
    """Five features on a ring of five parties; HTRU2 stands in for the queues."""
    x, _ = htru2()
    values = (x[:, :5] - x[:, :5].mean(0)) / x[:, :5].std(0)
    lines = []
    pooled, ours, alone = [], [], []
    with quiet():
        for seed in range(5):
            own = values[np.random.default_rng(seed).choice(len(values), 630, replace=False)]
            for found, parties, hops in ((ours, 5, 1), (alone, 5, 0), (pooled, 1, 0)):
                names = tuple(f"party {i}" for i in range(parties))
                how = fc.Tree(fc.Topology.of("cycle", names)) if parties > 1 else fc.Hub()
                model = fc.VerticalGaussianMixture(3, summation=how, hops=hops, random_state=seed)
                found.append(model.fit(columns_of(own, parties)).lower_bound_)
    lines.append(Line("EM in one place", "above", number(pooled)))
    lines.append(Line("ring of 5 parties, 1 hop", "below", number(ours)))
    base = "0 hops, each column its own block"
    lines.append(Line("ring of 5 parties, 0 hops", "", number(alone), "", base))
    return lines


PAPER = Paper(
    "mixture",
    "Mixtures over columns of parties (Valdeira, Soares and Xavier, 2022)",
    [
        Item("mixture-table-1", "Table 1: clusters of pulsar candidates",
             "Accuracy in per cent, from minimum to maximum over starts and graphs. "
             "Sums use trees, so they are exact.", table_1),
        Item("mixture-figure-5", "Figure 5: log-likelihood of 100 parties",
             "Per row, after the first update and after the last of 12; the paper shows curves "
             "without numbers.", figure_5),
        Item("mixture-figure-6", "Figure 6: five features on a ring",
             "Log-likelihood per row of 630 rows, five draws. The paper's queues are not public: "
             "the first five features of HTRU2, standardised, replace them.", figure_6),
    ],
    [
        Missing("Figure 6 on the queues of a public service", "the rows are not public"),
        Missing("Figures 1 to 4 and 7", "drawings of the method and of graphs; fc.Topology.of "
                "creates such graphs"),
    ],
)  # fmt: skip
