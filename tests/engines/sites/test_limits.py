"""A coordinator that goes around the limits of a site: by asking again, by flags of other types, by
results and masks of its own; and limits whose files are damaged or gone."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.app.sites import _questions
from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.store import QUESTIONS, Store
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Here, pack
from fedcircuits.methods.fedpc import query, training
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.methods.fusion import query as fusion
from fedcircuits.methods.private_forest.masks import MaskBatch, MaskStore
from fedcircuits.methods.private_forest.query import respond
from fedcircuits.methods.trees import training as trees
from fedcircuits.methods.trees.ensemble import respond as votes
from fedcircuits.methods.trees.growing import TreesPlan
from fedcircuits.methods.vertical import answers
from fedcircuits.privacy.arithmetic.field import FIELD
from tests.engines.sites.hostile import Hostile
from tests.engines.sites.local import LocalSites

TABLE = fc.Table.of(np.random.default_rng(0).normal(size=(60, 3)))
MEMBERS = ("party 1", "party 2", "party 3")
PLAN = FedPCPlan(MEMBERS)
ME = MEMBERS[0]


def hostile(folder: Path, policy: Policy) -> Hostile:
    parts = {p.name: p for p in fc.split(TABLE, 3, by="columns")}
    return Hostile(LocalSites(parts, folder, policy=policy))


def learning(plan: FedPCPlan, **more: object) -> Program[Any]:
    arguments = {"party": Here("party"), "plan": plan, "learner": fc.LearnSPN(), "secret": b""}
    return Program(training.client, {**arguments, **more})


ASKING: Program[Any] = Program(query.respond, {"view": 0, "completes": False, "seed": 0})


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (Policy(askers=("party *",)), "policy: askers"),
        (Policy(questions_per_day=0), "questions_per_day = 0"),
    ],
)
def test_what_was_refused_is_refused_when_it_is_asked_again(
    tmp_path: Path, policy: Policy, line: str
) -> None:
    """A run of that name was known, and its limits were taken for checked."""
    coordinator = hostile(tmp_path, policy)
    for again in (False, True, True):
        assert line in coordinator.begin(ME, ASKING, run="asked", again=again)
    assert not (tmp_path / ME / "runs" / "asked").exists()


def test_a_question_that_is_taken_up_again_is_counted_once(tmp_path: Path) -> None:
    coordinator = hostile(tmp_path, Policy(questions_per_day=1))
    for again in (False, True):
        assert coordinator.begin(ME, ASKING, run="asked", again=again) == ""
    assert "questions_per_day = 1" in coordinator.begin(ME, ASKING)
    assert Store(tmp_path / ME).questions() == 1


def test_a_caller_is_no_member_by_name(tmp_path: Path) -> None:
    """Whoever is at the coordinator asks as the coordinator, whatever it calls itself."""
    coordinator = hostile(tmp_path, Policy(askers=("party *",)))
    for asker in ("party 9", "party 2", CALLER):
        asked = Program(respond, {"view": 0, "masks": (), "asker": asker, "key": b""})
        there = asker if asker in MEMBERS else CALLER
        told = coordinator.begin(ME, asked, places={ME: ME, asker: there})
        assert ("policy: askers" in told) == (asker not in MEMBERS)


FLAGS: dict[str, tuple[Policy, Program[Any], str]] = {
    "a number": (Policy(), learning(replace(PLAN, share_clusters=1)), "share_clusters"),  # type: ignore[arg-type]
    "a text": (Policy(), learning(replace(PLAN, share_target="yes")), "share_target"),  # type: ignore[arg-type]
    "an array": (Policy(), learning(replace(PLAN, share_target=np.ones(1))), "share_target"),  # type: ignore[arg-type]
    "numpy's": (Policy(), learning(replace(PLAN, share_clusters=np.True_)), "share_clusters"),  # type: ignore[arg-type]
    "beside one that the site has set": (
        Policy(collect=True),
        learning(replace(PLAN, share_clusters=True), given=Here("collect")),
        "share_clusters",
    ),
    "a count that is no whole number": (
        Policy(),
        Program(
            trees.client,
            {"party": Here("party"), "plan": TreesPlan("x", least=float("nan")), "leaf": 0,  # type: ignore[arg-type]
             "secret": b""},
        ),
        "least_count",
    ),
    "rows that nobody counts": (
        Policy(most_questions=100), Program(votes, {"view": 0}), "most_questions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_other_types_are_flags(tmp_path: Path, flag: str) -> None:
    policy, program, line = FLAGS[flag]
    told = hostile(tmp_path, policy).begin(ME, program)
    assert f"policy: {line}" in told


def test_a_coordinator_brings_no_results(tmp_path: Path) -> None:
    """A party would take them for its own, such as masks that are marked as spent."""
    told = hostile(tmp_path, Policy()).begin(ME, ASKING, kept={"spending masks": 0})
    assert "the request contains results" in told


def test_a_coordinator_chooses_no_groups_of_rows(tmp_path: Path) -> None:
    """Leaves of groups that differ in one row, chosen in two trainings, would tell of this row."""
    for first in (0, 1):
        groups = np.zeros(len(TABLE), np.int64)
        groups[first:20] = 1
        told = hostile(tmp_path / str(first), Policy()).begin(ME, learning(PLAN, given=groups))
        assert "the request contains 'given'" in told


@pytest.mark.parametrize(
    ("role", "name"),
    [(answers.member, "learned"), (answers.answerer, "learned"), (fusion.respond, "view")],
)
def test_a_coordinator_brings_no_model(tmp_path: Path, role: Any, name: str) -> None:
    """What a component or an encoder of its choice says of a row of the site may be its values."""
    arguments = {name: {"mean": np.zeros(1)}, "party": Here("party")}
    told = hostile(tmp_path, Policy()).begin(ME, Program(role, arguments))
    assert f"the request contains {name!r}" in told


def test_groups_that_sites_have_found_together_are_used(tmp_path: Path) -> None:
    parts = {p.name: p for p in fc.split(TABLE, 3, by="columns")}
    federation = LocalSites(parts, tmp_path, policy=Policy()).federation()
    mixture = fc.VerticalGaussianMixture(2, random_state=0, tol=0.05).fit(federation)
    model = fc.FedPC(clusters=mixture, ensemble=1, random_state=0).fit(federation)
    assert np.isfinite(model.score_samples(TABLE.rows([0]))).all()


def test_a_coordinator_brings_no_masks(tmp_path: Path) -> None:
    """With masks that somebody knows, one of the parties reads what is opened under them."""
    known = MaskBatch("run", (("run", 0, 1),), *[FIELD.zeros((1, 2))] * 5)
    for masks in ((known,), [[known]]):
        asked = {"view": 0, "masks": masks, "asker": "spy", "key": b""}
        told = hostile(tmp_path, Policy()).begin(ME, Program(respond, asked))
        assert "the request contains masks" in told


@pytest.mark.parametrize(
    ("threads", "timeout", "said"),
    [
        (10**9, 30.0, ""),  # as many as there are cores: so many end the process
        (0, 30.0, "does not start a run"),
        (-1, 30.0, "does not start a run"),
        (1, 0.0, "does not start a run"),
        (1, float("nan"), "does not start a run"),
    ],
)
def test_a_site_decides_what_it_spends(
    tmp_path: Path, threads: int, timeout: float, said: str
) -> None:
    coordinator = hostile(tmp_path, Policy())
    where = {ME: ME, CALLER: CALLER}
    head = ["begin", "run", ME, "1", where, threads, timeout, False]
    coordinator.courier.send(ME, head, pack((ASKING, {})))
    kind, *_, told = coordinator.answer(ME, "ready", "refused")
    assert (said in str(told)) if said else kind == "ready"
    seats = coordinator.sites.stations[ME]._seats
    assert all(seat.threads <= (os.cpu_count() or 1) for seat in seats.values())


# ---------------------------------------------------------------------- damaged files


def no_check(asked: int) -> None:
    """Of a policy without a limit."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """That has been used before."""
    found = Store(tmp_path / "store")
    found.begin_counting()
    found.audit("begun")
    found.count_question(no_check)
    assert found.questions() == 1
    return found


def of_today(count: object) -> bytes:
    return json.dumps({time.strftime("%Y-%m-%d", time.gmtime()): count}).encode()


DAMAGES = [None, b"", b"{", b"[]", b"\xff\xfe", b"[" * 99_999, of_today("4"), of_today(-4)]


def damage(path: Path, data: bytes | None) -> None:
    """None: the file is lost."""
    assert path.is_file()
    path.unlink() if data is None else path.write_bytes(data)


@pytest.mark.parametrize("data", DAMAGES)
def test_a_lost_count_of_the_day_is_not_begun_anew(store: Store, data: bytes | None) -> None:
    """It was zero then, and the budget of a day was there again."""
    damage(store.folder / QUESTIONS, data)
    for one in (store, Store(store.folder)):  # also after a restart
        one.begin_counting()
        with pytest.raises(SiteError, match=r"operator must write {} into that file"):
            one.count_question(no_check)
        with pytest.raises(SiteError, match=r"questions\.json is damaged or missing"):
            one.questions()
        one.count_question(no_check, limited=False)  # nothing to exceed
    (store.folder / QUESTIONS).write_text("{}")  # as the error says
    store.count_question(no_check)
    assert store.questions() == 1


def test_the_status_of_a_site_says_so(store: Store) -> None:
    assert _questions(store) == "1"
    (store.folder / QUESTIONS).unlink()
    assert "questions.json is damaged or missing" in _questions(store)


@pytest.mark.parametrize("data", [None, b"", b"-5", b"1.5", b"\xff", b"[0]"])
def test_a_lost_count_of_rows_is_not_begun_anew(store: Store, data: bytes | None) -> None:
    store.keep_model("m", "north", 0)
    assert store.spend("m", "north", 3, most=5) == 0
    damage(store.folder / "models" / "m" / "north.answered", data)
    store.keep_model("m", "north", 0)  # by a run that is taken up again
    with pytest.raises(SiteError, match="operator must write 0 into that file"):
        store.spend("m", "north", 3, most=5)


@pytest.mark.parametrize("data", [None, b"", b"{}x", b"[[0]]", b"[[0, -1]]", b"7"])
def test_masks_whose_marks_are_lost_are_not_used(store: Store, data: bytes | None) -> None:
    """They could be those of another question."""
    store.keep_model("m", "north", MaskStore([]))
    marks = store.folder / "models" / "m" / ".taken.north"
    damage(marks, data)
    with pytest.raises(SiteError, match="damaged or missing: prepare anew"):
        Store(store.folder).hand_out("m", "north", 0, 1)


def test_a_site_that_has_lost_its_count_answers_nothing(tmp_path: Path) -> None:
    parts = {p.name: p for p in fc.split(TABLE, 3, by="columns")}
    sites = LocalSites(parts, tmp_path, policy=Policy(questions_per_day=2))
    small: dict[str, Any] = {"random_state": 0, "clusters": 2, "ensemble": 1}
    model = fc.FedPC(**small).fit(sites.federation())
    assert np.isfinite(model.score_samples(TABLE.rows([0]))).all()
    (tmp_path / ME / QUESTIONS).unlink()
    sites.restart(ME)
    with pytest.raises(FederationError, match=r"its operator must write {}"):
        model.score_samples(TABLE.rows([0]))
