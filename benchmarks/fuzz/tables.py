"""Tables from objects: columns of odd values, types, names and shapes, and of absurd scale.

What becomes a table must hold finite numbers or NaN, and can be shown, written and read again. Some
are learned from: densities are then numbers, or learning is refused.
"""

import datetime
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from benchmarks.fuzz.judging import Attempt, pick, require

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**53 + 1, 2**63, 2**64, 10**400, -(10**5000), 0.5, float("nan"),
    float("inf"), -float("inf"), 1e308, -1e308, 1e300, 5e-324, "", "a", "b", "1", "1e999", "nan",
    "9" * 400, "\ud800", "\0", "é", "x" * 5000, b"a", bytearray(b"a"), 1j, Decimal("NaN"),
    Decimal("Infinity"), Decimal("1e500"), Decimal("1.5"), Fraction(1, 3), Fraction(10**400),
    (1,), [1], {}, set(), object(), ..., type, np.float16(1), np.float32("inf"), np.int8(-1),
    np.uint64(2**64 - 1), np.str_("a"), np.bool_(True), np.longdouble("1e4000"), np.array([1, 2]),
    np.datetime64("NaT"), np.datetime64("2020"), np.timedelta64(1), pd.NA, pd.NaT, pd.Timestamp(0),
    pd.Interval(0, 1), pd.Period("2020"), pd.Series([1]), pd.DataFrame(), datetime.date(2020, 1, 1),
    range(3), slice(1), memoryview(b"ab"),
)  # fmt: skip
DTYPES = (
    "f2", "f4", "f8", ">f8", "g", "i1", "u1", "i8", ">i4", "u8", "?", "c8", "c16", "U3", "S3", "O",
    "M8[ns]", "m8[s]", "V4", "Float64", "Int8", "UInt64", "boolean", "string", "category",
    "Sparse[float]", "period[D]", "datetime64[ns, UTC]",
)  # fmt: skip
NAMES: tuple[Any, ...] = (
    "a", "b", "c", "", " ", "a", "\ud800", "\0", 0, 1, None, True, 1.5, float("nan"), ("a", "b"),
    b"a", "x" * 1000, "and", "`", pd.Timestamp(0), "__index_level_0__", "row_id", frozenset(),
)  # fmt: skip
SCALES = (1.0, 1e-300, 5e-324, 1e16, 1e100, 1e154, 1e155, 1e300, 1.7e308)


def prepare(folder: Path) -> Attempt:
    def attempt(rng: np.random.Generator, number: int) -> None:
        table = fc.Table.of(_data(rng), **_options(rng))
        require(not np.isinf(table.values).any(), "a table with infinite values")
        repr(table).encode()
        json.dumps(table.schema.to_json(), ensure_ascii=False).encode()
        again = fc.Table.of(table.to_pandas(), schema=table.schema, partial=True)
        same = np.array_equal(again.values, table.values, equal_nan=True)
        require(same, "a table that is another one when it is read again")
        if number % 10 == 0:
            _learned(table)

    return attempt


def _learned(table: Any) -> None:
    model = fc.MixtureOfProducts(2, max_iter=3, random_state=0).fit(table)
    scores = model.score_samples(table)
    require(not np.isnan(scores).any(), f"log-likelihoods {scores[:3].tolist()}")
    means = model.expect([n for n in table.names if table.schema[n].kind in ("real", "count")])
    require(not means["mean"].isna().any(), f"means {means['mean'].tolist()}")


def _options(rng: np.random.Generator) -> dict[str, Any]:
    if rng.random() < 0.7:
        return {}
    kinds = ("real", "count", "category", "boolean", "odd", None, 3)
    options: dict[str, Any] = {
        "names": ["a", "b"], "row_id": pick(rng, NAMES), "kinds": {"a": pick(rng, kinds)},
        "units": {"a": pick(rng, ("cm", "\ud800", 5))}, "partial": True, "unseen": "missing",
        "categories": {"a": [pick(rng, ODD) for _ in range(int(rng.integers(4)))]},
        "schema": fc.Schema((fc.Variable("a"), fc.Variable("b", "category", ("a", "b")))),
    }  # fmt: skip
    chosen = rng.choice(list(options), int(rng.integers(1, 3)), replace=False)
    return {str(name): options[str(name)] for name in chosen}


