"""Models whose parts are at sites: named, handed over, saved, asked again, forgotten."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph import files
from fedcircuits.engines.sites.policy import ROLES, Policy, PolicyError, name_of
from fedcircuits.errors import FederationError, FileError, PartyLostError
from fedcircuits.estimators.parts import recall
from fedcircuits.federation.flow import Send
from fedcircuits.federation.recipes import Held, pack, unpack
from fedcircuits.methods.meeting import collecting
from fedcircuits.methods.private_forest import parameters
from fedcircuits.testing import check_protocol
from tests.engines.sites.local import LocalSites
from tests.methods.watched import Watched

RNG = np.random.default_rng(0)
TABLE = fc.Table.of(RNG.normal(size=(120, 1)) + RNG.normal(size=(120, 4)))
LOCAL = fc.split(TABLE, 3, by="columns")


def sites_in(folder: Path, own: Policy | None = None, allow: bool = False) -> LocalSites:
    parties = {p.name: replace(p, allow_collect=allow) for p in LOCAL}
    return LocalSites(parties, folder, policy=own or Policy(collect=allow))


def learner() -> fc.FedPC:
    return fc.FedPC(random_state=0, clusters=2, ensemble=1)


def audit(folder: Path, site: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / site / "audit.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------------- names and handing over


def test_what_a_site_has_learned_stays_under_the_models_name(tmp_path: Path) -> None:
    federation = sites_in(tmp_path).federation()
    model = learner().fit(federation, name="risk 2026")
    assert model.name_ == "risk 2026"
    assert model.views_ == {n: Held("risk 2026", n) for n in LOCAL.names}
    assert federation.models() == {"risk 2026": list(LOCAL.names)}
    with pytest.raises(PartyLostError, match="a model 'risk 2026' already exists"):
        learner().fit(federation, name="risk 2026")
    with pytest.raises(
        FederationError, match=r"'\.\./etc' is not a valid name of a run, model or party"
    ):
        learner().fit(federation, name="../etc")
    drawn = learner().fit(federation).name_
    assert set(federation.models()) == {"risk 2026", drawn}


def test_a_model_is_collected_by_a_flow_where_all_sites_allow_it(tmp_path: Path) -> None:
    model = learner().fit(sites_in(tmp_path, allow=True).federation())
    here = learner().fit(fc.split(TABLE, 3, by="columns", allow_collect=True))
    whole = model.collect()
    assert np.array_equal(whole.score_samples(TABLE), here.collect().score_samples(TABLE))
    for ledger in (model.queries_, here.queries_):
        parts = [e for e in ledger if e.tag == "collect/part"]
        assert sorted(e.sender for e in parts) == list(LOCAL.names)
        assert {e.reveals for e in parts} == {collecting.LearnedPart.reveals}
    sent = [line for line in audit(tmp_path, "party 2") if line.get("tag") == "collect/part"]
    entry = next(e for e in model.queries_ if (e.sender, e.tag) == ("party 2", "collect/part"))
    assert [(line["to"], line["bytes"]) for line in sent] == [("coordinator", entry.bytes)]


def test_a_site_refuses_whatever_the_caller_claims(tmp_path: Path) -> None:
    model = learner().fit(sites_in(tmp_path).federation())
    with pytest.raises(FederationError, match="did not allow learned parameters to leave them"):
        model.collect()
    model._allow_collect = dict.fromkeys(LOCAL.names, True)
    with pytest.raises(FederationError, match=r"does not take part.*\(policy: collect = false\)"):
        model.collect()
    lines = [line for name in LOCAL.names for line in audit(tmp_path, name)]
    refused = [line for line in lines if line["event"] == "refused"]
    assert refused and all("collect = false" in str(line["why"]) for line in refused)
    assert not [e for e in model.queries_ if e.tag == "collect/part"]


def test_the_policy_knows_the_role_and_the_message() -> None:
    for function, part in (
        (collecting.hand_over, collecting.LearnedPart),
        (parameters.opening, parameters.AllShares),
    ):
        role = ROLES[name_of(function)]
        assert role.needs == part.needs == "collect"
        message = Send("coordinator", part.tag, b"", part.reveals, part.needs)
        with pytest.raises(PolicyError, match="collect = false"):
            Policy().check_message(message)
        Policy(collect=True).check_message(message)


def test_handing_over_keeps_the_laws_of_protocols() -> None:
    engine = Watched()
    model = learner().fit(fc.split(TABLE, 3, by="columns", allow_collect=True), engine=engine)
    model.collect()
    check_protocol(engine.programs[-1])


# ---------------------------------------------------------------------- saved and asked again


def test_a_saved_model_is_asked_again_by_another_caller(tmp_path: Path) -> None:
    sites = sites_in(tmp_path / "sites")
    model = learner().fit(sites.federation(), name="risk")
    expected, path = model.score_samples(TABLE), tmp_path / "model.fc"
    model.save(path)
    later = fc.load(path)
    assert isinstance(later, fc.FedPC) and later.name_ == "risk"
    with pytest.raises(FederationError, match="party 1, party 2, party 3: connect to them"):
        later.score_samples(TABLE)
    sites.kill("party 2")
    sites.start("party 2")
    federation = sites.new_caller()
    assert np.array_equal(later.reconnect(federation).score_samples(TABLE), expected)
    again = fc.load(path, federation)
    assert again.probability("x0 > 0") == model.reconnect(federation).probability("x0 > 0")
    assert len(again.ledger_) == len(model.ledger_)


def test_no_leaf_is_in_the_file(tmp_path: Path) -> None:
    """Nor in what the caller's own store keeps."""
    model = learner().fit(sites_in(tmp_path / "sites").federation(), name="risk")
    model.save(tmp_path / "model.fc")
    with zipfile.ZipFile(tmp_path / "model.fc") as archive:
        part = archive.read(files.PART)
    stored = (tmp_path / "sites" / "coordinator" / "models" / "risk" / "coordinator").read_bytes()
    for data in (part, stored):
        found = unpack(data)
        assert not found.joint_.parameters.circuits and set(found.joint_.parameters.values)
        assert all(isinstance(view, Held) for view in found.views_.values())
        assert b"mean" not in data and b"gaussian" not in data


