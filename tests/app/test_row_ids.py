"""Row ids that parties name differently, on the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcircuits.app import cli
from tests.commands import RUNNER


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bank and a telco of the same 200 people."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, ids = rng.integers(20, 90, 200), np.arange(1000, 1200)
    churn = np.where(rng.random(200) < (age - 20) / 70, "yes", "no")
    pd.DataFrame({"customer": ids, "age": age}).to_csv("bank.csv", index=False)
    pd.DataFrame({"phone": ids, "churn": churn}).to_csv("telco.csv", index=False)
    pd.DataFrame({"customer": ids, "churn": churn}).to_csv("telecom.csv", index=False)


def test_a_column_by_party(tmp_path: Path) -> None:
    for telco, words in (("telco", ["--row-id", "telco=phone"]), ("telco=telecom", [])):
        given = ["bank.csv", f"{telco}.csv", "--row-id", "customer", *words, "-o", "model.fc"]
        found = RUNNER.invoke(cli.app, ["train", *given])
        assert found.exit_code == 0 and "vertical split: 2 parties, 2 variables" in found.stdout
        assert found.stderr == ""  # no note that they have no rows in common
        (tmp_path / "model.fc").rename(tmp_path / f"{telco}.fc")
    asked = ["P(churn = yes | age > 70)"]
    answers = {RUNNER.invoke(cli.app, ["query", f"{m}.fc", *asked]).stdout
               for m in ("telco", "telco=telecom")}  # fmt: skip
    assert len(answers) == 1
    found = RUNNER.invoke(cli.app, ["evaluate", "telco.fc", "telco.csv", "--row-id", "telco=phone"])
    assert found.exit_code == 0 and "200 rows" in found.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["customer"],
            "no column 'customer'; there are 'phone', 'churn'; name its ids by --row-id",
        ),
        (["telco=fone", "bank=customer"], "did you mean 'phone'?"),
        (["customer", "phone"], "give --row-id PARTY=COLUMN for each"),
        (["bank=customer", "teleco=phone"], "row_id names 'teleco', which is not a party"),
    ],
)
def test_what_does_not_fit(words: list[str], problem: str) -> None:
    options = [word for column in words for word in ("--row-id", column)]
    found = RUNNER.invoke(cli.app, ["train", "bank.csv", "telco.csv", *options, "-o", "model.fc"])
    assert found.exit_code == 1 and problem in " ".join(found.stderr.split())
    assert not Path("model.fc").exists()