def _data(rng: np.random.Generator) -> Any:
    rows = int(rng.choice([0, 1, 2, 5, 30]))
    match int(rng.integers(10)):
        case 0:
            return _array(rng, rows)
        case 1:
            return _other(rng, rows)
        case 2 | 3:
            columns = [_column(rng, rows) for _ in range(int(rng.integers(1, 4)))]
            return _frame(rng, columns)
        case 4 | 5:
            scale = float(pick(rng, SCALES))
            values = rng.normal(size=(max(rows, 2), 2)) * scale
            whole = rng.integers(0, 5, max(rows, 2)) * float(pick(rng, SCALES))
            return {"a": values[:, 0], "b": values[:, 1], "c": whole}
    count = int(rng.integers(4))
    return {pick(rng, NAMES): _column(rng, rows) for _ in range(count)}


def _column(rng: np.random.Generator, rows: int) -> Any:
    match int(rng.integers(8)):
        case 0:
            return [pick(rng, ODD) for _ in range(rows)]
        case 1:
            odd = pick(rng, ODD)
            return [odd if rng.random() < 0.3 else float(i) for i in range(rows)]
        case 2:
            odd = pick(rng, ODD)
            return [odd if rng.random() < 0.3 else pick(rng, ("a", "b")) for i in range(rows)]
        case 3:
            return _typed(rng, rows)
        case 4:
            return pick(rng, ODD)
        case 5:
            return [pick(rng, ODD)] * rows
    return rng.normal(size=rows).tolist()


def _typed(rng: np.random.Generator, rows: int) -> Any:
    numbers = rng.integers(0, 3, rows)
    dtype = pick(rng, DTYPES)
    try:
        series = pd.Series(numbers).astype(dtype) if len(dtype) > 3 else numbers.astype(dtype)
    except (TypeError, ValueError):  # no such column can be made
        return numbers
    return series


def _frame(rng: np.random.Generator, columns: list[Any]) -> Any:
    names = [pick(rng, NAMES) for _ in columns]
    try:
        frame = pd.concat([pd.Series(c) for c in columns], axis=1)
        frame.columns = pd.Index(names, dtype=object)
        return frame.set_index(frame.columns[0]) if rng.random() < 0.1 else frame
    except Exception:  # pandas makes no frame of it
        return {str(i): c for i, c in enumerate(columns)}


def _array(rng: np.random.Generator, rows: int) -> Any:
    shape = [(rows,), (rows, 2), (rows, 0), (0, 2), (rows, 2, 2), (), (2, rows)][rng.integers(7)]
    array = rng.integers(0, 3, shape)
    dtype = pick(rng, DTYPES[:19])
    try:
        array = array.astype(dtype)
    except (TypeError, ValueError):
        pass
    if rng.random() < 0.2:
        array = np.zeros(rows, [("a", "f8"), ("b", dtype), ("c", "f8", (2,))][: rng.integers(1, 4)])
    return array


def _other(rng: np.random.Generator, rows: int) -> Any:
    table = fc.Table.of({"a": [1.0, 2.5], "b": ["x", "y"]})
    wide = int(rng.choice([30, 300]))
    return pick(
        rng,
        (table, [table, table], (table,), [], [[1, 2]], "file.csv", b"", 5, None, object(), {},
         iter([1]),
         {"a": table}, {"a": {"b": [1]}}, {"a": "text"}, {"a": 1}, pd.Series([1.0]), pd.DataFrame(),
         pd.DataFrame(index=range(rows)), np.ma.masked_array([[1.0, 2.0]], [[True, False]]),
         np.zeros((2, wide)), {f"x{i}": [1.0] for i in range(wide)}, {"a": [2**62, 2**62 + 1]},
         {"a": [float(i) for i in range(rows)], "b": ["\ud800"] * rows}, pd.DataFrame(
            np.ones((2, 4)), columns=pd.MultiIndex.from_product([["a", "b"], ["c", "d"]]))),
    )  # fmt: skip
