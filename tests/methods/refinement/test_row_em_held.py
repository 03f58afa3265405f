"""EM over the rows of all parties, each of which holds some of its own back."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import inline
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.sums.summations import Chebyshev, Tree
from fedcircuits.methods.fedpc import training as one_pass
from fedcircuits.methods.refinement import leaf_em, stopping
from fedcircuits.privacy.secure_sum import Secret
from fedcircuits.testing import check_protocol
from tests.estimators.test_lost_parties import Broken
from tests.federation.cases import QUICK
from tests.methods.refinement.test_row_em import ROWS, assert_close, central, fitted, once, parts


def held_rows(parties: fc.Federation, model: fc.FedPC, share: float) -> tuple[Array, Array]:
    """Rows that parties learn from, and rows that they hold back."""
    rows: list[list[Array]] = [[], []]
    for party in parties:
        seed = [0, zlib.crc32(party.name.encode()), one_pass.LOTS]
        held = np.random.default_rng(seed).random(len(party.table)) < share
        values = party.table.select(model.schema_.names).values
        rows[0].append(values[~held])
        rows[1].append(values[held])
    return np.concatenate(rows[0]), np.concatenate(rows[1])


def test_rounds_on_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_em, "BEHIND", 0.0)
    monkeypatch.setattr(leaf_em, "CAUTION", 0.0)
    monkeypatch.setattr(stopping, "PATIENCE", 9)
    parties = parts()
    start, _ = fitted(parties, refine=0)
    found, _ = fitted(parties, refine=4, validation=0.2)
    kept, held = held_rows(parties, start, 0.2)
    ways = [central(start.collect(), t, kept) for t in range(5)]
    whole = found.collect()
    circuit, learned = inline(whole.circuit_, whole.parameters_)
    likely = [fc.Distribution(circuit, p).log_likelihood(held).mean() for p, _ in ways]
    np.testing.assert_allclose(found.validation_history_, likely, atol=1e-9)
    np.testing.assert_allclose(found.history_, ways[-1][1], atol=1e-9)
    assert_close(learned, ways[int(np.argmax(likely))][0])


@pytest.mark.parametrize("summation", [fc.Hub(), Secret(), Tree("complete")])
def test_exact_messages_with_rows_held_back(summation: Any) -> None:
    """One sum more than rounds, and every sum is judged by one for all."""
    plain, held = (once(refine=1, validation=v, summation=summation)[1] for v in (0.0, 0.2))
    tags = [sorted(m.tag for _, m in e.messages if m.tag[:3] == "em/") for e in (plain, held)]
    judged = [t for t in tags[1] if t.startswith("em/judged")]
    others = 3 if isinstance(summation, fc.Hub) else 2
    assert judged == ["em/judged/0"] * others + ["em/judged/1"] * others
    again = [t.replace("counts/0", "counts/1") for t in tags[0] if "counts/0" in t]
    assert sorted(tags[0] + again) == [t for t in tags[1] if t not in judged]


def test_members_that_gossip_agree_on_the_best_round() -> None:
    """Their sums differ; one of them decides, and nobody waits for another."""
    hub, _ = once(refine=12, validation=0.2)
    loose, _ = fitted(
        parts(), refine=12, validation=0.2, summation=Chebyshev("cycle", tolerance=1e-7)
    )
    assert len(loose.validation_history_) == len(hub.validation_history_) < 13
    np.testing.assert_allclose(loose.validation_history_, hub.validation_history_, atol=1e-3)
    np.testing.assert_allclose(loose.score_samples(ROWS), hub.score_samples(ROWS), atol=1e-2)


def test_the_laws_of_protocols_with_rows_held_back() -> None:
    check_protocol(once(refine=2, validation=0.2)[1].programs[0], without=["processes"])


def test_another_share_makes_all_count_again() -> None:
    engine = Broken("party 1", "em/counts/1")
    model = fc.FedPC(QUICK, refine=3, validation=0.2, random_state=0)
    with pytest.raises(PartyLostError):
        model.fit(parts(), engine=engine)
    model.set_params(validation=0.0).fit(parts(), engine=engine, resume=True)
    assert model.history_ == once(refine=3)[0].history_ and not model.validation_history_
