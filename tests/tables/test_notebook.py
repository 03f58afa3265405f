"""What notebooks show: captions, rows, and nothing that a cell could smuggle in."""

from __future__ import annotations

import re

import numpy as np

import fedcircuits as fc
from fedcircuits.tables.notebook import MOST, shown
from tests.federation.cases import QUICK, mixed_table


def cells(html: str) -> list[str]:
    return re.findall(r"<td[^>]*>(.*?)</td>", html)


def test_cells_are_escaped_and_long_tables_cut() -> None:
    html = shown("<b>", ["n"], [[f"<script>{i}"] for i in range(MOST + 5)])
    assert "<script>" not in html and "&lt;script&gt;0" in html and "<b>&lt;b&gt;</b>" in html
    assert len(cells(html)) == MOST and "… and 5 more" in html


def test_tables_and_federations() -> None:
    table = mixed_table(60)
    found = cells(table._repr_html_())
    assert found[:2] == ["age", "real"] and len(found) == 3 * len(table.names)
    parties = fc.split(table, ["north", "south"], by="columns")
    assert cells(parties._repr_html_())[:2] == ["north", "60"]


def test_models_before_and_after_fit() -> None:
    model = fc.FedPC(QUICK, clusters=1, method="one_pass", random_state=0)
    assert "not fitted yet" in model._repr_html_()
    model.fit(fc.split(mixed_table(60), ["north", "south"], by="columns"))
    html = model._repr_mimebundle_()["text/html"]
    assert "FedPC, fitted" in html and "north, south" in html
    assert f"{model.ledger_.bytes:,} bytes" in html and "Revealed" in html


def test_every_estimator_shows_itself() -> None:
    values = fc.Table.of(np.random.default_rng(0).normal(size=(40, 2)))
    for model in (fc.MixtureOfProducts(2), fc.FeatureFusion(), fc.FedTrees(), fc.PrivateForest(),
                  fc.VerticalKMeans(2)):  # fmt: skip
        assert type(model).__name__ in model._repr_html_()
    html = fc.MixtureOfProducts(2, random_state=0).fit(values)._repr_html_()
    assert cells(html)[:2] == ["columns", "2"]
