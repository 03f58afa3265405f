"""Malformed messages: whoever sent one is blamed; for those of training see also test_runs.py."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_messages
from tests.federation.cases import QUICK, federation, gaps, mixed_table
from tests.methods.watched import Watched

ROWS = fc.Table(mixed_table().schema, gaps()).rows([0, 1, 2, 3])


class Noted:
    """The memory engine, with the programs of its last run."""

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.programs = dict(programs)
        return memory.run(programs, kept)


# ---------------------------------------------------------------------- training


def test_sizes_without_content_blame_their_sender() -> None:
    """A client that says nothing of its clusters, or of clusters of fewer rows."""
    tables = {p.name: p.table.rows(slice(0, 60)) for p in federation("columns")}
    parties = fc.Federation(tables, allow_collect=True)
    rows = len(parties["south"].table)
    for wrong, field, problem in (
        ({"sizes": {}}, "sizes", "asked for clusters of divisions"),
        ({"sizes": {0: []}}, "sizes", f"expected clusters of its {rows} rows"),
        ({"sizes": {0: [rows - 1]}}, "sizes", f"clusters of its {rows} rows"),
        ({"sizes": {0: [-1, rows + 1]}}, "sizes", "Expected `int` >= 0"),
        ({"sizes": {0: [rows]}, "collect": "yes"}, "collect", "Expected `bool`, got `str`"),
        ({"sizes": {0: [rows]}, "alone": {1: 0.0}}, "alone", "numbers of its divisions"),
        ({"sizes": {0: [rows]}, "alone": {0: 1e9}}, "alone", "<= 1000"),
        ({"sizes": {0: [rows]}, "alone": None}, "alone", "Expected `object`, got `None`"),
    ):
        wrong = {"collect": False, "alone": {}} | wrong
        engine = Watched({("south", "count/sizes"): lambda _, wrong=wrong: wrong})
        with pytest.raises(PartyLostError) as lost:
            fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0).fit(parties, engine=engine)
        assert lost.value.party == "south"
        assert f"south sent 'count/sizes' that does not fit, field '{field}" in str(lost.value)
        assert problem in str(lost.value)


# ---------------------------------------------------------------------- questions


@functools.cache
def fitted() -> tuple[fc.FedPC, Noted]:
    engine = Noted()
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    return model.fit(federation("uneven"), engine=engine), engine


QUESTIONS: dict[str, Any] = {
    "density": lambda m: m.score_samples(ROWS),
    "event": lambda m: m.probability("age > 40 and smoker = True", given="weight > 58"),
    "moments": lambda m: m.expect("age", given="risk = 'high' and weight < 60"),
    "sample": lambda m: m.sample(2, given="age > 40", random_state=2),
    "explanation": lambda m: m._distribution.completed_within(
        ROWS.select(m.schema_.names).values, {}, None
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_messages_of_questions(question: str) -> None:
    model, engine = fitted()
    QUESTIONS[question](model)
    assert check_messages(lambda: dict(engine.programs)) > 50
