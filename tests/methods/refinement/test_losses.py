"""EM by rows when a party fails: it goes on without it, or is resumed with work that is kept."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.sums.summations import Tree
from tests.federation.cases import QUICK, gaps, mixed_table
from tests.methods.refinement.cases import once, parts
from tests.methods.watched import Broken

ROWS = fc.Table(mixed_table().schema, gaps())


@functools.cache
def rest() -> fc.FedPC:
    left = parts(4).select(["party 0", "party 1", "party 3"])
    return fc.FedPC(QUICK, refine=2, random_state=0).fit(left)


@pytest.mark.parametrize(
    ("tag", "summation"),
    [
        *((tag, fc.Hub()) for tag in ("em/graph", "em/leaves", "em/counts/0", "em/counts/1")),
        ("em/counts/1", Tree("cycle")),
    ],
)
def test_em_goes_on_without_a_party(tag: str, summation: Any) -> None:
    model = fc.FedPC(QUICK, refine=2, on_lost="continue", summation=summation, random_state=0)
    with pytest.warns(UserWarning, match="party 2 failed while .*; continuing without party 2"):
        model.fit(parts(4), engine=Broken("party 2", tag))
    assert model.history_ == pytest.approx(rest().history_, abs=1e-9)
    np.testing.assert_allclose(model.score_samples(ROWS), rest().score_samples(ROWS), atol=1e-9)


def test_em_is_resumed() -> None:
    engine = Broken("party 1", "em/counts/1")
    model = fc.FedPC(QUICK, refine=3, random_state=0)
    with pytest.raises(PartyLostError, match="party 1 failed while sending 'em/counts/1'"):
        model.fit(parts(), engine=engine)
    model.fit(parts(), engine=engine, resume=True)
    steps = [step for _, step in engine.kept[1] if step.startswith("counting its rows, round")]
    assert not engine.kept[0] and len(steps) >= 4  # two rounds of two parties, or more
    fresh = fc.FedPC(QUICK, refine=3, random_state=0).fit(parts())
    assert np.array_equal(model.score_samples(ROWS), fresh.score_samples(ROWS))


def test_other_rows_of_one_party_make_all_count_again() -> None:
    """As many rows as before, so that nothing but its leaves tells the others."""
    engine, parties = Broken("party 1", "em/counts/1"), parts()
    model = fc.FedPC(QUICK, refine=3, random_state=0)
    with pytest.raises(PartyLostError):
        model.fit(parties, engine=engine)
    tables = {p.name: p.table for p in parties}
    tables["party 2"] = mixed_table(seed=4).select(tables["party 2"].names).rows(slice(0, 50))
    changed = fc.Federation(tables, allow_collect=True)
    model.fit(changed, engine=engine, resume=True)
    fresh = fc.FedPC(QUICK, refine=3, random_state=0).fit(changed)
    assert model.history_ == fresh.history_


def test_another_summation_makes_all_count_again() -> None:
    engine = Broken("party 1", "em/counts/1")
    settings: dict[str, Any] = {"refine": 3, "validation": 0.0, "random_state": 0}
    model = fc.FedPC(QUICK, summation=fc.Hub("float32"), **settings)
    with pytest.raises(PartyLostError):
        model.fit(parts(), engine=engine)
    model.set_params(summation=fc.Hub()).fit(parts(), engine=engine, resume=True)
    assert model.history_ == once(refine=3)[0].history_


def test_another_share_makes_all_count_again() -> None:
    engine = Broken("party 1", "em/counts/1")
    model = fc.FedPC(QUICK, refine=3, validation=0.2, random_state=0)
    with pytest.raises(PartyLostError):
        model.fit(parts(), engine=engine)
    model.set_params(validation=0.0).fit(parts(), engine=engine, resume=True)
    assert model.history_ == once(refine=3)[0].history_ and not model.validation_history_
