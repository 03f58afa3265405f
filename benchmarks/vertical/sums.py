"""Rounds and bytes of one sum over 100 parties, for the same error.

A sum of an E-step: each party adds (K − 1) M + 1 numbers. Every way to add up is run on the paper's
graphs with M = 100 rows, where the ledger counts messages and bytes and the error is measured at
the party that is farthest off, relative to N × the largest |value|. The number of messages does not
depend on M, so the bytes of 150,000 rows follow: 8 for each number more. Hub and tree are also run
with 150,000 rows, which says whether that holds. "Rounds": messages over links and directions for
gossip; for a tree twice its depth.
"""

import numpy as np

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from benchmarks.vertical.clusters import between
from benchmarks.vertical.sets import COMPONENTS, DENSE, PARTIES, SPARSE, geometric, names_of
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.sums.collectives import Summation

FEW, MANY = 100, 150_000  # rows
ERROR = 1e-6
GRAPHS = {"dense": (DENSE, 2), "sparse": (SPARSE, 2), "cycle": (PARTIES, 1)}  # links, how many
NAMES = names_of(PARTIES)


def run() -> list[Json]:
    rows: list[dict[str, Cell]] = []
    for kind, (links, count) in GRAPHS.items():
        graphs = [_graph(kind, links, seed) for seed in range(count)]
        rows += [{"graph": kind, "links": links, **own} for own in _ways(graphs)]
        print(f"  {kind}: done", flush=True)
    rows.append({"graph": "server", "links": PARTIES, **_row("Hub", [_measured(fc.Hub())])})
    print(f"\nOne sum over {PARTIES} parties, {COMPONENTS} components; bytes of {MANY:,} rows")
    print_table(rows)
    tree = fc.Tree(_graph("dense", DENSE, 0))
    for how in (fc.Hub(), tree):
        _, ledger = summed(how, MANY)
        foretold = scaled(_measured(how)[2])
        print(f"{type(how).__name__}: {ledger.bytes:,} bytes counted, {foretold:,} foretold")
        assert abs(ledger.bytes - foretold) <= 16 * len(ledger)  # lengths have more digits
    return [{"table": "sums", **row} for row in rows]


def _graph(kind: str, links: int, seed: int) -> fc.Topology:
    if kind == "cycle":
        return fc.Topology.of("cycle", NAMES)
    return geometric(PARTIES, links, seed)


def _ways(graphs: list[fc.Topology]) -> list[dict[str, Cell]]:
    rows = [_row("Tree", [_measured(fc.Tree(g)) for g in graphs])]
    rows.append(_row("Chebyshev, 1e-6", [_measured(fc.Chebyshev(g, ERROR)) for g in graphs]))
    paper = [_measured(fc.Metropolis(g, rounds=100)) for g in graphs]
    rows.append(_row("Metropolis, 100 rounds (paper)", paper))
    if len(graphs) == 1:  # thousands of rounds: exact counts, not run
        cost = fc.Metropolis(graphs[0], ERROR).cost(NAMES)
        ledger = _of_same_messages(paper[0][2], cost.messages)
        return [*rows, _row("Metropolis, 1e-6 (not run)", [(cost.rounds, None, ledger)])]
    return [*rows, _row("Metropolis, 1e-6", [_measured(fc.Metropolis(g, ERROR)) for g in graphs])]


Measured = tuple[int, float | None, Ledger]  # rounds, error, what crossed


def _measured(how: Summation) -> Measured:
    error, ledger = summed(how, FEW)
    cost = how.cost(how.members(NAMES))  # type: ignore[attr-defined]
    assert cost.messages == len(ledger)
    return cost.rounds, error, ledger


def summed(how: Summation, rows: int) -> tuple[float, Ledger]:
    """The largest error of any party, and what crossed."""
    rng = np.random.default_rng(0)
    members = how.members(NAMES)
    size = (COMPONENTS - 1) * rows + 1
    values = {m: rng.normal(size=size) if m in NAMES else np.zeros(size) for m in members}
    exact = np.sum(list(values.values()), axis=0)
    top = max(float(np.abs(v).max()) for v in values.values())
    outcome = memory.run(
        {m: Program(_one, {"how": how, "me": m, "value": v}) for m, v in values.items()}
    )
    for trouble in outcome.lost.values():
        raise trouble
    off = max(float(np.abs(found - exact).max()) for found in outcome.results.values())
    return off / (PARTIES * top), outcome.ledger


def _one(how: Summation, me: str, value: Array) -> Flow[Array]:
    return (yield from how.at(me, how.members(NAMES)).sum("terms", value))


def _of_same_messages(ledger: Ledger, count: int) -> Ledger:
    return Ledger([ledger.entries[0]] * count)


def scaled(ledger: Ledger) -> int:
    """Bytes of as many messages with the numbers of all rows."""
    return ledger.bytes + 8 * (COMPONENTS - 1) * (MANY - FEW) * len(ledger)


def _row(title: str, runs: list[Measured]) -> dict[str, Cell]:
    errors = [error for _, error, _ in runs if error is not None]
    return {
        "": title,
        "graphs": len(runs),
        "rounds": between([r for r, _, _ in runs], 0),
        "messages": between([len(ledger) for _, _, ledger in runs], 0),
        "largest error": f"{max(errors):.1e}" if errors else "",
        "GB": between([scaled(ledger) / 1e9 for _, _, ledger in runs], 2),
    }
