"""One party that lies on shares: is the answer refused, or silently wrong?

The second of N parties changes one message after the other: it flips a bit of one number, at every
fourth byte in turn; replaces all bytes at random; reverses the order of the numbers; or replays the
message of an earlier run. A run is refused if it ends with an error, and silently wrong if its
answer differs by more than ``WRONG`` nats from the honest one. False inputs of a party's own, which
every party can supply, are not counted here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.attacks.federations import kinds
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.attacks.wire import Tap
from fedcircuits.errors import FedcircuitsError

WRONG = 1e-3
LIAR = "party 2"
BYTES = range(1, 64, 4)  # of a number; some have fewer
OWN = ("agree/plan", "agree/structure", "/shares", "average/counts")  # what it says of itself
OTHERS = ("random", "reversed", "replayed")
ROWS = np.arange(3)
Outcomes = dict[str, int]
Attack = Callable[[int, int], Outcomes]


def measures(seed: int) -> list[Measure]:
    found = []
    for title, attack in ATTACKS.items():
        for parties in (3, 4) if attack is of_training else (3, 4, 5):
            row = {"liar in": title, "parties": parties}
            counted: Outcomes = {}
            found.append(
                attempt("silently wrong", row, partial(wrong, attack, seed, parties, counted))
            )
            every = sum(counted.values())
            for name in ("refused", "lies"):
                share = {"refused": counted.get("refused", 0) / max(1, every), "lies": every}[name]
                found.append(Measure(name, row, float(share) if every else None))
    return found


def wrong(attack: Attack, seed: int, parties: int, counted: Outcomes) -> float:
    """The share of lies that nobody notices, and that change the answer."""
    counted |= attack(seed, parties)
    return counted["silently wrong"] / sum(counted.values())


def of_questions(seed: int, parties: int) -> Outcomes:
    """Every message of preparing and answering a question."""
    table = fc.Table.of(kinds(seed, 60 * parties, 6))
    tap = Tap()
    model = fc.PrivateForest(1, units=3, random_state=seed).fit(
        fc.split(table, parties), engine=tap
    )
    rows = table.rows(ROWS)

    def asked() -> Any:
        return model.connect("doctor").score_samples(rows)

    tap.runs.clear()
    honest = asked()
    return outcomes(tap, asked, honest)


def of_training(seed: int, parties: int) -> Outcomes:
    """One message of every kind of training: of rounds that repeat, the first and the last."""
    table = fc.Table.of(kinds(seed, 60 * parties, 4))
    split, tap = fc.split(table, parties), Tap()

    def trained() -> Any:
        model = fc.PrivateForest(1, units=2, random_state=seed).fit(split, engine=tap)
        return model.score_samples(table.rows(ROWS))

    honest = trained()
    return outcomes(tap, trained, honest, few=True)


def of_sums(seed: int, parties: int) -> Outcomes:
    table = fc.Table.of(kinds(seed, 60 * parties, 5))
    split, tap = fc.split(table, parties), Tap()

    def trained() -> Any:
        model = made(fc.ChowLiuTree, {"summation": fc.Secret()})
        return model.fit(split, engine=tap).score_samples(table.rows(ROWS))

    honest = trained()
    return outcomes(tap, trained, honest)


ATTACKS: dict[str, Attack] = {
    "PrivateForest, questions": of_questions,
    "PrivateForest, training": of_training,
    "ChowLiuTree(summation=Secret())": of_sums,
}


def outcomes(tap: Tap, run: Callable[[], Any], honest: Any, few: bool = False) -> Outcomes:
    earlier = {(to, tag): told for to, tag, told in tap.role(LIAR).sent}
    tags = list(dict.fromkeys(tag for _, tag in earlier if not tag.endswith(OWN)))
    counted = dict.fromkeys(("silently wrong", "refused", "unharmed"), 0)
    for tag in _some(tags) if few else tags:
        places = (5,) if few else BYTES
        for way in (*(str(place) for place in places), *OTHERS):
            liar = Liar(way, tag, earlier)
            tap.lies = {LIAR: liar}
            found = outcome(run, honest)
            if liar.lied:
                counted[found] += 1
    tap.lies = {}
    return counted


def outcome(run: Callable[[], Any], honest: Any) -> str:
    try:
        answer = run()
    except FedcircuitsError:
        return "refused"
    off = np.abs(answer - honest).max()
    return "unharmed" if off <= WRONG else "silently wrong"  # NaN is wrong, too


@dataclass
class Liar:
    """Changes what goes out under a tag. ``way``: the byte of a number to change, or how else."""

    way: str
    tag: str
    earlier: Mapping[tuple[str, str], Any]
    lied: bool = False

    def __call__(self, receiver: str, tag: str, told: Any) -> Any:
        if tag != self.tag:
            return told
        said = self.earlier[receiver, tag] if self.way == "replayed" else self._changed(told)
        self.lied |= said is not told
        return said

    def _changed(self, told: Any) -> Any:
        if isinstance(told, Mapping):
            said = {name: self._changed(value) for name, value in told.items()}
            return told if all(said[name] is told[name] for name in told) else said
        if not isinstance(told, np.ndarray) or told.dtype != np.uint8 or not told.size:
            return told
        if self.way == "reversed":
            return np.ascontiguousarray(told[::-1]) if len(told) > 1 else told
        if self.way == "random":
            return np.random.default_rng(0).integers(0, 128, told.shape).astype(np.uint8)
        if int(self.way) >= (told.shape[-1] if told.ndim > 1 else told.size):
            return told
        flipped = told.copy()
        flipped.reshape(-1)[int(self.way)] ^= 1
        return flipped


def _some(tags: list[str]) -> list[str]:
    """Of tags that differ in numbers only, the first and the last."""
    kinds_of: dict[str, list[str]] = {}
    for tag in tags:
        kinds_of.setdefault("".join(c for c in tag if not c.isdigit()), []).append(tag)
    return [tag for alike in kinds_of.values() for tag in dict.fromkeys((alike[0], alike[-1]))]
