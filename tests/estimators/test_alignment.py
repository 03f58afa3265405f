"""A federation restricted to shared rows: in the clear and privately, the same."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import ExtraMissingError, FederationError
from fedcircuits.methods.meeting import intersection


def federation(private: bool = False) -> fc.Federation:
    if private:
        try:
            intersection.openmined()
        except ExtraMissingError as missing:
            pytest.skip(str(missing))
    rng = np.random.default_rng(0)
    parties = {}
    for name in ("north", "south", "west"):
        ids = rng.permutation(80)[:60]
        parties[name] = {"id": ids, name: ids * 1.0}
    return fc.Federation(parties, row_id="id", allow_collect=["north"])


@pytest.mark.parametrize("private", [False, True])
def test_rows_of_all_in_one_order(private: bool) -> None:
    whole = federation(private)
    found = fc.aligned(whole, private=private)
    ids = found["north"].table.row_ids
    expected = set.intersection(*(set(p.table.row_ids.tolist()) for p in whole))
    assert ids.tolist() == sorted(expected)
    for party in found:
        assert np.array_equal(party.table.row_ids, ids)
        assert np.array_equal(party.table.values[:, 0], ids)
    assert [p.allow_collect for p in found] == [True, False, False]


@pytest.mark.parametrize("engine", ["memory", "process"])
def test_engines_agree_and_tell(engine: str) -> None:
    ledger = fc.Ledger()
    found = fc.aligned(federation(True), private=True, engine=engine, ledger=ledger)
    assert found["west"].table.row_ids.tolist() == (
        fc.aligned(federation())["west"].table.row_ids.tolist()
    )
    said = ledger.revealed()["phase"]
    assert (said == "psi").sum() == 6 and (said == "rows").sum() == 3
    assert set(said) <= {"psi", "rows", "seal"}


@pytest.mark.parametrize("private", [False, True])
def test_bad_input(private: bool) -> None:
    whole = federation(private)
    apart = {"a": {"id": [1, 2], "x": [1.0, 2.0]}, "b": {"id": [3, 4], "y": [1.0, 2.0]}}
    with pytest.raises(FederationError, match=r"no row id occurs at all.*a 2, b 2.*same way"):
        fc.aligned(fc.Federation(apart, row_id="id"), private=private)
    plain = fc.Federation({"a": whole["north"].table, "b": {"y": [1.0, 2.0]}})
    with pytest.raises(FederationError, match="b has no row ids"):
        fc.aligned(plain, private=private)
    alone = whole.select(["south"])
    assert len(fc.aligned(alone, private=private)["south"].table) == 60


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "private_set_intersection.python", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'fedcircuits\[psi\]'"):
        fc.aligned(federation(), private=True)
    assert len(fc.aligned(federation())) == 3
