"""Time and traffic of private forests on nltcs with 10 ms for every message, beside the paper's.

    python -m benchmarks.private.times --parties 3 5 --weights 24

"computed" adds 10 ms for every round on the longest way through the messages to the CPU time of
the parties on it; "slept" is one run in processes whose messages take 10 ms (clock.py says how).
Training is what comes on top of local learning, which is left out: it takes the same time without
secrets. Preparation is part of the time of questions. The paper's figures are from its table, with
its own machines.
"""

from __future__ import annotations

import argparse

import numpy as np

import fedcircuits as fc
from benchmarks.private.clock import Computed, Slept
from benchmarks.private.forests import parties_of, tables
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.privacy.operations.powers import compile_kernels

PARTIES = (3, 5, 10, 12)
WEIGHTS = {24: 8, 100: 33}  # units of each of three structures, as in the paper
ROWS = (10, 1000)
PAPER = {  # seconds at 10 ms, 24 parameters: training and ten inferences
    ("training", 3): 380.0,
    ("training", 5): 597.0,
    ("training", 12): 1515.0,
    ("10 rows", 3): 1306.0,
    ("10 rows", 10): 4601.0,
}
Line = dict[str, Cell]


def forest(units: int, combine: str) -> PrivateForest:
    """EM is cut short: it is no part of what is timed."""
    return PrivateForest(3, units=units, combine=combine, max_iter=10, random_state=0)  # type: ignore[arg-type]


def trained(
    federation: fc.Federation, weights: int, combine: str, units: int | None = None
) -> tuple[PrivateForest, Computed, Line]:
    engine = Computed()
    model = forest(units or WEIGHTS[weights], combine).fit(federation, engine=engine)
    step = "training" if combine == "average" else f"training, {combine}"
    return model, engine, _line(engine, len(federation), weights, step)


def _line(engine: Computed, parties: int, weights: int, step: str) -> Line:
    return {
        "parties": parties,
        "weights": weights,
        "step": step,
        "rounds": engine.rounds,
        "computed s": engine.seconds,
        "CPU s per party": engine.busiest,
        "MB per party": max(engine.sent.values()) / 1e6,
        "paper s": PAPER.get((step, parties)) if weights == 24 else None,
    }


def asked(model: PrivateForest, rows: fc.Table, weights: int) -> Line:
    """Masks and answer, one after the other."""
    engine, parties = model._engine, len(model.views_)
    assert isinstance(engine, Computed)
    model.prepare(len(rows))
    ahead = _line(engine, parties, weights, f"{len(rows):,} rows")
    model.connect("clinic").score_samples(rows)
    online = _line(engine, parties, weights, f"{len(rows):,} rows")
    both = ("rounds", "computed s", "CPU s per party", "MB per party")
    added = {name: _number(ahead[name]) + _number(online[name]) for name in both}
    return {**online, **added, "rounds": int(added["rounds"]), "online s": online["computed s"]}


def _number(value: Cell) -> float:
    assert isinstance(value, int | float)
    return value


def slept(federation: fc.Federation, weights: int, before: Computed, rows: fc.Table) -> list[Line]:
    """The same in processes; local learning is taken from the computed run."""
    engine = Slept(kept=before.kept)
    model = forest(WEIGHTS[weights], "average").fit(federation, engine=engine)
    common: Line = {"parties": len(federation), "weights": weights}
    lines: list[Line] = [{**common, "step": "training", "slept s": engine.seconds}]
    for count in ROWS:
        model.prepare(count)
        ahead = engine.seconds
        model.connect("clinic").score_samples(rows.rows(np.arange(count)))
        both: Line = {"slept s": ahead + engine.seconds, "online s": engine.seconds}
        lines.append({**common, "step": f"{count:,} rows", **both})
    return lines


def run(parties: tuple[int, ...] = PARTIES, weights: tuple[int, ...] = (24, 100)) -> list[Json]:
    compile_kernels()
    train, test = tables("nltcs")
    computed: list[Line] = []
    measured: list[Line] = []
    for count in parties:
        federation = parties_of(train, count, "iid", 0)
        for number in weights:
            model, engine, line = trained(federation, number, "average")
            learned = Computed(kept=engine.kept)
            computed.append(line)
            for rows in _rows(count, number):
                computed.append(asked(model, test.rows(np.arange(rows)), number))
            if count == 3:
                computed.append(trained(federation, number, "concatenate")[2])
                measured += slept(federation, number, learned, test)
    print("\nnltcs, 10 ms per message: computed\n")
    print_table(computed)
    if measured:
        print("\nthe same in processes that sleep\n")
        print_table(measured)
    return [{"computed": [dict(c) for c in computed], "slept": [dict(m) for m in measured]}]


def _rows(parties: int, weights: int) -> tuple[int, ...]:
    """A thousand rows among ten parties and more are 9 GB of messages with 100 weights."""
    return ROWS if parties <= 5 or weights <= 24 else ROWS[:1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parties", nargs="+", type=int, default=list(PARTIES))
    parser.add_argument("--weights", nargs="+", type=int, default=list(WEIGHTS))
    chosen = parser.parse_args()
    run(tuple(chosen.parties), tuple(chosen.weights))


if __name__ == "__main__":
    main()
