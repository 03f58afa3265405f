"""What a site's owner forbids is refused at the site, with the line of its policy, whatever a
coordinator asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.policy import METHODS, ROLES, Policy, PolicyError
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import (
    FederationError,
    ParameterError,
    PartyLostError,
    ProtocolError,
    SiteError,
)
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Effect, Flow, Program, Send, through
from fedcircuits.federation.messages import encode_fields, fields_of
from fedcircuits.federation.recipes import Held, Here, Own
from fedcircuits.methods.fedpc import query, training
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.methods.fedpc.training import UsedLeaves
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.tokens import hidden_rows
from fedcircuits.methods.private_forest.parameters import opening
from fedcircuits.methods.trees import training as trees
from fedcircuits.methods.trees.ensemble import respond as votes
from fedcircuits.methods.trees.growing import TreesPlan
from fedcircuits.methods.vertical.rows import columns_at
from fedcircuits.privacy.differential import Noise
from fedcircuits.privacy.sharing.randomness import Stream
from tests.engines.sites.hostile import Hostile
from tests.engines.sites.local import LocalSites

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(120, 1)) + RNG.normal(size=(120, 4))
TABLE = fc.Table.of(VALUES)
FLAGS = fc.Table.of(VALUES.round() > 0)
MEMBERS = ("party 1", "party 2", "party 3")
PLAN = FedPCPlan(MEMBERS)
SMALL: dict[str, Any] = {"random_state": 0, "clusters": 2, "ensemble": 1}


def sites_of(
    folder: Path, policy: Policy, table: fc.Table = TABLE, by: Any = "columns"
) -> LocalSites:
    return LocalSites({p.name: p for p in fc.split(table, 3, by=by)}, folder, policy=policy)


def learning(plan: object = PLAN, **more: object) -> Program[Any]:
    arguments = {"party": Here("party"), "plan": plan, "learner": fc.LearnSPN()}
    return Program(training.client, {**arguments, "secret": b"", **more})


def audits(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*/audit.jsonl"))


@pytest.mark.parametrize(
    ("policy", "settings", "line"),
    [
        (Policy(roles=("trees.*",)), {}, "roles"),
        (Policy(least_rows=500), {}, "least_rows = 500"),
        (Policy(withheld=("rows/tokens",)), {}, "withheld"),
        (Policy(private_rows=True), {}, "private_rows = true"),
        (Policy(), {"share_clusters": True}, "share_clusters = false"),
        (Policy(), {"target": "x0", "share_target": True}, "share_target = false"),
    ],
)
def test_what_the_policy_of_a_site_forbids_is_refused_there(
    tmp_path: Path, policy: Policy, settings: dict[str, Any], line: str
) -> None:
    sites = sites_of(tmp_path, policy, FLAGS if "target" in settings else TABLE)
    with pytest.raises(PartyLostError, match=line):
        fc.FedPC(random_state=0, **settings).fit(sites.federation())
    assert line in audits(tmp_path)


HOSTILE: dict[str, tuple[Policy, Program[Any], str]] = {
    "another role": (Policy(roles=("trees.*",)), learning(), "policy: roles"),
    "a part of a role": (
        Policy(),
        Program(columns_at, {"me": "x", "party": Here("party"), "rows": None, "hubs": []}),
        "vertical.rows:columns_at is not a role that sites play",
    ),
    "few rows": (Policy(least_rows=121), learning(), "least_rows = 121"),
    "classes": (Policy(), learning(replace(PLAN, share_target=True)), "share_target = false"),
    "clusters": (Policy(), learning(replace(PLAN, share_clusters=True)), "share_clusters = false"),
    "a flag within": (
        Policy(),
        learning(given=[{"deep": (PLAN, replace(PLAN, share_clusters=True))}]),
        "share_clusters = false",
    ),
    "a flag by its name": (
        Policy(),
        learning(given={"further": {"share_target": True}}),
        "share_target = false",
    ),
    "columns": (Policy(), learning(given={"share_columns": True}), "share_columns = false"),
    "tokens": (Policy(private_rows=True), learning(), "private_rows = true"),
    "tokens within": (
        Policy(private_rows=True),
        learning(replace(PLAN, rows="private"), given={"rule": "tokens"}),
        "private_rows = true",
    ),
    "small counts": (
        Policy(),
        Program(
            trees.client,
            {"party": Here("party"), "plan": TreesPlan("x", least=1), "leaf": 0, "secret": b""},
        ),
        "least_count = 5",
    ),
    "a model": (
        Policy(),
        Program(opening, {"me": "party 1", "forest": 0, "shares": 0, "allow": True, "key": b""}),
        "collect = false",
    ),
    "sums that show its part": (Policy(hidden_sums=True), learning(), "hidden_sums = true"),
    "a key for tokens": (Policy(), learning(secret=bytes(32)), "the request contains a key"),
    "a key for masks": (
        Policy(),
        learning(replace(PLAN, summation=fc.Masked(key=bytes(32)))),
        "the request contains a key",
    ),
    "a key for noise": (
        Policy(),
        learning(given={"noise": Noise(1.0, 1, 3, bytes(32))}),
        "the request contains a key",
    ),
    "a made-up party": (
        Policy(),
        learning(party=Party("party 1", TABLE, least_count=1)),
        "roles use the site's own",
    ),
    "questions of a stranger": (
        Policy(askers=("party *",)),
        Program(query.respond, {"view": 0, "completes": False, "seed": 0}),
        "policy: askers",
    ),
    "no question": (
        Policy(questions_per_day=0),
        Program(query.respond, {"view": 0, "completes": False, "seed": 0}),
        "questions_per_day = 0",
    ),
    "an answer of unknown rows": (
        Policy(least_rows_behind=10),
        Program(votes, {"view": 0}),
        "least_rows_behind = 10",
    ),
}


@pytest.mark.parametrize("asked", HOSTILE)
def test_a_coordinator_that_asks_for_more_is_refused(tmp_path: Path, asked: str) -> None:
    policy, program, line = HOSTILE[asked]
    hostile = Hostile(sites_of(tmp_path, policy))
    assert line in hostile.begin("party 1", program)
    assert line in (tmp_path / "party 1" / "audit.jsonl").read_text()


def test_a_recipe_is_a_role_and_its_places_are_those_of_the_site(tmp_path: Path) -> None:
    sites = sites_of(tmp_path, Policy())
    model = fc.FedPC(**SMALL).fit(sites.federation())
    held = model.views_["party 2"]
    assert isinstance(held, Held)
    hostile = Hostile(sites)
    asking = {"completes": False, "seed": 0}
    for what, told in (
        (Program(query.respond, {"view": held, **asking}), "has nothing for Held"),
        (Program(query.respond, {"view": Held(held.model, "party 1"), **asking}), ""),
        (learning(party=Here("policy")), "has nothing for Here"),
        ("no program", "not a recipe of a role"),
        ({"function": "training.client"}, "not a recipe of a role"),
        (Program(Program, {"function": 1}), "not a role that sites play"),
    ):
        assert told in hostile.begin("party 1", what), what
    assert hostile.begin("party 1", learning(secret=Own("../secret"))) == "ProtocolError"


@pytest.mark.parametrize(
    "places",
    [
        {"party 1": "party 1", "party 2": CALLER, CALLER: CALLER},  # reads what is for another
        {"party 1": "party 1", "party 2": "party 3", CALLER: CALLER},
        {"party 1": "party 1", "one": CALLER, "two": CALLER},  # makes up members
        {"party 1": "party 1", "party 2": CALLER},
        {"party 1": CALLER, CALLER: CALLER},
    ],
)
def test_parties_live_at_their_own_sites(tmp_path: Path, places: dict[str, str]) -> None:
    hostile = Hostile(sites_of(tmp_path, Policy()))
    assert "places parties at sites other" in hostile.begin("party 1", learning(), places)
    assert "places parties at sites other" in hostile.begin("party 1", learning(), party="party 2")


def test_a_key_that_is_no_bytes_hides_nothing() -> None:
    """A hash takes arrays too, and these a recipe may bring."""
    known: Any = np.arange(32, dtype=np.uint8)
    with pytest.raises(ProtocolError, match="expected bytes"):
        derived(known, "tokens")
    with pytest.raises(ProtocolError, match="needs its own secret"):
        next(hidden_rows("a", np.arange(3), ("a", "b"), known))
    with pytest.raises(ParameterError, match="expected 32 bytes"):
        Stream(known, "masks")


# ---------------------------------------------------------------------- what messages ask for


def changed(plan: FedPCPlan, tag: str, field: str, value: object) -> Flow[Any]:
    """A coordinator that says something else in one of its messages."""

    def handle(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send) and effect.tag == tag:
            fields = fields_of(effect.data)
            fields[field] = value if not callable(value) else value(fields[field])
            effect = replace(effect, data=encode_fields(fields))
        return (yield effect)

    return (yield from through(training.coordinator(plan), handle))


def exchanging(tasks: Any) -> Any:
    return [{**task, "exchange": True} for task in tasks]


@pytest.mark.parametrize(
    ("tag", "field", "value", "by", "settings"),
    [
        ("agree/plan", "holders", ["party 2"], "columns", {"target": "x0"}),
        ("rows/plan", "tasks", exchanging, "columns", {}),
        (UsedLeaves.tag, "refine", True, "columns", {}),
        (UsedLeaves.tag, "refine", True, "rows", {"refine": 2}),
    ],
)
def test_a_plan_that_is_changed_on_the_way_is_refused(
    tmp_path: Path, tag: str, field: str, value: object, by: Any, settings: dict[str, Any]
) -> None:
    federation = sites_of(tmp_path, Policy(), FLAGS, by).federation()
    estimator = fc.FedPC(**SMALL, **settings)
    honest = estimator._programs

    def programs(*about: Any) -> Any:
        made = dict(honest(*about))
        plan = made[COORDINATOR].arguments["plan"]
        asked = {"plan": plan, "tag": tag, "field": field, "value": value}
        return {**made, COORDINATOR: Program(changed, asked)}

    estimator._programs = programs  # type: ignore[method-assign]
    with pytest.raises((PartyLostError, FederationError), match=r"coordinator|policy: collect"):
        estimator.fit(federation)
    sent = audits(tmp_path)
    assert not any(word in sent for word in ('"labels/target"', '"clusters/own"', '"em/leaves"'))


def test_messages_that_an_owner_must_allow_do_not_leave() -> None:
    """Whoever asks for them, and however."""
    shared = ("share_target", "share_clusters", "share_columns", "share_representations")
    for line in ("collect", *shared):
        message = Send("other", "some/tag", b"", "something", line)
        with pytest.raises(PolicyError, match=f"{line} = false"):
            Policy().check_message(message)
        Policy(**{line: True}).check_message(message)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- questions


def test_questions_are_counted_by_the_day_and_by_the_row(tmp_path: Path) -> None:
    sites = sites_of(tmp_path, Policy(questions_per_day=2, most_questions=5))
    model = fc.FedPC(**SMALL).fit(sites.federation())
    model.score_samples(TABLE.rows([0, 1, 2]))
    for name in MEMBERS:  # what was answered stays answered
        sites.kill(name)
        sites.start(name)
    with pytest.raises(FederationError, match="could not be answered"):
        model.score_samples(TABLE.rows([0, 1, 2]))
    with pytest.raises(FederationError, match="questions_per_day = 2"):
        model.score_samples(TABLE.rows([0, 1]))
    assert '"questions_per_day = 2' not in audits(tmp_path)  # a line of its own, in words
    assert "no more queries today (policy: questions_per_day = 2)" in audits(tmp_path)


def test_questions_at_once_do_not_overrun_a_budget(tmp_path: Path) -> None:
    """Each is counted before it is answered, and no two in one moment."""
    store = Store(tmp_path)
    store.begin_counting()
    store.keep_model("m", "north", 0)

    def ask(number: int) -> bool:
        return store.spend("m", "north", 3, most=20) + 3 <= 20

    def question(number: int) -> bool:
        def check(asked: int) -> None:
            if asked >= 5:
                raise SiteError("no more queries today")

        try:
            store.count_question(check)
        except SiteError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(40))) == 6  # 18 of 20 rows
        assert sum(threads.map(question, range(40))) == store.questions() == 5


def test_answers_that_few_rows_are_behind_are_refused(tmp_path: Path) -> None:
    table = fc.Table.of({"age": np.arange(120.0) / 2, "smoker": np.arange(120) < 4,
                         "risk": np.where(VALUES[:, 0] > 0, "high", "low")})  # fmt: skip
    policy = Policy(least_rows_behind=10, least_count=2)
    sites = sites_of(tmp_path, policy, table)
    model = fc.FedPC(**SMALL).fit(sites.federation())
    assert 0 < model.probability("risk = high", given="age > 30") < 1
    for question in ("age > 56", "smoker = true"):
        with pytest.raises(FederationError, match="least_rows_behind = 10"):
            model.probability("risk = high", given=question)
    assert "least_rows_behind = 10" in audits(tmp_path)
    holder = next(name for name, p in sites.sites.items() if p and "age" in p.table.schema)
    sites.sites[holder] = Party(holder, fc.Table.of({"years": np.arange(120.0)}))
    sites.restart(holder)  # its columns have changed since it has learned
    with pytest.raises(FederationError, match="least_rows_behind = 10"):
        model.probability("risk = high", given="age > 30")


# ---------------------------------------------------------------------- the list of roles


def test_every_role_is_a_flow_of_a_method() -> None:
    for name, role in ROLES.items():
        module, _, function = name.partition(":")
        assert isgeneratorfunction(_function(name)), (module, function)
        assert role.tells and (not role.needs or hasattr(Policy(), role.needs))


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(METHODS + module), function)
