"""A decision tree as arrays: what is stored and sent instead of another library's object.

Node 0 is the root, children stand behind their parents. A node asks one question of one column:

    category < 0    is the number at most ``threshold``? (in single precision, as scikit-learn asks)
    category ≥ 0    is the code another than ``category``?

yes goes to the first child, no to the second, a missing value where ``missing_first`` says. A node
without children has −1 for both, and its row of ``value`` is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Schema

Whole = npt.NDArray[np.int64]
AnyArrays = Mapping[str, npt.NDArray[np.generic]]
GREATEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTree:
    """Questions and answers of every node, in arrays of one length.

    >>> tree = FlatTree(
    ...     children=np.array([[1, 2], [-1, -1], [-1, -1]]),
    ...     column=np.array([0, 0, 0]),
    ...     category=np.array([-1, -1, -1]),
    ...     threshold=np.array([1.5, 0.0, 0.0]),
    ...     missing_first=np.array([True, False, False]),
    ...     value=np.array([[0.5], [0.2], [0.8]]),
    ... )
    >>> tree.answers(np.array([[1.0], [2.0], [np.nan]])).ravel().tolist()
    [0.2, 0.8, 0.2]
    """

    children: Whole  # (nodes, 2)
    column: Whole  # (nodes,)
    category: Whole  # (nodes,)
    threshold: Array  # (nodes,)
    missing_first: npt.NDArray[np.bool_]  # (nodes,)
    value: Array  # (nodes, outputs)

    @classmethod
    def checked(cls, arrays: AnyArrays, schema: Schema, outputs: int) -> FlatTree:
        """A tree from arrays of unknown origin, over the columns of ``schema``."""
        _check_form(arrays, outputs)
        tree = cls(**{f.name: arrays[f.name] for f in fields(cls)})  # type: ignore[arg-type]
        tree._check_graph()
        tree._check_questions(schema)
        return tree

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def answers(self, x: Array) -> Array:
        """(rows, outputs) of x (rows, columns), NaN missing."""
        node = np.zeros(len(x), dtype=np.int64)
        active = np.arange(len(x))
        while len(active):
            active = active[self.children[node[active], 0] >= 0]
            at = node[active]
            value = x[active, self.column[at]]
            node[active] = self.children[at, np.where(self._first(value, at), 0, 1)]
        return np.asarray(self.value[node])

    def _first(self, value: Array, at: Whole) -> npt.NDArray[np.bool_]:
        """Whether values go to the first child of their nodes."""
        category = self.category[at]
        single = np.clip(value, -GREATEST, GREATEST).astype(np.float32)
        yes = np.where(category < 0, single <= self.threshold[at], value != category)
        return np.where(np.isnan(value), self.missing_first[at], yes)

    def _check_graph(self) -> None:
        """Every node but the root has one parent, which stands before it."""
        inner = self.children[:, 0] >= 0
        if ((self.children >= 0) != inner[:, None]).any() or (self.children < -1).any():
            raise ParameterError("a decision tree: a node must have two children or −1 for both")
        below = self.children[inner]
        number = np.flatnonzero(inner)[:, None]
        sorted_ = np.sort(below.ravel())
        if (below <= number).any() or not np.array_equal(sorted_, np.arange(1, len(self.children))):
            raise ParameterError(
                "a decision tree: every node but the first must be the child of one node before it"
            )

    def _check_questions(self, schema: Schema) -> None:
        inner = self.children[:, 0] >= 0
        column, category = self.column[inner], self.category[inner]
        if ((column < 0) | (column >= len(schema))).any():
            raise ParameterError(f"a decision tree: columns must be from 0 to {len(schema) - 1}")
        sizes = np.array([v.size for v in schema])
        if (category >= sizes[column]).any():
            at = int(column[category >= sizes[column]][0])
            raise ParameterError(
                f"a decision tree: it asks for a category that {schema.names[at]!r} has not"
            )
        # an infinite threshold sends all that is known one way and what is missing the other
        if np.isnan(self.threshold).any() or not np.isfinite(self.value).all():
            raise ParameterError("a decision tree: thresholds and values must be numbers")


def _check_form(arrays: AnyArrays, outputs: int) -> None:
    shapes = {
        "children": ("i", (2,)),
        "column": ("i", ()),
        "category": ("i", ()),
        "threshold": ("f", ()),
        "missing_first": ("b", ()),
        "value": ("f", (outputs,)),
    }
    if set(arrays) != set(shapes):
        raise ParameterError(
            f"a decision tree: expected the arrays {', '.join(shapes)}, got "
            f"{', '.join(sorted(arrays)) or 'none'}"
        )
    nodes = len(arrays["column"]) if arrays["column"].ndim else 0
    for name, (kind, trailing) in shapes.items():
        found = arrays[name]
        if not nodes or found.dtype.kind != kind or found.shape != (nodes, *trailing):
            raise ParameterError(
                f"a decision tree: expected {name} of the shape {(max(nodes, 1), *trailing)} and "
                f"kind {kind!r}, got {found.shape} of {found.dtype}"
            )
