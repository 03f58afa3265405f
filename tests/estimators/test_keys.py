"""Who holds which key: a party its own, the first one the secret that hides row ids, a coordinator
none. All of them come from the operating system, none from a seed."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.identity import Identity
from tests.federation.cases import QUICK, mixed_table
from tests.methods.refinement.cases import once, parts
from tests.methods.watched import Watched

KEY = 16  # bytes: what is shorter is no key


@pytest.mark.parametrize(
    "model",
    [
        fc.FedPC(QUICK, refine=1, summation=Secret(key=bytes(32))),
        fc.FedTrees("kind", summation=Secret(key=bytes(32))),
        fc.VerticalGaussianMixture(2, summation=Secret(key=bytes(32))),
    ],
)
def test_a_key_is_for_one_party(model: Any) -> None:
    """Given to an estimator it would go to all of them."""
    with pytest.raises(FederationError, match="leave the key out"):
        model.fit(parts())


def test_every_party_has_a_key_of_its_own() -> None:
    _, engine = once(refine=2, summation=Secret())
    programs = engine.programs[0]
    keys = {me: p.arguments["plan"].summation.key for me, p in programs.items()}
    assert set(keys) == {COORDINATOR, "party 0", "party 1", "party 2"}
    assert len(set(keys.values())) == 4 and None not in keys.values()


# ---------------------------------------------------------------------- every program of a run


def held(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, bytes]]:
    """Everything in an argument that may be a key, however deep, and where it is."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, bytes | bytearray):
        if len(value) >= KEY:
            yield path, bytes(value)
    elif isinstance(value, Program):
        yield from held(value.arguments, path, seen)
    elif isinstance(value, functools.partial):
        yield from held((value.args, value.keywords, value.func), path, seen)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from held(part, f"{path}.{name}", seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from held(part, path, seen)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from held(getattr(value, field.name, None), f"{path}.{field.name}", seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from held(vars(value), path, seen)


def keys_of(programs: Mapping[str, Program[Any]]) -> dict[str, dict[str, bytes]]:
    """By role and place, without public halves of keys and names of questions (``used.by``)."""
    found = {n: dict(held(p, "", set())) for n, p in programs.items()}
    found = {
        n: {w: k for w, k in own.items() if not w.endswith(".used.by")} for n, own in found.items()
    }
    private = [k for own in found.values() for w, k in own.items() if w.endswith(".private")]
    public = {Identity(k).public for k in private}
    return {n: {w: k for w, k in own.items() if k not in public} for n, own in found.items()}


TABLE = mixed_table(60, seed=1)
FLAGS = fc.Table.of(np.random.default_rng(0).random((60, 4)) < 0.5)
NUMBERS = fc.Table.of(np.random.default_rng(0).normal(size=(60, 6)))
COLUMNS, NUMBER_COLUMNS = fc.split(TABLE, 3, by="columns"), fc.split(NUMBERS, 3, by="columns")
ROWS, SHARED = fc.split(FLAGS, 3), {"target": "risk", "share_target": True}
SMALL: dict[str, Any] = {"learner": QUICK, "clusters": 2, "ensemble": 1}
CASES: dict[str, tuple[Any, Federation, str]] = {
    "FedPC": (fc.FedPC(**SMALL, **SHARED), COLUMNS, "tokens"),
    "FedPC, private": (fc.FedPC(**SMALL, **SHARED, rows="private"), COLUMNS, "private"),
    "FedPC, Secret": (fc.FedPC(**SMALL, summation=Secret()), COLUMNS, "tokens"),
    "FedTrees": (fc.FedTrees(**SHARED, trees=2, threshold="macro-f1"), COLUMNS, "tokens"),
    "FedTrees, private": (fc.FedTrees(**SHARED, trees=2, rows="private"), COLUMNS, "private"),
    "mixture": (fc.VerticalGaussianMixture(2, max_iter=2), NUMBER_COLUMNS, "tokens"),
    "mixture, private": (
        fc.VerticalGaussianMixture(2, max_iter=2, rows="private"), NUMBER_COLUMNS, "private",
    ),
    "mixture, peers": (
        fc.VerticalGaussianMixture(2, max_iter=2, summation=fc.Tree("path")), NUMBER_COLUMNS,
        "tokens",
    ),
    "k-means": (fc.VerticalKMeans(2), NUMBER_COLUMNS, "tokens"),
    "k-means, private": (fc.VerticalKMeans(2, rows="private"), NUMBER_COLUMNS, "private"),
    "fusion": (fc.FeatureFusion(**SHARED, epochs=1), COLUMNS, "tokens"),
    "fusion, private": (fc.FeatureFusion(**SHARED, epochs=1, rows="private"), COLUMNS, "private"),
    "PrivateForest": (fc.PrivateForest(2, units=2, max_iter=2), ROWS, ""),
    "ChowLiuTree": (fc.ChowLiuTree(), ROWS, ""),
    "ChowLiuTree, Secret": (fc.ChowLiuTree(summation=Secret()), ROWS, ""),
    "FedPC, rows": (fc.FedPC(), ROWS, ""),
    "FedPC, rows, Secret": (fc.FedPC(summation=Secret()), ROWS, ""),
    "FedPC, root": (fc.FedPC(**SMALL, answers="root"), COLUMNS, "tokens"),
    "FedPC, pairs": (fc.FedPC(dependence="pairs"), COLUMNS, "tokens"),
    "FedPC, combinations": (fc.FedPC(dependence="combinations"), COLUMNS, "tokens"),
    "products by sums": (fc.MixtureOfProducts(2), ROWS, ""),
    "products by sums, Masked": (fc.MixtureOfProducts(2, summation=fc.Masked()), ROWS, ""),
    "trees together, Secret": (
        fc.FedTrees(target="x0", grow="together", trees=1, summation=Secret()), ROWS, "",
    ),
    "fusion, Secret": (
        fc.FeatureFusion(**SHARED, epochs=1, align=None, graph="complete", summation=Secret(),
                         clip=1.0, noise=0.1), COLUMNS, "tokens",
    ),
}  # fmt: skip


def asked(model: Any, parties: Federation) -> None:
    """A question of each kind that runs programs."""
    if isinstance(model, fc.VerticalGaussianMixture | fc.VerticalKMeans | fc.FeatureFusion):
        model.predict(parties)
    elif isinstance(model, fc.FedTrees):
        model.predict(FLAGS if parties is ROWS else TABLE)
    else:
        model.score_samples(FLAGS if parties is ROWS else TABLE)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[list[dict[str, Program[Any]]], Federation, str]:
    """All programs of two trainings with one seed, and of a question."""
    model, parties, rule = CASES[request.param]
    engine = Watched()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            model.set_params(random_state=0).fit(parties, engine=engine)
        asked(model, parties)
    return engine.programs, parties, rule


def test_no_program_of_a_coordinator_holds_a_key(
    case: tuple[list[dict[str, Program[Any]]], Federation, str],
) -> None:
    """But for the one that it deals shares with, or is known by, which nobody else has. A party has
    its own, and no two hold the same; the first one alone has a secret that hides row ids, or
    each its own where rows are matched privately. No run has a key of another."""
    runs, parties, rule = case
    every: list[bytes] = []
    for programs in runs:
        keys = keys_of(programs)
        ways = [w for w in keys.get(COORDINATOR, {}) if not w.endswith((".key", ".private"))]
        assert not ways
        assert not any("secret" in w for w in keys.get(COORDINATOR, {}))
        held_by = [k for own in keys.values() for k in set(own.values())]
        assert len(set(held_by)) == len(held_by), "two roles hold one key"
        every += held_by
        hiding = [n for n, p in programs.items() if p.arguments.get("secret")]
        if hiding:
            assert hiding == list(parties.names if rule == "private" else parties.names[:1])
            assert all(len(keys[n][".secret"]) == 32 for n in hiding)
    trained = [keys_of(programs) for programs in runs[:2]]
    if rule:
        assert [".secret" in keys[parties.names[0]] for keys in trained] == [True, True]
    assert len(set(every)) == len(every), "two runs with one seed have one key"


def test_every_party_of_an_alignment_has_a_power_of_its_own() -> None:
    engine = Watched()
    fc.aligned(COLUMNS, private=True, engine=engine)
    keys = [set(own.values()) for own in keys_of(engine.programs[0]).values()]
    assert [len(own) for own in keys] == [0, 1, 1, 1]  # the coordinator has none
    assert len(set.union(*keys)) == 3


def test_the_walk_finds_a_key_anywhere() -> None:
    """So that the test above can fail."""
    deep = {"plan": [functools.partial(print, end={"secret": bytes(range(32))})]}
    adding = Program(print, {"sum": Secret(key=bytes(32))})
    programs: dict[str, Program[Any]] = {COORDINATOR: Program(print, deep), "north": adding}
    assert keys_of(programs) == {
        COORDINATOR: {".plan.end.secret": bytes(range(32))}, "north": {".sum.key": bytes(32)},
    }  # fmt: skip
