"""Different rows, and a party that lacks a column: everybody's rows count."""

import numpy as np
import pytest

import fedcircuits as fc


def federation(parties: int, ids: bool) -> fc.Federation:
    """Blood pressure follows age; p1's patients are 20 years older, and it does not measure it."""
    rng, tables = np.random.default_rng(0), {}
    for i in range(parties):
        age = rng.normal(50, 10, 80)
        table = {"age": age + 20 * (i == 1), "pressure": 70 + age + rng.normal(0, 5, 80)}
        table |= {"patient": 1000 * i + np.arange(80)} if ids else {}
        tables[f"p{i}"] = {k: v for k, v in table.items() if (i, k) != (1, "pressure")}
    return fc.Federation(tables, row_id="patient" if ids else None)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("parties", [2, 6])
def test_all_rows_count_and_dependence_stays(parties: int, ids: bool) -> None:
    data = federation(parties, ids)
    with pytest.warns(UserWarning, match="p1 lacks 'pressure'"):
        model = fc.FedPC(random_state=0).fit(data)
    ages = np.concatenate([party.table.values[:, 0] for party in data])
    known = np.concatenate([party.table.values for n, party in data.parties.items() if n != "p1"])
    assert data.kind == "hybrid"
    assert model.expect(["age"]).loc["age", "mean"] == pytest.approx(ages.mean(), abs=1.5)
    found = model.expect(["pressure"]).loc["pressure", "mean"]
    assert found == pytest.approx(known[:, 1].mean(), abs=2.5)
    young = model.expect(["pressure"], given="age < 45").loc["pressure", "mean"]
    assert young < found - 5


@pytest.mark.parametrize("ids", [False, True])
def test_nobody_holds_all_columns(ids: bool) -> None:
    """Each lacks what the other has: dependence that a party's rows show is no longer lost."""
    rng = np.random.default_rng(0)
    crp, weight = rng.gamma(2.0, 8.0, 600), rng.normal(80, 12, 600)
    sick = rng.random(600) < 1 / (1 + np.exp(-0.3 * (crp - 16)))
    rows = {"crp": crp, "weight": weight, "sick": np.where(sick, "yes", "no")}
    rows |= {"patient": np.arange(600)} if ids else {}
    a = {n: v[:300] for n, v in rows.items() if n != "weight"}
    b = {n: v[300:] for n, v in rows.items() if n != "crp"}
    with pytest.warns(UserWarning, match="lacks '(crp|weight)'"):
        model = fc.FedPC(random_state=0).fit(
            fc.Federation({"a": a, "b": b}, row_id="patient" if ids else None)
        )
    low, high = (model.probability("sick = yes", given=g) for g in ("crp < 8", "crp > 25"))
    assert high > low + 0.3
