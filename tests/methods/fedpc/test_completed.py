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
