"""Masks of prepared questions: one process, one model, one use, however a model is copied."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import ProtocolError
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.methods.private_forest.masks import MaskStore
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.sharing.shares import reconstruct
from tests.methods.watched import Watched, read

ROWS = fc.Table.of(np.random.default_rng(0).random((60, 4)) < 0.4)
NAMES = ("party 1", "party 2", "party 3")
BITS = 1 << 36  # an exponent of 1


def prepared(rows: int = 2) -> PrivateForest:
    model = PrivateForest(1, units=3, combine="em", max_iter=2, random_state=0)
    return model.fit(fc.split(ROWS, 3, seed=0, allow_collect=True)).prepare(rows)


def store_of(model: PrivateForest, party: str = "party 1") -> MaskStore:
    [made] = model._holders.masks
    store = made.stores[party]
    assert isinstance(store, MaskStore)
    return store


def pickled(model: PrivateForest) -> PrivateForest:
    again: PrivateForest = pickle.loads(pickle.dumps(model))
    return again


def exponents_seen(model: PrivateForest, rows: fc.Table) -> Array:
    """What every party sees opened of a question, (rows, components), in bits."""
    model._engine = watched = Watched()
    model.score_samples(rows)
    shares = []
    for name in NAMES:
        sent = [m for n, m in watched.messages if n == name and m.tag == "query/exponents"]
        data = read(sent[0].data)["data"]
        shares.append(FIELD.unpacked(data.reshape(-1), data.shape[:-1]))
    seen = FIELD.integers(reconstruct(FIELD, np.stack(shares), 2, NAMES))
    return np.asarray([[int(v) for v in row] for row in seen], dtype=object)


def component_logs(model: PrivateForest, rows: fc.Table) -> Array:
    """log2 p of every component, (rows, components)."""
    [leaf] = model.circuit_.leaves()
    p = model.open_parameters().parameters_[leaf.name]["probability"]
    x = rows.values[:, None]
    return np.asarray(np.log2(np.where(x == 1, p, 1 - p)).sum(-1))


def read_back(model: PrivateForest, other: PrivateForest) -> bool:
    """Whether two questions' opened numbers show by how much components' logarithms differ."""
    first, second = ROWS.rows(np.arange(2)), ROWS.rows(np.arange(2, 4))
    truth = component_logs(model, first) - component_logs(model, second)
    seen = exponents_seen(model, first) - exponents_seen(other, second)
    return bool((np.abs((seen / BITS).astype(float) - truth) < 1e-6).any())


def with_its_masks(model: PrivateForest) -> PrivateForest:
    """A copy as it was made before: with the masks."""
    again = pickled(model)
    again._holders.masks = pickle.loads(pickle.dumps(model._holders.masks))
    return again


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_uses_no_mask_again(copied: Callable[[Any], Any]) -> None:
    model = prepared()
    assert not read_back(model, copied(model))


def test_masks_used_twice_would_show_every_component() -> None:
    """The attack works where the masks are copied, so that the test above can fail."""
    model = prepared()
    assert read_back(model, with_its_masks(model))


def test_copies_are_empty() -> None:
    model = prepared()
    for again in (copy.deepcopy(model), pickled(model), pickled(model.connect("clinic"))):  # type: ignore[arg-type]
        holders = getattr(again, "_holders", None) or again.holders  # type: ignore[attr-defined]
        assert holders.left == 0
    store = store_of(model)
    assert len(store) == 2 and len(copy.copy(store)) == len(copy.deepcopy(store)) == 0
    batch = store.hand_out(0, 1)
    assert copy.copy(batch) is copy.deepcopy(batch) is batch
    assert str(batch.covers.flat[0]) not in repr(batch) and "lots" not in repr(store)


def test_what_a_store_has_handed_out_is_refused() -> None:
    """Whatever whoever asks believes to be left."""
    model = prepared()
    store_of(model).hand_out(0, 1)
    with pytest.raises(ProtocolError, match="were handed out before"):
        model.score_samples(ROWS.rows([0]))


def test_a_forked_process_has_none() -> None:
    """It would have the same ones: it must make its own."""
    model = prepared()
    holders = model._holders
    child = os.fork()
    if child == 0:  # ends here, whatever happens
        code = 1
        try:
            holders.prepare = lambda rows: os._exit(40 + rows)  # type: ignore[method-assign]
            holders._taken(2)
            code = 2  # it had some
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert holders.left == 2


def test_threads_take_different_ones() -> None:
    model = prepared(64)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: model._holders._taken(1), range(64)))
    spans = [(me, part.start, part.stop) for own in taken for me, (part,) in own.items()]
    assert len(set(spans)) == len(spans) == 192 and {stop - start for _, start, stop in spans} == {
        1
    }


def last_first(programs: Any, kept: Any = None) -> Any:
    """An engine that hands out results in an order of its own."""
    outcome = memory.run(programs, kept)
    outcome.results = dict(reversed(outcome.results.items()))
    return outcome


@pytest.mark.parametrize(("parties", "engine"), [(4, last_first), (8, "memory")])
def test_members_keep_their_places_whoever_ends_first(parties: int, engine: Any) -> None:
    """Of eight members the last deals no share of products, and ends before the others."""
    federation = fc.split(ROWS, parties, seed=0, allow_collect=True)
    model = PrivateForest(1, units=2, combine="average", max_iter=2, random_state=0)
    model.fit(federation, engine=engine)
    asked = ROWS.rows(np.arange(2))
    opened = model.open_parameters().score_samples(asked)
    assert tuple(model.views_) == federation.names
    assert model.connect("clinic").score_samples(asked) == pytest.approx(opened, abs=1e-4)
