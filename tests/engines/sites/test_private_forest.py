"""A private forest at sites of their own: shares and masks stay there, and no mask serves twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Held, Once, own_key
from fedcircuits.methods.private_forest import query
from fedcircuits.methods.private_forest.masks import MaskBatch, MaskStore, prepare
from fedcircuits.methods.private_forest.model import ForestView, ModelShares
from tests.engines.sites.local import LocalSites
from tests.engines.sites.relays import NatsRelay, nats_server, needs_server
from tests.engines.sites.striking import Striking
from tests.engines.sites.witness import Overheard, arrays_in, found_in, within
from tests.estimators.tables import CLOSE, table

TABLE = table(150)
ROWS = TABLE.rows(np.arange(3))
OPEN = Policy(collect=True)


def parties(count: int, allow: bool = True, **more: fc.Table) -> dict[str, Party | None]:
    found: dict[str, Party | None] = {
        p.name: p for p in fc.split(TABLE, count, seed=2, allow_collect=allow)
    }
    return found | {name: Party(name, rows) for name, rows in more.items()}


def learner(**settings: Any) -> fc.PrivateForest:
    chosen = {"structures": 1, "units": 3, "max_iter": 3, "random_state": 1, **settings}
    return fc.PrivateForest(**chosen)


def kept(sites: LocalSites, name: str, handle: object) -> Any:
    assert isinstance(handle, Held) and handle.party == name
    store = sites.stations[name].store
    assert store is not None
    return store.model(handle.model, name)


def preparation(model: fc.PrivateForest) -> dict[str, Held]:
    [made] = model._holders.masks
    return {me: store for me, store in made.stores.items() if isinstance(store, Held)}


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (3, {}),
        (4, {"combine": "em"}),
        (5, {"combine": "concatenate", "units": 5, "marginals": True}),
    ],
)
def test_learned_and_asked_at_sites(tmp_path: Path, count: int, settings: dict[str, Any]) -> None:
    """The same forest as in memory: to the last bit, if parties open it."""
    here = learner(**settings).fit(fc.split(TABLE, count, seed=2, allow_collect=True))
    sites = LocalSites(parties(count), tmp_path, policy=OPEN)
    there = learner(**settings).fit(sites.federation())
    assert there.circuit_ == here.circuit_ and there.total_ == here.total_
    assert there.history_ == here.history_
    assert there.ledger_.bytes == here.ledger_.bytes
    assert all(isinstance(view, Held) for view in there.views_.values())
    clear = here.open_parameters()
    np.testing.assert_allclose(there.score_samples(ROWS), clear.score_samples(ROWS), atol=CLOSE)
    found = there.predict_proba(ROWS, "ill")
    np.testing.assert_allclose(found, clear.predict_proba(ROWS, "ill"), atol=CLOSE)
    opened = there.open_parameters().score_samples(ROWS)
    np.testing.assert_allclose(opened, clear.score_samples(ROWS), atol=1e-7)


def test_saved_and_asked_by_another_caller(tmp_path: Path) -> None:
    sites = LocalSites(parties(3), tmp_path / "sites", policy=OPEN)
    model = learner(combine="em", sealed=True).fit(sites.federation(), name="ill")
    expected = model.prepare(2).score_samples(ROWS)
    model.save(tmp_path / "forest.fc")
    later = fc.load(tmp_path / "forest.fc")
    assert isinstance(later, fc.PrivateForest) and later.asked_ == {"asker": 3}
    with pytest.raises(FederationError, match="connect to them"):
        later.score_samples(ROWS)
    later.reconnect(sites.new_caller())
    np.testing.assert_allclose(later.score_samples(ROWS), expected, atol=2 * CLOSE)
    assert later.asked_ == {"asker": 6} and model.asked_ == {"asker": 3}


def test_the_caller_has_no_share(tmp_path: Path) -> None:
    """Neither in what it holds nor in anything it received, though it has asked."""
    sites = LocalSites(parties(3, allow=False), tmp_path, policy=Policy())
    overheard = Overheard(sites)
    model = learner().fit(sites.federation()).prepare(4)
    model.connect("clinic").score_samples(ROWS)
    secret: list[Any] = []
    for name, view in model.views_.items():
        shares = kept(sites, name, view).shares
        assert isinstance(shares, ModelShares)
        masks = kept(sites, name, preparation(model)[name])
        secret += [*shares.arrays.values(), *arrays_in(masks)]
        party = sites.sites[name]
        assert party is not None
        secret.append(party.table.values)
    assert len(secret) > 15 and found_in(b"".join(s.tobytes() for s in secret), secret)
    assert not found_in(overheard.bytes, secret)
    held = [*within(model), *within(vars(model))]
    assert not [v for v in held if isinstance(v, ForestView | ModelShares | MaskStore | MaskBatch)]
    assert not found_in(b"".join(a.tobytes() for a in arrays_in(vars(model))), secret)
    with pytest.raises(FederationError, match="policy: collect = false"):
        model.open_parameters()


def test_an_outsider_asks_at_its_own_site(tmp_path: Path) -> None:
    """A site that has not trained: nobody else has its points, nor the answers."""
    asked = TABLE.rows(np.arange(40, 52))
    sites = LocalSites(parties(3, clinic=asked), tmp_path, policy=OPEN)
    overheard, federation = Overheard(sites), sites.federation()
    model = learner().fit(federation.select(["party 1", "party 2", "party 3"]))
    clear = model.open_parameters()
    overheard.frames.clear()
    for name, rows in (("clinic", asked), ("party 2", sites.sites["party 2"].table)):  # type: ignore[union-attr]
        handle = model.score_party(federation[name])
        answers = kept(sites, name, handle)
        np.testing.assert_allclose(answers, clear.score_samples(rows), atol=CLOSE)
        assert not found_in(overheard.bytes, [answers])
    audit = (tmp_path / "clinic" / "audit.jsonl").read_text()
    assert "query/points" in audit and "query/exponents" not in audit
    with pytest.raises(QueryError, match="clinic has its own site"):
        model.connect("clinic").score_samples(ROWS)


def test_a_site_that_is_started_again_has_its_masks(tmp_path: Path) -> None:
    """Those that are left, and never those that were used."""
    sites = LocalSites(parties(3), tmp_path, policy=OPEN, patience=20.0)
    model = learner().fit(sites.federation()).prepare(5)
    clear = model.open_parameters().score_samples(ROWS)
    handles = preparation(model)
    crossed = len(model.queries_)
    for rows in (ROWS, ROWS.rows([0, 1])):
        for name in ("party 1", "party 3"):
            sites.kill(name)
            sites.start(name)
        found = model.score_samples(rows)
        np.testing.assert_allclose(found, clear[: len(rows)], atol=CLOSE)
    assert {e.phase for e in model.queries_.entries[crossed:]} == {"query"}
    for span in ((0, 3), (2, 4), (3, 5)):
        with pytest.raises(FederationError, match=r"used up|handed out before"):
            again(model, handles, span)
    store = sites.stations["party 1"].store
    assert (
        store is not None
        and not (store.folder / "models" / handles["party 1"].model).joinpath("party 1").exists()
    ), "used masks are gone"


def test_a_site_that_is_killed_while_it_is_asked_answers(tmp_path: Path) -> None:
    """With the same masks for the same points, in whatever round it dies."""
    watch = Striking("party 2", [])
    watch.sites = sites = LocalSites(parties(3), tmp_path, policy=OPEN, patience=20.0, watch=watch)
    model = learner().fit(sites.federation()).prepare(9)
    clear = model.open_parameters().score_samples(ROWS)
    for phase in ("spending masks", "query/exponents", "query/root"):
        watch.at = [phase]
        np.testing.assert_allclose(model.score_samples(ROWS), clear, atol=CLOSE)
        assert not watch.at, f"{phase} was never done"
    assert model._holders.left == 0


def again(model: fc.PrivateForest, handles: dict[str, Held], span: tuple[int, int]) -> None:
    """A caller that asks with masks of its choice."""
    holders, rows = model._holders, ROWS.rows(slice(0, span[1] - span[0]))
    programs: dict[str, Program[Any]] = {
        me: Program(
            query.respond,
            {"view": view, "masks": (Once(handles[me], *span),), "asker": "spy",
             "key": own_key("shares")},
        )
        for me, view in model.views_.items()
    }  # fmt: skip
    knows = {"me": "spy", "members": holders.members, "forest": model.forest_}
    points = {"points": rows.values, "key": bytes(32)}
    programs["spy"] = Program(query.ask, {**knows, **points})
    holders.run(programs)


def test_a_caller_cannot_have_masks_twice(tmp_path: Path) -> None:
    """In one recipe, as a whole, of another party, or of something that is no masks."""
    sites = LocalSites(parties(3), tmp_path, policy=OPEN)
    model = learner().fit(sites.federation()).prepare(4)
    handles = preparation(model)
    for wrong, said in (
        (lambda h: (Once(h, 0, 1), Once(h, 0, 1)), "has nothing for"),
        (lambda h: (Once(h, 1, 3), Once(h, 2, 4)), "handed out before"),
        (lambda h: (h,), "not as a whole"),
        (lambda h: (Once(Held(h.model, "party 2"), 3, 4),), "has nothing for"),
        (lambda h: (Once(model.views_["party 1"], 0, 1),), "no rows to be used once"),  # type: ignore[arg-type]
    ):
        asked = {"view": model.views_["party 1"], "asker": "spy", "key": own_key("shares")}
        masks = wrong(handles["party 1"])
        with pytest.raises(FederationError, match=said):
            model._reached().run({"party 1": Program(query.respond, {**asked, "masks": masks})})


def test_shares_are_used_with_the_graph_that_was_agreed_on(tmp_path: Path) -> None:
    """Not with one of the caller's, which would allow marginals, or that they are opened."""
    sites = LocalSites(parties(3, allow=False), tmp_path, policy=Policy())
    model = learner().fit(sites.federation())
    shares = {me: Held(model.name_, me, "shares") for me in model.views_}
    bent = replace(model.forest_, marginals=True)
    for me, own_shares in shares.items():
        view = ForestView(bent, own_shares, True)  # type: ignore[arg-type]
        program = Program(prepare, {"view": view, "rows": 2, "key": own_key("shares")})
        with pytest.raises(FederationError, match="as a whole, without 'shares' alone"):
            model._reached().run({me: program})


@needs_server
def test_over_a_server(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    names = ["north", "east", "south"]
    own = {p.name: p for p in fc.split(TABLE, names, seed=2, allow_collect=True)}
    with nats_server(tmp_path / "server", [*names, "coordinator"]) as server:
        relay = NatsRelay(server)
        sites = LocalSites(own, tmp_path, policy=OPEN, relay=relay)  # type: ignore[arg-type]
        model = learner(combine="concatenate", structures=3).fit(sites.federation())
        clear = model.open_parameters().score_samples(ROWS)
        np.testing.assert_allclose(model.score_samples(ROWS), clear, atol=CLOSE)
