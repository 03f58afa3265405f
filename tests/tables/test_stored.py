"""Tables that lie in files, and parquet files that are split by row groups."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, TableError
from fedcircuits.federation.recipes import pack, unpack
from fedcircuits.tables.stored import StoredTable
from tests.unsealed import processes

QUICK = fc.MixtureOfProducts(2, max_iter=5)


def written(folder: Path, rows: int = 1_000, group: int = 90) -> tuple[Path, pd.DataFrame]:
    rng = np.random.default_rng(0)
    side = rng.random(rows) < 0.4
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=rows) + 3 * side,
            "n": rng.poisson(3, rows),
            "word": np.where(side, "left", "right"),
        }
    )
    path = folder / "rows.parquet"
    frame.to_parquet(path, row_group_size=group)
    return path, frame


def test_row_groups_are_all_rows_once(tmp_path: Path) -> None:
    path, frame = written(tmp_path)
    parties = fc.split(path, 3)
    whole = fc.Table.of(frame)
    assert parties.kind == "horizontal" and parties.schema == whole.schema
    assert sum(len(p.table) for p in parties) == 1_000
    assert max(len(p.table) for p in parties) - min(len(p.table) for p in parties) <= 90
    ids = np.concatenate([p.table.row_ids for p in parties])  # type: ignore[misc]
    assert sorted(ids.tolist()) == list(range(1_000))
    for party in parties:
        assert isinstance(party.table, StoredTable)
        assert np.array_equal(party.table.values, whole.values[party.table.row_ids])
        assert party.table.select("n").values.tolist() == party.table.values[:, [1]].tolist()
        assert party.table.rows([2, 5]).values.tolist() == party.table.values[[2, 5]].tolist()


def test_only_its_place_crosses(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    table = fc.split(path, 2)["party 2"].table
    for data, opened in ((pack(table), unpack), (pickle.dumps(table), pickle.loads)):
        assert len(data) < 2_000
        assert np.array_equal(opened(data).values, table.values)


@pytest.mark.parametrize("engine", ["memory", processes])
def test_learned_as_if_it_were_in_memory(tmp_path: Path, engine: Any) -> None:
    path, frame = written(tmp_path)
    stored = fc.split(path, 3)
    loaded = fc.Federation({p.name: p.table.loaded() for p in stored}, allow_collect=True)  # type: ignore[attr-defined]
    settings = {"clusters": 2, "ensemble": 1, "random_state": 0, "refine": 1}
    one = fc.FedPC(QUICK, **settings).fit(stored, engine=engine)
    other = fc.FedPC(QUICK, **settings).fit(loaded)
    assert np.array_equal(one.score_samples(frame), other.score_samples(frame))
    tree = fc.ChowLiuTree(summation=fc.Hub()).fit(fc.split(_words(tmp_path), 3), engine=engine)
    assert tree.score_samples(pd.DataFrame({"a": ["u"], "b": ["v"]})).shape == (1,)


def _words(folder: Path) -> Path:
    rng = np.random.default_rng(1)
    path = folder / "words.parquet"
    words = {name: rng.choice(["u", "v"], 300) for name in "ab"}
    pd.DataFrame(words).to_parquet(path, row_group_size=50)
    return path


def test_one_part_at_a_time_is_in_memory(tmp_path: Path) -> None:
    rows, columns, parts = 320_000, 8, 32
    values = np.random.default_rng(2).normal(size=(rows, columns))
    path = tmp_path / "large.parquet"
    names = [f"x{i}" for i in range(columns)]
    pd.DataFrame(values, columns=names).to_parquet(path, row_group_size=rows // parts)
    del values
    rows_of_file = fc.ParquetRows(path, fc.Schema.real(columns))
    parties = fc.split(rows_of_file, parts)
    learner = fc.MixtureOfProducts(1, max_iter=1)
    model = fc.FedPC(learner, clusters=1, random_state=0)
    few = parties.select(parties.names[:3])  # as many as take the way of all
    model.fit(few)  # what is loaded and compiled at the first fit does not count
    gc.collect()
    tracemalloc.start()
    model.fit(parties)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = rows * columns * 8
    assert peak < whole, f"{peak:,} bytes at once, the whole table has {whole:,}"


def test_what_cannot_be_split(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    with pytest.raises(FederationError, match="12 row groups, which cannot be split over 20"):
        fc.split(path, 20)
    with pytest.raises(FederationError, match="does not support by="):
        fc.split(path, 2, by="columns")
    with pytest.raises(TableError, match="there is no such file"):
        fc.split(tmp_path / "absent.parquet", 2)
    table = fc.split(path, 2)["party 1"].table
    written(tmp_path, 500, 45)
    with pytest.raises(TableError, match="the file has changed"):
        assert table.values.size
    path.unlink()
    with pytest.raises(TableError, match="there is no such file"):
        assert table.values.size


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_text("id,town\n" + "".join(f"{i},{'ash' if i < 8 else 'elm'}\n" for i in range(10)))
    table = StoredTable.of_file(str(path), "id", least=5)
    assert table.schema["town"].categories == ("ash", "other") and len(table) == 10
    assert table.row_ids is not None and table.row_ids.tolist() == list(range(10))
    assert table.column("town").tolist()[-1] == "other"
