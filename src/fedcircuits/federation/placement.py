"""Where the nodes of a circuit live, and what is held of it after training: a party has its own
leaves and nothing of others, the coordinator the graph above them."""

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
Answers: TypeAlias = Literal["leaves", "root"]  # what the coordinator is told of a likelihood


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """What the coordinator holds: the graph, where its nodes live, the weights of its sums."""

    circuit: Circuit
    placement: Placement
    parameters: Parameters


@dataclass(slots=True)
class QuestionBudget:
    """How many rows of questions a party answers about a model; no limit without ``most``.

    ``least``: of its rows that must be behind an answer. They are ``table``, which the owner of the
    view gives when it is asked, and never sends or keeps with it. So is ``spend``, by which a site
    counts rows before they are answered, of all questions that are asked at once.
    """

    most: int | None = None
    answered: int = 0
    least: int = 0
    table: Table | None = field(default=None, init=False, repr=False)
    spend: Callable[[int, int], int] | None = field(default=None, init=False, repr=False)

    def after(self, rows: int, me: str) -> int | None:
        """What is answered with these rows too, where it matters; QueryError if it is too much.

        A role does not change its arguments: whoever keeps the view takes the new number.
        """
        if self.most is None:
            return None
        before = self.answered if self.spend is None else self.spend(rows, self.most)
        if before + rows > self.most:
            raise QueryError(
                f"{me} answers {self.most:,} rows of questions about a model, {before:,} were "
                f"asked before and {rows:,} now: ask fewer, or {me} must raise most_questions"
            )
        return before + rows


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a party holds: its leaves, each a circuit over some of its columns."""

    whole: ClassVar[bool] = True  # leaves are asked with the budget that its owner gives

    me: str
    schema: Schema  # of its own columns, as agreed
    leaves: tuple[Leaf, ...]
    parameters: Parameters
    allow_collect: bool = False
    budget: QuestionBudget = field(default_factory=QuestionBudget)
    answers: Answers = "leaves"
    _ready: dict[str, Distribution] = field(default_factory=dict, repr=False)

    def leaf(self, name: str) -> Distribution:
        """The distribution of a leaf that lives here."""
        if name not in self.parameters.circuits:
            raise FederationError(f"leaf {name!r} does not live at {self.me}")
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
