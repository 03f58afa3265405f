"""Every protocol of the house keeps every law of check_protocol."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import fedcircuits as fc
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.meeting import intersection
from fedcircuits.methods.trees import ensemble, training
from fedcircuits.testing import check_protocol
from tests.federation.cases import QUICK, federation, gaps, mixed_table
from tests.methods.watched import Watched

ROWS = fc.Table(mixed_table().schema, gaps(12))
QUESTIONS: dict[str, Any] = {
    "density": lambda m: m.score_samples(ROWS),
    "event": lambda m: m.probability("age > 40 or smoker = True", given="weight > 58"),
    "mean": lambda m: m.expect("age"),
    "moments": lambda m: m.expect("visits", given="risk = 'high' and weight < 60"),
    "rows": lambda m: m.sample(4, random_state=2),
    "rows given": lambda m: m.sample(4, given="age > 40", random_state=2),
    "explanation": lambda m: m.explain(ROWS),
}


@functools.cache
def fitted(name: str, **settings: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    model = fc.FedPC(QUICK, clusters=3, random_state=0, **settings)
    return model.fit(federation(name), engine=engine), engine


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("rows", {}),
        ("rows", {"target": "risk"}),
        ("columns", {}),
        ("columns", {"weights": "sizes"}),
        ("columns", {"weights": "em"}),
        ("both", {"shared_leaves": "pooled", "refine": 1}),
        ("uneven", {"target": "risk", "share_target": True, "refine": 2}),
    ],
)
def test_one_pass(name: str, settings: dict[str, Any]) -> None:
    _, engine = fitted(name, **settings)
    programs = engine.programs[0]
    assert set(programs) == {COORDINATOR, *federation(name).names}
    check_protocol(programs)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        *(("uneven", question) for question in QUESTIONS),
        ("rows", "density"),
        ("rows", "rows given"),
    ],
)
def test_query(name: str, question: str) -> None:
    model, engine = fitted(name)
    before = len(engine.programs)
    QUESTIONS[question](model)
    programs = engine.programs[before:]
    assert any(len(own) > 1 for own in programs)
    for own in programs:
        check_protocol(own)


@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_bagging(by: Any) -> None:
    """Growing trees, and one question to them."""
    engine = Watched()
    trees = fc.FedTrees(target="risk", share_target=True, trees=2, random_state=0)
    trees.fit(fc.split(mixed_table(80), 3, by=by, target="risk", seed=2), engine=engine)
    trees.predict_proba(ROWS)
    roles = [p[COORDINATOR].function for p in engine.programs]
    assert roles == [training.coordinator, ensemble.ask]
    for programs in engine.programs:
        check_protocol(programs)


def test_intersection() -> None:
    try:
        keys = [intersection.new_key() for _ in range(3)]
    except ExtraMissingError as missing:
        pytest.skip(str(missing))
    first, *others = federation("uneven")
    names = [p.name for p in others]
    programs: dict[str, Program[Any]] = {
        first.name: Program(intersection.first, {"party": first, "others": names, "key": keys[0]})
    }
    for party, key in zip(others, keys[1:], strict=True):
        own = {"party": party, "first": first.name, "key": key}
        programs[party.name] = Program(intersection.other, own)
    check_protocol(programs)
