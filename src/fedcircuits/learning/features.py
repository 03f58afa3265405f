"""Columns laid out as features: a number is one feature, a category one indicator for each value.

Whoever learns from features does their scaling, and decides what a missing value stands for. What
they share is which feature comes from which column, and which category it indicates.

>>> from fedcircuits.tables.schema import Schema, Variable
>>> schema = Schema((Variable("age"), Variable("blood", "category", ("A", "B", "AB", "O"))))
>>> layout = FeatureLayout.of(schema)
>>> layout.values(np.array([[31.0, 2.0], [47.0, np.nan]]))
array([[31.,  0.,  0.,  1.,  0.],
       [47., nan, nan, nan, nan]])
>>> layout.names(schema)
('age', 'blood=A', 'blood=B', 'blood=AB', 'blood=O')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.tables.schema import Variable

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


def several(variable: Variable) -> bool:
    """Whether it has more than two categories: for two, the code serves as well as indicators."""
    return variable.size > 2


@dataclass(frozen=True, slots=True, eq=False)
class FeatureLayout:
    columns: Index  # (features,) the column that each one comes from
    codes: Index  # (features,) the category that it indicates; −1: it is the column itself
    starts: Index  # (columns + 1,) where the features of each column begin

    @classmethod
    def of(
        cls, variables: Iterable[Variable], indicated: Callable[[Variable], bool] = several
    ) -> FeatureLayout:
        """``indicated`` selects the variables that become indicators of their categories."""
        sizes = np.array([v.size if indicated(v) else 0 for v in variables], dtype=np.int64)
        widths = np.maximum(sizes, 1)
        starts = np.concatenate([[0], np.cumsum(widths)])
        columns = np.repeat(np.arange(len(sizes)), widths)
        codes = np.where(sizes[columns] > 0, np.arange(starts[-1]) - starts[columns], -1)
        return cls(columns, codes, starts)

    def __len__(self) -> int:
        return len(self.columns)

    def values(self, x: Array) -> Array:
        """Features (rows, features) of x (rows, columns); NaN stays NaN."""
        values = np.take(x, self.columns, axis=1)
        hot = self.codes >= 0
        if hot.any():
            codes = values[:, hot]
            values[:, hot] = np.where(np.isnan(codes), np.nan, codes == self.codes[hot])
        return values

    def names(self, variables: Iterable[Variable]) -> tuple[str, ...]:
        """The names of all features: the column, or "column=category"."""
        known = list(variables)
        return tuple(
            known[at].name if code < 0 else f"{known[at].name}={known[at].categories[code]}"
            for at, code in zip(self.columns, self.codes, strict=True)
        )


def features_of(starts: Index, columns: Index) -> tuple[Index, Index]:
    """The features of some columns, and where those of each column begin."""
    widths = np.diff(starts)[columns]
    new = np.concatenate([[0], np.cumsum(widths)])
    return np.repeat(starts[columns] - new[:-1], widths) + np.arange(new[-1]), new
