"""A fusion of owners at sites of their own: rows and encoders stay there, answers are the same."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Held, Here, own_key
from fedcircuits.learning.encoders.encoders import NetworkEncoder
from fedcircuits.methods.fusion.gathering import Showing
from fedcircuits.methods.fusion.query import OwnerView, respond
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table
from tests.engines.sites.hostile import Hostile
from tests.engines.sites.local import LocalSites
from tests.engines.sites.relays import NatsRelay, nats_server, needs_server
from tests.engines.sites.witness import Overheard, arrays_in, found_in, within

ROWS = 48
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
SPEEDS = RNG.normal(size=(5, ROWS, 8)) + EVENT[:, None]
IDS = np.array([f"row {r}" for r in range(ROWS)])
NAMES = ("north", "east", "south", "west", "harbour")
OPEN = Policy(share_target=True, share_representations=True)


def owners(count: int = 3, labels: Any = EVENT) -> fc.Federation:
    """In different orders, of series of different lengths: no two learn in one computation. The
    first has labels, the second lacks some rows, the last has ordinary columns."""
    tables: dict[str, fc.Table] = {}
    for i, name in enumerate(NAMES[:count]):
        order = np.random.default_rng(i).permutation(ROWS)[: ROWS - 6 * (i == 1)]
        speed = SPEEDS[i][order]
        said = {"event": labels[order]} if i == 0 else {}
        if i == count - 1:
            columns = {f"c{k}": speed[:, k] for k in range(3)} | {"id": IDS[order]}
            tables[name] = fc.Table.of({**columns, **said}, row_id="id")
        else:
            series = {"speed": speed[:, : 4 + i]}
            tables[name] = fc.Table.from_series(series, said or None, IDS[order])
    return fc.Federation(tables)


FEW = {n: fc.BestEncoder(["summary", fc.SequenceEncoder(width=3, epochs=2)]) for n in NAMES}
FEW = {**FEW, NAMES[1]: "rocket"}  # type: ignore[dict-item]


def learner(**options: Any) -> fc.FeatureFusion:
    encoder = {n: fc.SequenceEncoder(width=3, epochs=2) for n in NAMES}
    encoder = {**encoder, **options.pop("encoder", {})}
    settings: dict[str, Any] = {"epochs": 3, "graph_draws": 2, "random_state": 0, "task": "auto"}
    return fc.FeatureFusion(encoder, **{"target": "event", "share_target": True, **settings,
                                        **options})  # fmt: skip


def fusion(count: int = 3, **options: Any) -> fc.FeatureFusion:
    model = learner(**options)
    model.encoder[NAMES[count - 1]] = fc.TabularEncoder(hidden=(5,), width=3, epochs=2)
    return model


def sites_of(federation: fc.Federation, folder: Path, **more: Any) -> LocalSites:
    return LocalSites({p.name: p for p in federation}, folder, **{"policy": OPEN, **more})


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (3, {}),
        (4, {"head": "vote", "encoder": FEW}),
        (5, {"traffic": "int8", "clip": 2.0, "encoder": FEW}),
        (3, {"align": None, "graph": "complete", "summation": fc.Secret()}),
    ],
)
def test_learned_and_asked_at_sites(tmp_path: Path, count: int, options: dict[str, Any]) -> None:
    local = owners(count)
    here, there = fusion(count, **options).fit(local), fusion(count, **options)
    sites = sites_of(local, tmp_path)
    federation = sites.federation()
    there.fit(federation)
    assert list(there.views_) == list(here.views_)
    assert all(isinstance(view, Held) for view in there.views_.values())
    assert there.ledger_.bytes == here.ledger_.bytes and there.notes_ == here.notes_
    assert there.history_.equals(here.history_) and there.circuit_ == here.circuit_
    assert np.array_equal(there.predict_proba(federation), here.predict_proba(local))
    truth = EVENT[_order(local)]
    assert there.score(federation, truth) == here.score(local, truth)
    assert there.score(federation) == here.score(local)
    same = np.array_equal(there.opinions(federation), here.opinions(local), equal_nan=True)
    assert same and there.queries_.bytes == here.queries_.bytes
    if "summation" not in options:
        few = local.names[1:]
        found = there.predict_proba(federation.select(few))
        assert np.array_equal(found, here.predict_proba(local.select(few)))


def _order(local: fc.Federation) -> Any:
    ids = local["north"].table.row_ids
    assert ids is not None
    return np.array([int(str(i).split()[1]) for i in ids])


def test_rows_and_encoders_stay_with_their_owners(tmp_path: Path) -> None:
    local = owners()
    sites = sites_of(local, tmp_path)
    overheard, federation = Overheard(sites), sites.federation()
    model = fusion().fit(federation)
    model.score(federation)
    secret: list[Any] = []
    for name, view in model.views_.items():
        assert isinstance(view, Held)
        store = sites.stations[name].store
        assert store is not None
        kept = store.model(view.model, name)
        assert isinstance(kept, OwnerView) and isinstance(kept.encoder, NetworkEncoder)
        table = local[name].table
        secret += [kept.encoder.weights_, *table.series.values()]
        secret += [table.values] if name == "south" else []
    assert len(secret) == 6 and found_in(b"".join(s.tobytes() for s in secret), secret)
    assert not found_in(overheard.bytes, secret)
    assert not found_in(b"".join(a.tobytes() for a in arrays_in(vars(model))), secret)
    assert not [v for v in within(vars(model)) if isinstance(v, OwnerView)]
    described = federation["north"].table
    assert {n: a.shape for n, a in described.series.items()} == {"speed": (0, 4, 1)}
    assert "1 variables and 1 series" in repr(described)
    for name in federation.names:
        with pytest.raises(FederationError, match="cannot be read here"):
            assert federation[name].table.values.size


def test_parties_find_out_what_is_predicted(tmp_path: Path) -> None:
    """Numbers that may be classes are looked at where they are."""
    labels = EVENT + 2 * (RNG.random(ROWS) < 0.3)
    local = owners(labels=labels)
    assert local.schema["event"].kind == "count"
    federation = sites_of(local, tmp_path / "a").federation()
    here, there = fusion().fit(local), fusion().fit(federation)
    assert there.classes() == here.classes() == tuple(sorted(set(labels.tolist())))
    assert np.array_equal(there.predict_proba(federation), here.predict_proba(local))
    told = {(e.sender, e.reveals) for e in there.ledger_ if e.tag == "agree/classes"}
    assert ("north", "the distinct values of its target, if they are few whole numbers") in told
    number = fusion(task="number").fit(federation)
    expected = fusion(task="number").fit(local)
    assert np.array_equal(number.predict(federation), expected.predict(local))
    with pytest.raises(PartyLostError):
        fusion(head="threshold").fit(federation)


def test_other_rows_are_asked_about_where_they_are(tmp_path: Path) -> None:
    """A site that was stopped and started with new rows, and one that stays away."""
    local, new = owners(), owners()
    rows = {p.name: p.table.rows(np.arange(5, 20)) for p in new}
    sites = sites_of(local, tmp_path, patience=20.0)
    here, there = fusion().fit(local), fusion().fit(sites.federation())
    for name, table in rows.items():
        sites.kill(name)
        party = sites.sites[name]
        assert isinstance(party, Party)
        sites.sites[name] = replace(party, table=Table.of(table))
        if name != "south":
            sites.start(name)
    few = fc.Federation({n: t for n, t in rows.items() if n != "south"})
    sites.remote.sites = ("north", "east")
    for name in sites.remote.sites:  # the caller hears that they were started again
        while True:
            with suppress(PartyLostError):
                sites.remote.describe(name, 2.0)
                break
    found = there.predict_proba(sites.federation())
    assert np.array_equal(found, here.predict_proba(few))


def test_saved_and_asked_by_another_caller(tmp_path: Path) -> None:
    local = owners()
    sites = sites_of(local, tmp_path / "sites")
    federation = sites.federation()
    model = fusion().fit(federation, name="traffic")
    expected = model.predict_proba(federation)
    model.save(tmp_path / "fusion.fc")
    later = fc.load(tmp_path / "fusion.fc")
    assert isinstance(later, fc.FeatureFusion)
    again = sites.new_caller()
    assert np.array_equal(later.reconnect(again).predict_proba(again), expected)


def test_a_target_is_told_if_the_policy_allows_it(tmp_path: Path) -> None:
    policy = Policy(share_representations=True)
    federation = sites_of(owners(), tmp_path, policy=policy).federation()
    with pytest.raises(PartyLostError, match="share_target = false"):
        fusion().fit(federation)
    alone = fusion(share_target=False)
    with pytest.warns(UserWarning, match="learned without labels"):
        alone.fit(federation)
    with pytest.raises(
        FederationError, match="learned without labels and cannot predict on its own"
    ):
        alone.opinions(federation)


def test_representations_are_shown_if_the_policy_allows_it(tmp_path: Path) -> None:
    """The coordinator chooses the encoder, which may pass columns on, and the column that is the
    label."""
    sites = sites_of(owners(), tmp_path, policy=Policy(share_target=True))
    with pytest.raises(PartyLostError, match="share_representations = false"):
        fusion().fit(sites.federation())
    audits = "".join(path.read_text() for path in tmp_path.glob("*/audit.jsonl"))
    assert '"tag": "gather/rows"' not in audits


QUESTIONS: list[tuple[Policy, dict[str, Any], str]] = [
    (Policy(share_representations=True), {}, "share_target = false"),
    (OPEN, {"view": None}, "has more columns than a target"),
    (OPEN, {"view": None, "target": Variable("age")}, "has more columns than a target"),
    (OPEN, {"target": Variable("age")}, "a query is about this target"),
    (OPEN, {"showing": Showing()}, "as in training, got clip=None"),
]


@pytest.mark.parametrize(("policy", "changed", "said"), QUESTIONS)
def test_a_question_reads_no_other_column_and_takes_no_noise_away(
    tmp_path: Path, policy: Policy, changed: dict[str, Any], said: str
) -> None:
    """Once it named any column as its target, and got its values."""
    parts = {
        "north": fc.Table.of({"id": IDS, "age": SPEEDS[0, :, 0], "event": EVENT}, row_id="id"),
        "south": fc.Table.of({"id": IDS, "load": SPEEDS[1, :, 0]}, row_id="id"),
    }
    sites = sites_of(fc.Federation(parts), tmp_path)
    model = fc.FeatureFusion(
        target="event", share_target=True, epochs=1, clip=1.0, noise=0.5, random_state=0
    ).fit(sites.federation())
    sites.policy = policy
    sites.restart("north")
    showing = replace(model._showing, key=own_key("noise"))
    asked = {
        "view": model.views_["north"], "party": Here("party"), "members": ("north",),
        "target": model.fusion_.target, "showing": showing, "secret": own_key("secret"),
        "tells": True,
    }  # fmt: skip
    assert said in Hostile(sites).runs("north", Program(respond, {**asked, **changed}))
    audit = (tmp_path / "north" / "audit.jsonl").read_text()
    assert '"tag": "query/truth"' not in audit


@needs_server
def test_over_a_server(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    local = owners()
    with nats_server(tmp_path / "server", [*local.names, "coordinator"]) as server:
        sites = sites_of(local, tmp_path, relay=NatsRelay(server))
        federation = sites.federation()
        model = fusion().fit(federation)
        found = model.predict_proba(federation.select(["north", "south"]))
    expected = fusion().fit(local).predict_proba(local.select(["north", "south"]))
    assert np.array_equal(found, expected)
