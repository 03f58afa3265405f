"""Tables that lie on the cluster: row groups and files that workers read themselves."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.engines.ray import RayEngine
from fedcircuits.errors import FederationError
from fedcircuits.tables.stored import StoredTable
from tests.federation.cases import QUICK, mixed_frame

if find_spec("ray") is None:
    reason = "the engine 'ray' needs fedcircuits[ray]: make test-engines"
    pytest.skip(reason, allow_module_level=True)

ENGINE = RayEngine(workers=2, timeout=120.0)


def test_row_groups_are_read_by_workers(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=900), "n": rng.poisson(3, 900)})
    frame.to_parquet(path, row_group_size=100)
    parties = fc.split(path, 3)
    there = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(parties, engine=ENGINE)
    here = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(parties)
    assert np.array_equal(there.score_samples(frame), here.score_samples(frame))


def test_files_that_lie_on_the_cluster(tmp_path: Path) -> None:
    frame = mixed_frame().assign(patient=np.arange(150))
    columns = {"north": ["patient", "age", "colour"], "south": ["patient", "weight", "risk"]}
    for name, own in columns.items():
        frame[own].to_csv(tmp_path / f"{name}.csv", index=False)
    paths = {name: tmp_path / f"{name}.csv" for name in columns}
    there = ENGINE.federation(paths, "patient", allow_collect=True)
    assert (there.kind, len(there["north"].table)) == ("vertical", 150)
    assert isinstance(there["north"].table, StoredTable)
    found = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(there)
    here = fc.Federation(paths, "patient", allow_collect=True)
    expected = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(here)
    assert found.circuit_ == expected.circuit_
    question = ("risk = high", "age > 40")
    assert found.probability(*question) == pytest.approx(expected.probability(*question), rel=1e-9)
    with pytest.raises(
        FederationError, match=r"party 'north', where its worker is: .*no such file"
    ):
        ENGINE.federation({"north": tmp_path / "absent.csv"})
