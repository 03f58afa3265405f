"""Heilmann and others (2025), N-Parties Private Structure and Parameter Learning for SPNs."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import numpy as np

import fedcircuits as fc
from benchmarks.paper.circuits import quiet
from benchmarks.paper.items import Item, Line, Missing, Paper, listed, number
from benchmarks.paper.pieces import kept, some
from benchmarks.private import forests, times
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.methods.private_forest.structures import ForestShape, Weighting
from fedcircuits.privacy.operations.powers import compile_kernels

SETS = ("nltcs", "plants", "baudio", "bnetflix", "tretail")
UNITS = {24: 8, 40: 13, 60: 20, 100: 33}  # weights of the paper: units of each of three structures
SPLITS = ("iid", "Dir(10)", "Dir(0.5)", "clustered")
PAPER_LIKELIHOODS = {  # Tables 4 and 5, 100 weights: by set and parties the four splits
    ("nltcs", 3): ("−6.94", "−7.33", "−7.61", "−9.15"),
    ("nltcs", 5): ("−7.97", "−8.13", "−8.85", "−9.43"),
    ("plants", 3): ("−15.49", "−15.61", "−19.00", "−27.84"),
    ("plants", 5): ("−15.78", "−16.41", "−19.84", "−30.92"),
    ("baudio", 3): ("−40.69", "−40.75", "−42.73", "−46.01"),
    ("baudio", 5): ("−41.12", "−41.12", "−42.15", "−47.58"),
    ("bnetflix", 3): ("−57.67", "−57.65", "−59.77", "−60.41"),
    ("bnetflix", 5): ("−57.90", "−58.03", "−59.77", "−61.29"),
    ("tretail", 3): ("−11.02", "−11.04", "−11.21", "−11.33"),
    ("tretail", 5): ("−11.05", "−11.09", "−11.33", "−11.38"),
}
ONE_PLACE = {"nltcs": "−6.03", "plants": "−14.40", "baudio": "−40.27", "bnetflix": "−57.36",
             "tretail": "−10.86"}  # fmt: skip
BY_WEIGHTS = {  # Table 4, three parties, iid
    "nltcs": {24: "−7.08", 40: "−7.02", 60: "−7.04", 100: "−6.94"},
    "bnetflix": {24: "−59.14", 40: "−58.55", 60: "−58.07", 100: "−57.67"},
}
TRAINING = {3: 380, 4: 485, 5: 597, 6: 731, 7: 848, 8: 985, 9: 1078, 10: 1228, 11: 1350, 12: 1515}
CRYPTEN = {3: 1873, 4: 2325, 5: 3494, 10: 10923}
BY_SIZE = {24: (380, 115), 40: (603, 180), 60: (888, 269), 100: (1625, 442)}  # s, MB of a member
INFERENCE = {3: (1306, 433), 5: (2238, 577), 10: (4601, 938)}
SEEDS = range(5)
CLUSTERED = "a party has too few rows of a cluster"


def _learned(
    name: str, parties: int, split: str, weights: int, full: bool, **rule: Any
) -> list[float]:
    train, test = forests.tables(name)

    def one(seed: int) -> float:
        federation = forests.parties_of(train, parties, split, seed)
        model = PrivateForest(3, units=UNITS[weights], random_state=seed, **rule).fit(federation)
        return model.open_parameters().score(test)

    about = f"forest · {name} · {parties} · {split} · {weights} · {rule}"
    return [kept(f"{about} · {seed}", partial(one, seed)) for seed in some(SEEDS, full)]


def _ours(name: str, parties: int, split: str, weights: int, full: bool) -> str:
    found: dict[str, list[float]] = {}
    for rule, options in (("together", forests.RULES["together"]), ("em", forests.RULES["em"])):
        try:
            found[rule] = _learned(name, parties, split, weights, full, **options)
        except fc.FedcircuitsError as error:
            print(f"  {name}, {parties}, {split}, {rule}: {error}")
    return listed(found) or CLUSTERED


def _plain(name: str) -> float:
    train, test = forests.tables(name)
    return fc.MixtureOfProducts(1, random_state=0).fit(train).score(test)


def tables_4_and_5(full: bool) -> list[Line]:
    lines = []
    with quiet():
        for name in SETS if full else SETS[:1]:
            train, test = forests.tables(name)
            shape = ForestShape(3, units=UNITS[100])
            found = [
                kept(f"forest · {name} · one place · {seed}",
                     partial(forests.central, train, test, shape, seed))
                for seed in some(SEEDS, full)
            ]  # fmt: skip
            base = f"independent columns {number(_plain(name))}"
            lines.append(Line(f"{name}, one place", ONE_PLACE[name], number(found), "", base))
            for parties in (3, 5) if full else (3,):
                for split, theirs in zip(SPLITS, PAPER_LIKELIHOODS[name, parties], strict=True):
                    ours = _ours(name, parties, split, 100, full)
                    lines.append(Line(f"{name}, {parties} parties, {split}", theirs, ours))
    return lines


def figures_3_and_4(full: bool) -> list[Line]:
    """Likelihood by the number of weights."""
    name, lines = ("bnetflix" if full else "nltcs"), []
    with quiet():
        base = f"independent columns {number(_plain(name))}"
        for weights in UNITS if full else (24, 100):
            for split in SPLITS if full else SPLITS[:1]:
                ours = _ours(name, 3, split, weights, full)
                paper = BY_WEIGHTS[name][weights] if split == "iid" else ""
                lines.append(Line(f"{name}, {weights} weights, {split}", paper, ours, "", base))
                base = ""
    return lines


def _trained(parties: int, weights: int) -> tuple[Any, Any, dict[str, Any]]:
    train, test = forests.tables("nltcs")
    federation = forests.parties_of(train, parties, "iid", 0)
    model, _, line = times.trained(federation, weights, "average", UNITS[weights])
    return model, test, line


def _timed(line: dict[str, Any]) -> str:
    return f"{line['computed s']:.2f} s, {line['rounds']} rounds, {line['MB per party']:.1f} MB"


def table_8(full: bool) -> list[Line]:
    compile_kernels()
    lines = []
    with quiet():
        for parties in TRAINING if full else (3, 5):
            _, _, line = _trained(parties, 24)
            theirs = f"CrypTen, in the paper {CRYPTEN[parties]:,} s" if parties in CRYPTEN else ""
            paper = f"{TRAINING[parties]:,} s"
            lines.append(Line(f"{parties} parties", paper, _timed(line), theirs))
    return lines


def table_7(full: bool) -> list[Line]:
    compile_kernels()
    lines = []
    with quiet():
        for weights in UNITS if full else (24, 100):
            seconds, megabytes = BY_SIZE[weights]
            _, _, line = _trained(3, weights)
            paper = f"{seconds:,} s, {megabytes} MB"
            lines.append(Line(f"{weights} weights", paper, _timed(line)))
    return lines


def table_1(full: bool) -> list[Line]:
    compile_kernels()
    lines = []
    with quiet():
        for parties in INFERENCE if full else (3,):
            seconds, megabytes = INFERENCE[parties]
            model, test, _ = _trained(parties, 24)
            line = times.asked(model, test.rows(np.arange(10)), 24)
            theirs = "CryptoSPN, in the paper 63 s, 440 MB" if parties == 3 else ""
            paper = f"{seconds:,} s, {megabytes} MB"
            lines.append(Line(f"{parties} parties, ten rows", paper, _timed(line), theirs))
    return lines


def figure_7(full: bool) -> list[Line]:
    """Rules for the weights of structures, by how long parties learn alone."""
    lines = []
    with quiet():
        for rounds in (20, 30, 40, 100, 300) if full else (20, 100):
            found = {
                rule: _learned("nltcs", 3, "iid", 24, full, max_iter=rounds, weighting=rule)
                for rule in get_args(Weighting)
            }  # fmt: skip
            lines.append(Line(f"at most {rounds} iterations", "drawn", listed(found, 3)))
    return lines


LATENCY = (
    "nltcs; 10 ms for every message on the critical path, added to the CPU time of the parties on "
    "it (without local learning, which takes the same time without secrets); the maximum that a "
    "party sends. The paper's figures are from its own machines; it has a manager, ours has none."
)
PAPER = Paper(
    "forest",
    "Private forests of circuits (Heilmann and others, 2025)",
    [
        Item("forest-tables-4-5-6", "Tables 4, 5 and 6: likelihood by split",
             "Mean log-likelihood of test rows, forests of 100 weights (99 here), learned on "
             "shares and opened at the end; Table 6, without secrets, is the same model here.",
             tables_4_and_5),
        Item("forest-figures-3-4", "Figures 3 and 4: likelihood by weights",
             "bnetflix in the paper, and here with FULL=1; nltcs otherwise.", figures_3_and_4),
        Item("forest-table-8", "Table 8 and Figure 5: training by parties", LATENCY, table_8),
        Item("forest-table-7", "Table 7 and Figure 6: training by weights", LATENCY, table_7),
        Item("forest-table-1", "Table 1: queries", LATENCY, table_1),
        Item("forest-figure-7", "Figure 7: weights of structures",
             "nltcs, three parties, 24 weights; the paper shows plots without numbers.",
             figure_7),
    ],
    [
        Missing("Table 2", "counts operations of the paper's own code; ours processes whole "
                "arrays at once, so its counts have no counterpart"),
        Missing("Table 3", "sizes of the data sets, nothing measured"),
        Missing("CrypTen and CryptoSPN in Tables 1 and 8", "the tables quote the paper's figures; "
                "the page of private forests compares CrypTen with ours on the same operations"),
        Missing("Figures 1 and 2", "drawings of the method"),
    ],
)  # fmt: skip
