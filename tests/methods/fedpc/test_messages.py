"""Malformed messages of training and of questions: whoever sent one is blamed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_messages
from tests.federation.cases import QUICK, federation, gaps, mixed_table

ROWS = fc.Table(mixed_table().schema, gaps()).rows([0, 1, 2, 3])


class Noted:
    """The memory engine, with the programs of its last run."""

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.programs = dict(programs)
        return memory.run(programs, kept)


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
