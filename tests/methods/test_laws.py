"""Every protocol of the house keeps every law of check_protocol."""

from __future__ import annotations

import functools
from typing import Any, get_args

import pytest

import fedcircuits as fc
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.meeting import alignment, intersection
from fedcircuits.methods.meeting.alignment import AlignmentPlan
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.trees import ensemble, training
from fedcircuits.testing import check_messages, check_protocol
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
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0, **settings)
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
        check_protocol(own, without=[] if question == "rows given" else ["processes"])


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


@pytest.mark.parametrize("rows", get_args(RowRule))
def test_alignment(rows: RowRule) -> None:
    try:
        intersection.openmined()
    except ExtraMissingError as missing:
        pytest.skip(str(missing))
    parties = federation("uneven")
    plan = AlignmentPlan(parties.names, rows)
    programs: dict[str, Program[Any]] = {
        COORDINATOR: Program(alignment.coordinator, {"plan": plan})
    }
    for i, party in enumerate(parties):
        own = {"party": party, "plan": plan, "secret": bytes([i]) * 32}
        programs[party.name] = Program(alignment.member, own)
    check_protocol(programs)
    assert check_messages(programs) > 10
