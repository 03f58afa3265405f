"""A code of many levels beside columns that tell a class: it says nothing, and spoils nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedcircuits as fc


def admissions(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    code = rng.choice(300, rows, p=np.random.default_rng(0).dirichlet(np.full(300, 0.5)))
    frame = pd.DataFrame({"age": rng.normal(58, 18, rows), "code": [f"D{c:03d}" for c in code]})
    frame["prior"] = rng.poisson(1.2, rows)
    chance = -2.2 + 0.045 * (frame["age"] - 58) + 0.35 * frame["prior"]
    again = rng.random(rows) < 1 / (1 + np.exp(-chance))
    return frame.assign(again=np.where(again, "yes", "no"))


@pytest.mark.filterwarnings("ignore:.* as 'other'")  # rare and unknown codes
@pytest.mark.parametrize("first", [("code", "again"), ("age", "again")])
def test_a_code_of_many_levels_at_the_party_with_the_class_or_another(
    first: tuple[str, str],
) -> None:
    train, test = admissions(1000, 1), admissions(4000, 2)
    other = [name for name in train if name not in first]
    tables = {"a": train[list(first)].reset_index(), "b": train[other].reset_index()}
    model = fc.FedPC(target="again", random_state=0).fit(fc.Federation(tables, row_id="index"))
    at = list(model.classes("again")).index("yes")
    sure = model.predict_proba(test, "again")[:, at]
    plain = LogisticRegression().fit(train[["age", "prior"]], train["again"])
    best = plain.predict_proba(test[["age", "prior"]])[:, 1]
    yes = test["again"] == "yes"
    assert roc_auc_score(yes, sure) > roc_auc_score(yes, best) - 0.02
    alone = model.predict_proba(test[["code"]], "again")[:, at]
    assert np.log(alone / (1 - alone)).std() < 0.25  # the code moves nothing
