"""Training with secret sums: the same model as plainly, and nobody's clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.secret_counts import COUNTS
from tests.federation.cases import QUICK, federation, gaps, mixed_table, three_columns
from tests.methods.watched import Watched, keyed, read

ROWS = fc.Table(mixed_table().schema, gaps())


def trained(parties: fc.Federation, **how: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    usual: dict[str, Any] = {"learner": QUICK, "clusters": 3, "ensemble": 1, "random_state": 0}
    return fc.FedPC(**usual | how).fit(parties, engine=engine), engine


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("columns", {}),
        ("three", {"target": "risk"}),
        ("uneven", {}),
        ("uneven", {"shared_leaves": "cluster"}),
        ("both", {"shared_leaves": "pooled", "products": 3}),
    ],
)
def test_one_argument_and_the_same_model(name: str, how: dict[str, Any]) -> None:
    parties = three_columns() if name == "three" else federation(name)
    plain, _ = trained(parties, **how)
    secret, engine = trained(parties, summation=fc.Secret(), **how)
    assert secret.joint_.circuit == plain.joint_.circuit
    assert secret.joint_.parameters == plain.joint_.parameters
    assert np.array_equal(secret.score_samples(ROWS), plain.score_samples(ROWS))
    phases = {e.phase for e in secret.ledger_}
    assert "clusters" not in phases and "count/clusters" not in {m.tag for _, m in engine.messages}
    told = set(secret.ledger_.revealed(COORDINATOR)["what"])
    assert COUNTS in told and not any(w.startswith("clusters of rows") for w in told)


def test_clusters_of_rows_never_cross() -> None:
    """In no order and in no width, while plainly they do."""
    parties = three_columns()
    for how, crosses in (({}, True), ({"summation": fc.Secret()}, False)):
        _, engine = trained(parties, **how)
        kept = [(p, v) for (p, step), v in engine.kept.items() if step.startswith("clustering its")]
        assert len(kept) == 3
        found = []
        for party, own in kept:
            labels = np.asarray(own)
            sent = [m.data for s, m in engine.messages if s == party]
            counts = sorted(np.bincount(labels).tolist())
            found.append(any(_has(data, counts, len(labels)) for data in sent))
        assert found == [crosses] * 3


def _has(data: bytes, counts: list[int], rows: int) -> bool:
    """Whether a message holds a number for every row, as many of each as the clusters have."""
    for array in _arrays(read(data)):
        if array.dtype.kind in "iuf" and array.size >= rows:
            for lines in array.reshape(-1, rows) if array.size % rows == 0 else ():
                if sorted(np.unique(lines, return_counts=True)[1].tolist()) == counts:
                    return True
    return False


def _arrays(payload: Any) -> list[Any]:
    if isinstance(payload, dict):
        payload = list(payload.values())
    if isinstance(payload, list):
        return [array for part in payload for array in _arrays(part)]
    return [payload] if isinstance(payload, np.ndarray) else []


def test_in_processes() -> None:
    """Counting, and EM on sums after it: each in two engines with the same keys of rows."""
    usual: dict[str, Any] = {"clusters": 2, "ensemble": 1, "weights": "em", "random_state": 0}
    there, here = (
        fc.FedPC(QUICK, summation=fc.Secret(), **usual).fit(three_columns(), engine=keyed(engine))
        for engine in ("process", "memory")
    )
    assert there.joint_.circuit == here.joint_.circuit and there.history_ == here.history_
    assert there.joint_.parameters == here.joint_.parameters


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("columns", {"weights": "em"}, "at least 3 parties, got 2"),
        ("columns", {"refine": 1}, "at least 3 parties, got 2"),
        ("uneven", {"refine": 1, "shared_leaves": "pooled"}, "take shared_leaves='divided'"),
        ("columns", {"summation": fc.Secret("all")}, "use threshold='majority'"),
        ("columns", {"share_clusters": "no"}, "share_clusters must be one of True, False"),
    ],
)
def test_refused_before_anything_is_shared(name: str, how: dict[str, Any], said: str) -> None:
    with pytest.raises(FederationError, match=said):
        trained(federation(name), **{"summation": fc.Secret(), **how})