def test_who_has_forgotten_the_model_is_named(tmp_path: Path) -> None:
    sites = sites_in(tmp_path / "sites")
    model = learner().fit(sites.federation(), name="risk")
    model.save(tmp_path / "model.fc")
    sites.stations["party 3"].store.forget("risk")  # by its operator
    federation = sites.new_caller()
    with pytest.raises(FederationError, match=r"^party 3 has no model 'risk'"):
        fc.load(tmp_path / "model.fc", federation)
    some = federation.select(["party 1", "party 2"])
    with pytest.raises(FederationError, match=r"party 3 keeps a part.* not in the federation"):
        fc.load(tmp_path / "model.fc", some)
    with pytest.raises(FederationError, match="not connected to sites"):
        fc.load(tmp_path / "model.fc", LOCAL)


def test_what_lives_here_is_not_reconnected() -> None:
    model = learner().fit(LOCAL)
    with pytest.raises(FederationError, match="all parts of this model are in this process"):
        model.reconnect(LOCAL)
    for ask in (LOCAL.status, LOCAL.models, LOCAL.close):
        with pytest.raises(FederationError, match="runs in this process"):
            ask()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    model = learner().fit(sites_in(tmp_path / "sites").federation())
    path = tmp_path / "model.fc"
    model.save(path)
    good = path.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 40)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            fc.load(path)
        except FileError as error:
            assert "model.fc" in str(error)
    for data in (good[: len(good) // 2], b"", b"PK"):
        path.write_bytes(data)
        with pytest.raises(FileError, match=r"model\.fc"):
            fc.load(path)


def of_nothing(part: object) -> object:
    return fc.VerticalKMeans(2)


def of_a_table(part: object) -> object:
    return TABLE


def of_no_place(part: fc.FedPC) -> object:
    part.__dict__.pop("where_")
    return part


def of_other_arguments(part: fc.FedPC) -> object:
    return part.set_params(clusters=-1)


@pytest.mark.parametrize("change", [of_nothing, of_a_table, of_no_place, of_other_arguments])
def test_a_file_that_was_made_up_is_refused(
    tmp_path: Path, change: Callable[[fc.FedPC], object]
) -> None:
    model = learner().fit(sites_in(tmp_path / "sites").federation())
    model.save(tmp_path / "model.fc")
    members, metadata = files.read_members(tmp_path / "model.fc")
    made = change(unpack(members[files.PART]))
    metadata["estimator"] = type(made).__name__
    files.write_members(tmp_path / "made.fc", {files.PART: pack(made)}, metadata)
    with pytest.raises(FileError, match=r"made\.fc is damaged"):
        fc.load(tmp_path / "made.fc")


def test_bytes_that_are_no_recipe_are_refused(tmp_path: Path) -> None:
    for part in (b"", b"\x00", b"\xc1", io.BytesIO(b"pickle").read()):
        files.write_members(tmp_path / "m.fc", {files.PART: part}, {"estimator": "FedPC"})
        with pytest.raises(FileError, match=r"m\.fc is damaged"):
            fc.load(tmp_path / "m.fc")
    with pytest.raises(FileError, match=r"fedcircuits\.load"):
        files.read(tmp_path / "m.fc")


# ---------------------------------------------------------------------- what sites keep


def test_status_models_and_forgetting(tmp_path: Path) -> None:
    sites = sites_in(tmp_path)
    federation = sites.federation()
    model = learner().fit(federation, name="risk")
    status = federation.status()
    assert status["there"].all() and (status["rows"] == 120).all()
    assert status["models"].tolist() == [["risk"]] * 3 and set(status["version"]) == {"0.1.0"}
    assert federation.forget("other") == dict.fromkeys(LOCAL.names, "keeps no such model")
    assert federation.forget("risk") == dict.fromkeys(LOCAL.names, "forgotten")
    assert federation.models() == {}
    assert not (tmp_path / "coordinator" / "models" / "risk").exists()
    with pytest.raises(FederationError, match="has no model 'risk'"):
        model.score_samples(TABLE)
    sites.kill("party 2")
    status = federation.status(timeout=1.0)
    assert status["there"].tolist() == [True, False, True]
    with pytest.raises(PartyLostError, match="party 2 has not answered"):
        federation.models(timeout=1.0)
    learner().fit(federation.select(["party 1", "party 3"]), name="risk")  # the name is free


def test_a_site_may_keep_its_models(tmp_path: Path) -> None:
    federation = sites_in(tmp_path, Policy(forget=False)).federation()
    model = learner().fit(federation, name="risk")
    answers = federation.forget("risk")
    assert all("(policy: forget = false)" in answer for answer in answers.values())
    assert np.isfinite(model.score_samples(TABLE)).all()
    assert any(line.get("forget") == "risk" for line in audit(tmp_path, "party 1"))
    assert (tmp_path / "coordinator" / "models" / "risk" / "coordinator").exists()


# ---------------------------------------------------------------------- trainings broken off


def test_a_training_goes_on_by_its_name_from_a_new_caller(tmp_path: Path) -> None:
    """With the seed that was drawn, which a new estimator has not."""
    sites = sites_in(tmp_path)
    cut = ["count/sizes"]

    def watch(site: str, head: list[object]) -> None:
        if cut and site == "party 2" and head[0] == "mail" and head[-1] == cut[0]:
            cut.pop()
            sites.couriers["coordinator"].link = None  # nothing of it gets out any more

    sites.watch = watch
    sites.remote.patience = 2.0
    with pytest.raises(PartyLostError, match=r"fit\(…, resume='risk'\) continues from there"):
        fc.FedPC().fit(sites.federation(), name="risk")
    sites.watch = lambda site, head: None
    federation = sites.new_caller()
    assert federation.engine.kept_here.trainings() == ["risk"]  # type: ignore[attr-defined]
    with pytest.raises(FederationError, match="a training 'risk' was interrupted"):
        fc.FedPC().fit(federation, name="risk")
    with pytest.raises(PartyLostError, match="a run 'risk' was started before with another plan"):
        fc.FedPC(clusters=2).fit(federation, resume="risk")
    with pytest.raises(FederationError, match=r"no training 'other' was interrupted.*: 'risk'"):
        fc.FedPC().fit(federation, resume="other")
    begun = recall(federation.engine, "risk")
    model = fc.FedPC().fit(federation, resume="risk")
    expected = fc.FedPC(random_state=begun.seed).fit(LOCAL)
    assert np.array_equal(model.score_samples(TABLE), expected.score_samples(TABLE))
    assert federation.engine.kept_here.trainings() == []  # type: ignore[attr-defined]
    assert isinstance(begun.estimator, fc.FedPC) and begun.parties == LOCAL.names


def test_a_training_that_is_given_up_is_forgotten(tmp_path: Path) -> None:
    sites = sites_in(tmp_path)
    federation = sites.federation()
    sites.remote.patience = 1.0
    sites.kill("party 3")
    with pytest.raises(PartyLostError, match=r"party \d is silent"):
        learner().fit(federation, name="risk")
    sites.start("party 3")
    sites.remote.patience = 60.0
    assert set(federation.forget("risk").values()) <= {"forgotten", "keeps no such model"}
    assert not list(tmp_path.glob("*/runs/risk"))
    assert learner().fit(federation, name="risk").name_ == "risk"


def test_resuming_by_name_is_for_sites() -> None:
    with pytest.raises(FederationError, match="resume='risk' continues a run on sites"):
        learner().fit(LOCAL, resume="risk")
