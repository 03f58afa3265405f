"""Table 1: one place, each party alone, and one circuit of parties that keep their rows.

    python -m benchmarks.run federated

"centralised" is LearnSPN on all training rows, "as many circuits" mixes as many of them as FedPC
does by default (two, of small sets four); "by class" learns a circuit of every class, which is
what FedPC does with the rows of a party that knows the label, on a federation of one party; "each
alone" is the mean over parties of LearnSPN on own rows. Hybrid parties hold 60 % of the rows each,
both of them a good third of all: "hybrid's common rows" is LearnSPN on these. "density" is FedPC
without a target, for rows split with a round of EM over all parties' rows. Test rows are read for
the table only.

Times are of training. "cpu" adds up all parties; "slowest" is the slowest party and the coordinator
in CPU seconds, over centralised in CPU seconds: parties with a core each. "wall" is measured: the
process engine on this machine's cores over centralised in this process, first seed, least of three.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated import mnist, weights
from benchmarks.federated.clock import Stopwatch
from benchmarks.federated.scores import macro_f1, spread
from benchmarks.federated.sets import SETS, SPLITS, Data, halves
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.engines.outcome import Engine

SEEDS = range(5, 10)  # others than those that settings were tried out with
WALLS = 3
MOST = {"credit": 40_000}  # rows of a set, to learn from and to test
TESTED = 5_000  # rows to test, at most
SMALL = 2_000  # rows to learn from: FedPC mixes four circuits, not two
CENTRAL = "centralised, LearnSPN"
BOTH = "centralised, hybrid's common rows"


@dataclass(slots=True)
class Scores:
    """One row of the table over seeds."""

    likelihood: list[float] = field(default_factory=list)
    macro: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    slowest: list[float] = field(default_factory=list)

    def add(self, model: fc.Model, data: Data, watch: Stopwatch) -> None:
        asked = model.collect() if isinstance(model, fc.FedPC) else model
        self.likelihood.append(asked.score(data.test))
        self.macro.append(macro_f1(asked, data))
        self.cpu.append(watch.total)
        self.slowest.append(watch.slowest)


def run(sets: Sequence[str] = tuple(SETS), seeds: Sequence[int] = SEEDS) -> list[Json]:
    torch.set_num_threads(1)
    results: list[Json] = []
    for name in sets:
        try:
            rows = _table(name, seeds)
        except fc.errors.DatasetError as error:
            print(f"  {name} left out: {error}")
            continue
        print(f"\n{name}: mean over test rows, ± deviation over seeds")
        print_table(rows)
        results += [{"table": "splits", "set": name, **row} for row in rows]
    return results + mnist.run() + weights.run(sets, seeds)


def _table(name: str, seeds: Sequence[int]) -> list[dict[str, Cell]]:
    found: dict[str, Scores] = {}
    walls: dict[str, float] = {}
    for seed in seeds:
        data = halves(name, seed, MOST.get(name))
        data = replace(data, test=data.test.rows(slice(0, TESTED)))
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # parties with few rows of a class
            for title, model, watch in _models(data):
                found.setdefault(title, Scores()).add(model, data, watch)
            _alone(data, found.setdefault("each party alone, horizontal", Scores()))
            if seed == seeds[0]:
                walls = _walls(data)
        print(f"  {name}, seed {seed}: done", flush=True)
    return [_row(t, s, found[CENTRAL], walls.get(t)) for t, s in found.items()]


def _models(data: Data) -> Iterator[tuple[str, fc.Model, Stopwatch]]:
    """Title, learned model and its times."""
    whole = fc.Federation({"all": data.train}, allow_collect=True)
    spn = fc.LearnSPN(random_state=data.seed)
    mixture = fc.MixtureOfProducts(50, random_state=data.seed)
    yield CENTRAL, *_timed(partial(_fit_here, spn, data.train))
    several = fc.LearnSPN(ensemble=4 if len(data.train) < SMALL else 2, random_state=data.seed)
    yield "centralised, as many circuits", *_timed(partial(_fit_here, several, data.train))
    yield "mixture of 50 products", *_timed(partial(_fit_here, mixture, data.train))
    few = fc.LearnSPN(random_state=data.seed)
    yield BOTH, *_timed(partial(_fit_here, few, _held_by_both(data)))
    own = fc.FedPC(target=data.target, random_state=data.seed)
    yield "centralised, by class", *_timed(partial(_fit, own, whole))
    for split, cut in SPLITS.items():
        federation = cut(data)
        rounds = 1 if split == "horizontal" else 0
        model = fc.FedPC(target=data.target, random_state=data.seed)
        yield f"FedPC, {split}", *_timed(partial(_fit, model, federation))
        model = fc.FedPC(refine=rounds, validation=0.0, random_state=data.seed)
        yield f"FedPC, {split}, density", *_timed(partial(_fit, model, federation))


def _held_by_both(data: Data) -> fc.Table:
    first, second = (np.asarray(p.table.row_ids, np.int64) for p in SPLITS["hybrid"](data))
    return data.train.rows(np.intersect1d(first, second))


def _fit(model: fc.FedPC, federation: fc.Federation, engine: str | Engine) -> fc.FedPC:
    return model.fit(federation, engine=engine)


def _fit_here(model: fc.Model, table: fc.Table, watch: Stopwatch) -> fc.Model:
    found: fc.Model = model.fit(table)
    return found


def _timed(fit: Callable[[Stopwatch], fc.Model]) -> tuple[fc.Model, Stopwatch]:
    """A model with its times; what needs no engine counts as one party."""
    watch, begin = Stopwatch(), time.process_time()
    model = fit(watch)
    if not watch.seconds:
        watch.seconds["all"] = time.process_time() - begin
    return model, watch


def _alone(data: Data, scores: Scores) -> None:
    each = Scores()
    for party in SPLITS["horizontal"](data):
        spn = fc.LearnSPN(random_state=data.seed)
        model, watch = _timed(partial(_fit_here, spn, party.table))
        each.add(model, data, watch)
    scores.likelihood.append(float(np.mean(each.likelihood)))
    scores.macro.append(float(np.mean(each.macro)))
    scores.cpu.append(sum(each.cpu))
    scores.slowest.append(max(each.slowest))


def _walls(data: Data) -> dict[str, float]:
    """Wall time of the process engine over that of LearnSPN in this process."""
    spn = fc.LearnSPN(random_state=data.seed)
    cases: dict[str, Callable[[], object]] = {CENTRAL: lambda: spn.fit(data.train)}
    for split, cut in SPLITS.items():
        model, federation = fc.FedPC(target=data.target, random_state=data.seed), cut(data)
        cases[f"FedPC, {split}"] = partial(_fit, model, federation, "process")
    least = dict.fromkeys(cases, np.inf)
    for _ in range(WALLS):  # in turn: others on the machine disturb all alike
        for title, fit in cases.items():
            begin = time.perf_counter()
            fit()
            least[title] = min(least[title], time.perf_counter() - begin)
    return {title: least[title] / least[CENTRAL] for title in cases}


def _row(title: str, scores: Scores, central: Scores, wall: float | None) -> dict[str, Cell]:
    seeds = len(scores.cpu)
    reference = float(np.mean(central.likelihood[:seeds]))
    return {
        "": title,
        "log-likelihood": spread(scores.likelihood),
        "above centralised": float(np.mean(scores.likelihood)) - reference,
        "macro-F1": spread(scores.macro),
        "cpu s": float(np.mean(scores.cpu)),
        "slowest, of centralised": float(
            np.mean(scores.slowest) / np.mean(central.slowest[:seeds])
        ),
        "wall, of centralised": "" if wall is None else wall,
        "seeds": seeds,
    }
