"""The placement of a circuit's nodes on parties, and what each side holds after training: a party
its own leaves, the coordinator the graph above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from fedcircuits.circuits.graph.circuit import Circuit, Leaf
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

if TYPE_CHECKING:
    from fedcircuits.circuits.questions.distribution import Distribution

Placement = Mapping[str, str]  # ψ: the party of every node
Answers: TypeAlias = Literal["leaves", "root"]  # what the coordinator receives of a likelihood


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """What the coordinator holds: the graph, where its nodes live, the weights of its sums."""

    circuit: Circuit
    placement: Placement
    parameters: Parameters


@dataclass(slots=True)
class QuestionBudget:
    """How many query rows a party answers about a model; no limit without ``most``.

    ``least``: the number of its rows that an answer must be based on. These rows are ``table``,
    which the owner of the view supplies when it is queried and never sends or stores with it. The
    same holds for ``spend``, with which a site counts rows before it answers concurrent queries.
    """

    most: int | None = None
    answered: int = 0
    least: int = 0
    table: Table | None = field(default=None, init=False, repr=False)
    spend: Callable[[int, int], int] | None = field(default=None, init=False, repr=False)

    def after(self, rows: int, me: str, counted: int = 0) -> int | None:
        """The rows answered including these, if they are limited; QueryError if they exceed the
        limit. ``counted``: rows of the same query that were counted before.

        A role does not change its arguments: the owner of the view stores the new number.
        """
        if self.most is None:
            return None
        asked = self.answered + counted
        before = asked if self.spend is None else self.spend(rows, self.most)
        if before + rows > self.most:
            raise QueryError(
                f"{me} answers at most {self.most:,} query rows per model; {before:,} were asked "
                f"before and {rows:,} now: ask fewer, or have {me} raise most_questions"
            )
        return before + rows


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a party holds: its leaves, each a circuit over some of its columns."""

    whole: ClassVar[bool] = True  # leaves are asked with the budget that its owner gives

    me: str
    schema: Schema  # of its columns, as agreed
    leaves: tuple[Leaf, ...]
    parameters: Parameters
    allow_collect: bool = False
    budget: QuestionBudget = field(default_factory=QuestionBudget)
    answers: Answers = "leaves"
    _ready: dict[str, Distribution] = field(default_factory=dict, repr=False)

    def leaf(self, name: str) -> Distribution:
        """The distribution of a leaf that lives here."""
        if name not in self.parameters.circuits:
            raise FederationError(f"leaf {name!r} is not held by {self.me}")
        if name not in self._ready:
            from fedcircuits.circuits.questions.distribution import Distribution

            self._ready[name] = Distribution(*self.parameters.circuits[name])
        return self._ready[name]

    def __reduce__(self) -> tuple[type[View], tuple[object, ...]]:
        """Without what can be made again."""
        held = self.me, self.schema, self.leaves, self.parameters, self.allow_collect
        return View, (*held, self.budget, self.answers)


def leaves_at(circuit: Circuit, placement: Placement, party: str) -> list[Leaf]:
    return [leaf for leaf in circuit.leaves() if placement[leaf.name] == party]
