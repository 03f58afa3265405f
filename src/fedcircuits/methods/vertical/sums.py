"""The one primitive of vertical mixtures: terms of rows under K components, added over parties.

Every party has, for each of its rows, a number a component: its part of a log-density, or of a
negative squared distance. What a mixture needs of them is how components compare, so of K numbers
a row K − 1 differences to the last one travel, and one number for all rows:

    value   (K − 1) × rows differences, component by component; then Σ weight × last term
    result  what ``then`` makes of the sum over parties

A party adds 0 for rows that it does not hold: they count by what others know of them, which is
their exact marginal. A member without columns, such as a server, adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.methods.vertical.rows import Rows

LARGE = 1 << 20  # rows are told as two numbers, each exact in single precision
Terms = Callable[[slice], Array]  # (components, own rows) of a range of the member's own rows


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """One member's end of the sums over rows in the common order."""

    summation: Collective
    rows: Rows
    components: int

    @property
    def everything(self) -> slice:
        return slice(0, self.rows.total)

    def own(self, part: slice) -> slice:
        """The member's own rows in a range of the common order."""
        if self.rows.whole:
            return part
        first, last = np.searchsorted(self.rows.at, [part.start, part.stop])
        return slice(int(first), int(last))

    def held(self, values: Array, part: slice) -> Array:
        """Of values (…, rows of the range) those of the member's own rows."""
        if self.rows.whole:
            return values
        return values[..., self.rows.at[self.own(part)] - part.start]

    def position(self, row: int) -> int | None:
        """Where the member has a row of the common order."""
        at = int(np.searchsorted(self.rows.at, row))
        return at if at < len(self.rows.at) and self.rows.at[at] == row else None

    # ------------------------------------------------------------------ sums

    def compared(
        self,
        tag: str,
        terms: Terms | None,
        part: slice,
        reveals: str,
        then: Callable[[Array], Array],
    ) -> Flow[Array]:
        """``then`` of the differences and the number for all rows, added over members."""
        size = part.stop - part.start
        value = np.zeros((self.components - 1) * size + 1)
        if terms is not None:
            found, weight = terms(self.own(part)), self.held(self.rows.weight[part], part)
            apart = value[:-1].reshape(-1, size)
            if self.rows.whole:
                np.subtract(found[:-1], found[-1], out=apart)
            else:
                apart[:, self.rows.at[self.own(part)] - part.start] = found[:-1] - found[-1]
            value[-1] = weight @ found[-1]
        return (yield from self.summation.sum(tag, value, reveals, then))

    def full(
        self, tag: str, terms: Terms | None, reveals: str, then: Callable[[Array], Array]
    ) -> Flow[Array]:
        """``then`` of all terms (components, rows), added over members."""
        return (yield from self.summation.sum(tag, self._all(terms), reveals, then))

    def _all(self, terms: Terms | None) -> Array:
        value = np.zeros((self.components, self.rows.total))
        if terms is not None:
            value[:, self.rows.at] = terms(slice(0, len(self.rows.at)))
        return value

    def chosen(
        self, tag: str, value: Array, reveals: str, then: Callable[[Array], Array]
    ) -> Flow[int]:
        """The row that ``then`` (a ``row_code``) finds in a sum, as the leader has found it."""
        found = yield from self.summation.sum(f"{tag}/sum", value, reveals, then)
        told = yield from self.summation.agree(f"{tag}/row", found, "a row to begin at")
        return int(told[0]) * LARGE + int(told[1])

    def worst(self, tag: str, terms: Terms | None, log_weights: Array, reveals: str) -> Flow[int]:
        """The row that all components together explain worst."""
        counts = self.rows.weight > 0

        def then(total: Array) -> Array:
            found = np.logaddexp.reduce(total + log_weights[:, None], axis=0)
            return row_code(int(np.where(counts, found, np.inf).argmin()))

        return (yield from self.chosen(tag, self._all(terms), reveals, then))


def row_code(row: int) -> Array:
    return np.array(divmod(row, LARGE), dtype=np.float64)


def drawn(weight: Array, rng: np.random.Generator) -> int:
    """A row with a chance in proportion to its weight."""
    total = np.cumsum(weight)
    return min(int(np.searchsorted(total, rng.random() * total[-1], "right")), len(total) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """Responsibilities from summed differences: ``then`` of an E-step.

    Of K − 1 differences a row and the sum of last terms it makes K − 1 responsibilities a row and
    the log-likelihood of all rows.
    """

    log_weights: Array  # (components,)
    weight: Array  # (rows,)

    def __call__(self, total: Array) -> Array:
        last = self.log_weights[-1]
        out = np.empty(len(total))
        logits = out[:-1].reshape(-1, len(self.weight))
        np.add(
            total[:-1].reshape(logits.shape), (self.log_weights[:-1] - last)[:, None], out=logits
        )
        top = logits.max(axis=0, initial=0.0)
        logits -= top
        np.exp(logits, out=logits)
        size = logits.sum(axis=0) + np.exp(-top)
        logits /= size
        top += np.log(size)
        out[-1] = total[-1] + self.weight @ top + last * self.weight.sum()
        return out


def responsibilities(result: Array, components: int, rows: int) -> Array:
    """(components, rows) of a ``Normalised`` result."""
    first = result[:-1].reshape(components - 1, rows)
    return np.vstack([first, np.maximum(1.0 - first.sum(axis=0), 0.0)])
