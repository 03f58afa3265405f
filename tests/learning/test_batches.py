"""Rows batch by batch: from memory, and from files of several row groups."""

import gc
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import fedcircuits as fc
from fedcircuits.errors import TableError
from fedcircuits.learning.batches import InMemory, ParquetRows


def mixed(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    frame = pd.DataFrame(
        {
            "height": rng.normal(160 + 20 * group, 5),
            "visits": rng.poisson(2 + 6 * group),
            "town": np.array(["Ulm", "Bonn", "Kiel"])[group + (rng.random(rows) < 0.2)],
            "job": pd.Categorical.from_codes(group, ["part", "full"]),
            "smokes": rng.random(rows) < 0.2 + 0.5 * group,
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.05)


def saved(frame: pd.DataFrame, path: Path, group: int) -> Path:
    frame.to_parquet(path, row_group_size=group, index=False)
    return path


# ---------------------------------------------------------------------- memory


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_arrays_that_may_not_be_written_to(rng: np.random.Generator | None) -> None:
    x, weight = np.arange(6.0).reshape(3, 2), np.ones(3)
    x.flags.writeable = weight.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, weights in InMemory(x, weight).batches(2, rng):
            assert weights is not None
            torch.from_numpy(rows), torch.from_numpy(weights)
        model = fc.MixtureOfProducts(1, random_state=0).fit(x, sample_weight=weight)
    assert np.isfinite(model.score(x))


def test_arrays_that_may_be_written_to_are_not_copied() -> None:
    x = np.zeros((3, 2))
    assert InMemory(x).values is x


def test_rows_are_drawn_by_weight() -> None:
    x, rng = np.arange(4.0)[:, None], np.random.default_rng(0)
    rows = InMemory(x, np.array([0.0, 1.0, 3.0, 0.0]))
    assert rows.some(4, rng)[:, 0].tolist() == [1, 2, 2, 2]
    drawn = np.concatenate([rows.some(1, rng)[:, 0] for _ in range(400)])
    assert set(drawn) == {1, 2} and np.mean(drawn == 2) == pytest.approx(0.75, abs=0.08)
    np.testing.assert_array_equal(InMemory(x, np.full(4, 0.3)).some(9, rng), x)


def test_means_are_by_weight() -> None:
    x = np.arange(3.0)[:, None]
    assert InMemory(x).mean(np.array([1.0, 2.0, 6.0])) == 3.0
    assert InMemory(x, np.array([3.0, 1.0, 0.0])).mean(np.array([1.0, 2.0, 6.0])) == 1.25
    assert InMemory(x, np.array([3.0, 1.0, 0.0])).rows(np.array([0, 2])).weight == 3.0


# ---------------------------------------------------------------------- files


def test_a_file_means_what_its_table_means(tmp_path: Path) -> None:
    path = saved(mixed(500), tmp_path / "rows.parquet", 90)
    source, table = ParquetRows(path), fc.Table.read(path)
    assert source.schema == table.schema
    some = np.isfinite(table.values).any(axis=1)
    found = np.vstack([x for x, _ in source.batches(64, None)])
    np.testing.assert_array_equal(found, table.values[some])


LATE = pd.DataFrame(
    {
        "text": ["b"] * 30 + ["a", "c"],
        "count": [0, 1] * 15 + [7, 3],
        "real": [1.0] * 30 + [2.5, 0.0],
        "negative": [1] * 31 + [-4],
        "gap": [None] * 30 + [1.5, 2.5],
        "flag": [0, 1] * 16,
        "whole": [2.0, np.nan] + [3.0] * 30,
    }
)


@pytest.mark.parametrize("group", [1, 10, 30, 100])
def test_late_rows_tell_kinds_and_categories(tmp_path: Path, group: int) -> None:
    class FirstAlone(ParquetRows):
        first = 1

    path = saved(LATE, tmp_path / "late.parquet", group)
    assert FirstAlone(path).schema == fc.Table.of(LATE).schema


def test_identifiers_are_refused_unless_they_are_meant(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": [f"person {i}" for i in range(300)], "x": np.arange(300.0)})
    path = saved(frame, tmp_path / "names.parquet", 50)
    with pytest.warns(UserWarning, match="'name': names or addresses of persons"):
        assert ParquetRows(path).schema.names == ("x",)
    assert ParquetRows(path, row_id="name").schema.names == ("x",)
    assert ParquetRows(path, kinds={"name": "category"}).schema["name"].size == 300
    levels = [*frame["name"], "person 300"]
    assert ParquetRows(path, categories={"name": levels}).schema["name"].size == 301


def test_rows_without_a_value_are_left_out(tmp_path: Path) -> None:
    path = saved(
        pd.DataFrame({"x": [None, 1.5, None], "y": [None, 2.5, None]}), tmp_path / "a.pq", 1
    )
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ParquetRows(path).some(9, rng), [[1.5, 2.5]])
    nothing = saved(pd.DataFrame({"x": [np.nan] * 3}), tmp_path / "b.pq", 2)
    with pytest.raises(TableError, match="all values are missing"):
        ParquetRows(nothing, fc.Schema((fc.Variable("x"),))).some(2, rng)


def test_files_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "none.parquet")
    with pytest.raises(TableError, match="expected a table with rows"):
        ParquetRows(tmp_path / "none.parquet")


def peak(path: Path) -> int:
    """Bytes held at most while the file was gone through, with all else that the process does."""

    class InSmallPieces(ParquetRows):
        piece = 1_000

    source = InSmallPieces(path)
    gc.collect()
    tracemalloc.start()
    for _ in source.batches(100, np.random.default_rng(0)):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("group", [1_000, 100_000], ids=["many groups", "one group"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, group: int) -> None:
    frame = mixed(100_000)
    assert peak(saved(frame, tmp_path / "rows.parquet", group)) < 8 * frame.size / 4
