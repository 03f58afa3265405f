"""Arrays of bytes are images: counts of known range, in reading order; colours and back."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FedcircuitsError, StructureError, TableError
from fedcircuits.federation.agreement import agree
from fedcircuits.tables.images import rgb, ycocg, ycocg_schema
from fedcircuits.tables.schema import Schema, Variable


def test_bytes_are_counts_up_to_255() -> None:
    images = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)
    table = fc.Table.of(images)
    assert table.names[:2] == ("x0", "x1") and len(table.schema) == 20
    assert {(v.kind, v.most) for v in table.schema} == {("count", 255)}
    assert (table.values == images.reshape(2, -1)).all()
    again = fc.Table.of(images[:1], schema=table.schema)
    assert (again.values == table.values[:1]).all()


def test_bytes_of_zero_and_one_are_booleans() -> None:
    table = fc.Table.of(np.eye(3, dtype=np.uint8))
    assert {v.kind for v in table.schema} == {"boolean"}


def test_ranges_are_kept_in_files_and_agreed_upon() -> None:
    own = Schema((Variable("x", "count", most=255),))
    assert Schema.from_json(own.to_json()) == own
    other = Schema((Variable("x", "count", most=300),))
    assert agree({"a": own, "b": other})["x"].most == 300
    assert agree({"a": own, "b": Schema((Variable("x", "count"),))})["x"].most is None


@pytest.mark.parametrize("most", [0, -3, 2.5, True, "7"])
def test_a_range_is_a_whole_number(most: object) -> None:
    with pytest.raises(StructureError, match="most"):
        Variable("x", "count", most=most)  # type: ignore[arg-type]
    with pytest.raises(FedcircuitsError):
        Schema.from_json([{"name": "x", "kind": "count", "most": most}])


def test_only_counts_have_a_range() -> None:
    with pytest.raises(StructureError, match="most"):
        Variable("x", "real", most=7)


def test_a_value_beyond_the_range_is_refused() -> None:
    schema = Schema((Variable("x", "count", most=255),))
    with pytest.raises(TableError, match="up to 255"):
        fc.Table(schema, np.array([[256.0]]))


def test_colours_come_back_from_ycocg() -> None:
    corner = np.array([0, 1, 2, 127, 128, 254, 255], dtype=np.uint8)
    colours = np.stack(np.meshgrid(corner, corner, corner), axis=-1).reshape(-1, 3)
    levels = ycocg(colours)
    assert (rgb(levels) == colours).all()
    assert len({tuple(c) for c in levels.tolist()}) == len(colours)  # one to one
    table = fc.Table(ycocg_schema(1), levels.astype(float))  # refuses what is out of range
    assert levels.min() == 0 and table.schema["x1"].levels == 511


def test_other_arrays_are_no_colours() -> None:
    with pytest.raises(TableError, match="red, green and blue"):
        ycocg(np.zeros((4, 2), dtype=np.uint8))
