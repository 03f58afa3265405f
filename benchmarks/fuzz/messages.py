"""Messages of every method: spoiled on their way, as bytes and field by field.

Small runs of every method are recorded. Most inputs are one of their messages with other bytes or
fields, read as its reader reads it: refused with its sender blamed, or a record of sound types. One
in twelve goes on its way in a run of the method (``fedcircuits.testing`` has the rules): whoever
reads it refuses it or goes on, and nobody's result has NaN that was not there before.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.fuzz.judging import Attempt, mutated, pick, require
from fedcircuits.engines import memory
from fedcircuits.errors import FedcircuitsError, PartyLostError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import Message, decode_message, encode_fields, fields_of
from fedcircuits.testing.protocols.malformed import Change, changing
from fedcircuits.testing.protocols.trial import recorded
from tests.federation.cases import QUICK, mixed_table, three_columns
from tests.methods.fusion.sensors import fitted as fused

RUNS = 40  # inputs that follow each other in the recorded run of one method
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**61, -(2**63), 2**64 - 1, 0.5, float("nan"), float("inf"), 1e308, "",
    "x", "coordinator", "x" * 3000, b"", b"\0" * 40, [], [[]], {}, {"odd": 1}, {1: 2}, [None],
    np.zeros(0), np.zeros((0, 3)), np.full(3, np.nan), np.full((2, 2), 1e308), np.array("a"),
    np.arange(5), np.array([-1, 2**62]), np.zeros((1, 1, 1)), np.ones(3, bool), np.array(["a", ""]),
    np.zeros(4, np.uint8), np.float32([np.inf]), np.zeros((3, 0)),
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308, -1e308, 1e-320, 1e16, 0.5)


class Noting:
    """The memory engine, with the programs of its last run."""

    programs: Mapping[str, Program[Any]]

    def __call__(self, programs: Mapping[str, Program[Any]], kept: Any = None) -> Any:
        self.programs = dict(programs)
        return memory.run(programs, kept)


# ---------------------------------------------------------------------- methods


def _after_fit(model: Any, data: Any, ask: Callable[[Any], object] | None = None) -> Any:
    engine = Noting()
    model.fit(data, engine=engine)
    if ask is not None:
        ask(model)
    return engine.programs


def _few(parties: fc.Federation) -> fc.Federation:
    tables = {p.name: p.table.rows(slice(0, 60)) for p in parties}
    return fc.Federation(tables, allow_collect=True)


def _split(by: Any, parties: int = 3, **options: Any) -> fc.Federation:
    return _few(fc.split(mixed_table(), parties, by=by, seed=1, **options))


def _fedpc(**settings: Any) -> fc.FedPC:
    usual: dict[str, Any] = {"clusters": 2, "ensemble": 1, "random_state": 0}
    return fc.FedPC(QUICK, **usual | settings)


def _numbers() -> fc.Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)) + 3 * rng.integers(2, size=40)[:, None]
    return fc.split(fc.Table.of(x), 3, by="columns", seed=0)


def _discrete() -> fc.Federation:
    rng = np.random.default_rng(0)
    table = fc.Table.of({f"b{i}": rng.random(60) < 0.4 for i in range(4)})
    return fc.split(table, 3, by="rows", seed=0)


def _summed(learner: Any, data: fc.Federation, **settings: Any) -> Any:
    return _after_fit(learner(2, random_state=0, **settings), data)


def _trees(by: Any, **settings: Any) -> Any:
    usual = {"target": "risk", "trees": 2, "share_target": by != "rows", "random_state": 0}
    return _after_fit(fc.FedTrees(**usual | settings), _split(by, 2, target="risk"))


METHODS: dict[str, Callable[[], Any]] = {
    "FedPC by rows": lambda: _after_fit(_fedpc(), _split("rows")),
    "FedPC by columns": lambda: _after_fit(_fedpc(), _few(three_columns())),
    "FedPC by both": lambda: _after_fit(_fedpc(refine=1), _split("both", overlap=0.3)),
    "FedPC by sums": lambda: _after_fit(
        _fedpc(refine=1, summation=fc.Secret()), _few(three_columns())
    ),
    "FedPC asked": lambda: _after_fit(
        _fedpc(), _few(three_columns()), lambda m: m.probability("age > 40", given="smoker")
    ),
    "trees bagged": lambda: _trees("rows"),
    "trees boosted": lambda: _trees("columns"),
    "trees together": lambda: _trees("rows", grow="together"),
    "mixture": lambda: _after_fit(
        fc.VerticalGaussianMixture(2, max_iter=2, random_state=0), _numbers()
    ),
    "mixture by a tree": lambda: _after_fit(
        fc.VerticalGaussianMixture(2, max_iter=2, random_state=0, summation=fc.Tree("path")),
        _numbers(),
    ),
    "k-means": lambda: _after_fit(fc.VerticalKMeans(2, max_iter=2, random_state=0), _numbers()),
    "private forest": lambda: _after_fit(
        fc.PrivateForest(structures=1, units=2, max_iter=2, random_state=0), _discrete()
    ),
    "tree of counts": lambda: _after_fit(fc.ChowLiuTree(summation=fc.Secret()), _discrete()),
    "FedPC by a latent tree": lambda: _after_fit(_fedpc(dependence="pairs"), _few(three_columns())),
    "FedPC of few rows": lambda: _after_fit(_fedpc(summation=fc.Secret()), _split("rows", 5)),
    "FedPC with a mixture by sums": lambda: _after_fit(
        _fedpc(method=fc.MixtureOfProducts(2, max_iter=2)), _split("rows", 5)
    ),
    "mixture by sums": lambda: _summed(fc.MixtureOfProducts, _split("rows"), max_iter=2),
    "hidden tree by secret sums": lambda: _summed(
        fc.HiddenChowLiuTree, _split("rows"), epochs=2, summation=fc.Secret()
    ),
    "mixture by noisy sums": lambda: _summed(
        fc.MixtureOfProducts, _discrete(), max_iter=2, privacy=fc.DifferentialPrivacy(4.0)
    ),
    "trees with noise": lambda: _trees(
        "rows", grow="together", privacy=fc.DifferentialPrivacy(4.0)
    ),
    "FedPC asked for the root": lambda: _after_fit(
        _fedpc(answers="root"), _few(three_columns()), lambda m: m.probability("age > 40")
    ),
    "fusion": lambda: fused()[1].programs[0],
    "fusion by votes": lambda: fused(head="vote")[1].programs[0],
}


class Recording:
    """One run of a method: programs, all messages with their types, and what it kept."""

    def __init__(self, programs: Mapping[str, Program[Any]]) -> None:
        self.programs = programs
        results, records, self.outcome = recorded(deepcopy(dict(programs)))
        self.nans = sum(map(nans, results.values()))
        self.messages = [
            (sender, m.party, m.tag, n, m.data)
            for sender, record in records.items()
            for m, n in _numbered(record.sent)
        ]


def _numbered(sent: list[Any]) -> Iterator[tuple[Any, int]]:
    seen: dict[tuple[str, str], int] = {}
    for m in sent:
        seen[m.party, m.tag] = seen.get((m.party, m.tag), -1) + 1
        yield m, seen[m.party, m.tag]


@cache
def recording(method: str) -> Recording:
    return Recording(METHODS[method]())


def nans(value: Any, depth: int = 0) -> int:
    """How many NaN are in a result."""
    if depth > 8:
        return 0
    if isinstance(value, np.ndarray):
        return int(np.isnan(value).sum()) if value.dtype.kind == "f" else 0
    if isinstance(value, float):
        return int(np.isnan(value))
    if isinstance(value, Mapping):
        return sum(nans(v, depth + 1) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(nans(v, depth + 1) for v in value)
    if is_dataclass(value):
        return sum(nans(getattr(value, f.name, None), depth + 1) for f in fields(value))
    return 0


def kinds_of(tag: str) -> list[type[Message]]:
    """Message types of a tag; all of them where the tag is made by its sender."""
    every = list(_subclasses(Message))
    own = [k for k in every if k.tag and tag.startswith(k.tag)]
    return own or every


def _subclasses(kind: type[Message]) -> Iterator[type[Message]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


# ---------------------------------------------------------------------- inputs


def prepare(folder: Path) -> Attempt:
    recording(next(iter(METHODS)))  # compiles and loads what most methods need

    def attempt(rng: np.random.Generator, number: int) -> None:
        names = list(METHODS)
        run = recording(names[number // (12 * RUNS) % len(names)])
        sender, receiver, tag, at, data = pick(rng, run.messages)
        if number % 12:
            bytes_or_fields = mutated(rng, data) if rng.random() < 0.5 else _fields(rng, data)[0]
            decode_message(pick(rng, kinds_of(tag)), bytes_or_fields, sender, tag)
            return
        _, field, spoiled = _fields(rng, data)
        change = Change(sender, receiver, tag, at, field, "is spoiled", spoiled, False)
        programs = deepcopy(dict(run.programs))
        programs[sender] = Program(changing, {"program": programs[sender], "change": change})
        outcome = memory.run(programs, deepcopy(run.outcome.kept))
        _judge(change, outcome.lost)
        found = sum(nans(r) for n, r in outcome.results.items() if n != sender)
        require(outcome.lost or found <= run.nans, f"{change}: {found} NaN in results")

    return attempt


def _judge(change: Change, lost: Mapping[str, Exception]) -> None:
    """Nobody fails with an error of Python, and whoever fails first names who sent the message; or
    it is the sender itself, which was answered to something that it has not said."""
    causes = {party: error.__cause__ or error for party, error in lost.items()}
    for party, cause in causes.items():
        ours = isinstance(cause, FedcircuitsError)
        require(ours, f"{change}: {party} fails with {type(cause).__name__}: {cause}")
    first = next((party for party, c in causes.items() if not isinstance(c, PartyLostError)), "")
    blamed = not first or first == change.sender or change.sender in str(causes[first])
    require(blamed, f"{change}: {first} says {causes.get(first)}")


def _fields(rng: np.random.Generator, data: bytes) -> tuple[bytes, str, dict[str, Any]]:
    """The message with one field spoiled, and which."""
    found = fields_of(data)
    if not found:
        found = {"x": 1}
    name = pick(rng, sorted(found))
    if rng.random() < 0.1:
        del found[name]
    else:
        found[name] = _other(rng, found[name])
    return encode_fields(found), name, found


def _other(rng: np.random.Generator, value: Any) -> Any:
    """Something else in its place, or inside of it."""
    if isinstance(value, np.ndarray) and value.size and rng.random() < 0.8:
        return _array(rng, value)
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = pick(rng, list(value))
        return {**value, key: _other(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = int(rng.integers(len(value)))
        return [*value[:at], _other(rng, value[at]), *value[at + 1 :]]
    return pick(rng, HOSTILE)


def _array(rng: np.random.Generator, array: Any) -> Any:
    match int(rng.integers(5)):
        case 0:
            return array[: int(rng.integers(len(array)))] if array.ndim else array[None]
        case 1:
            return np.concatenate([array, array]) if array.ndim else np.stack([array, array])
        case 2:
            return array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    changed = array.copy()
    flat = changed.reshape(-1)
    where = rng.random(flat.size) < rng.choice([0.1, 1.0])
    where[int(rng.integers(flat.size))] = True
    if array.dtype.kind == "f":
        flat[where] = rng.choice(NUMBERS, int(where.sum()))
    elif array.dtype.kind in "iu":
        ends = np.iinfo(array.dtype)
        flat[where] = pick(rng, (ends.min, ends.max, 0, 1))
    elif array.dtype.kind == "b":
        flat[where] = ~flat[where]
    else:
        flat[where] = ""
    return changed
