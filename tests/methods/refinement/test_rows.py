"""EM over the rows of all parties: one round is one iteration of EM on pooled rows."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.circuits.evaluation.counts import Counts
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import inline
from fedcircuits.circuits.leaves import Gaussian
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import as_one_of
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import replay
from fedcircuits.federation.sums.summations import Chebyshev, Tree
from fedcircuits.learning.leaf_em import SAMPLE, damped
from fedcircuits.learning.stopping import EarlyStopping
from fedcircuits.methods.refinement import training
from fedcircuits.methods.refinement.roles import STEP, EMSettings
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.testing import check_protocol
from tests.federation.cases import QUICK, gaps, mixed_table
from tests.methods.refinement.cases import (
    PLAIN,
    assert_close,
    central,
    collected,
    fitted,
    once,
    parts,
    row_programs,
)
from tests.methods.watched import Watched, read

ROWS = fc.Table(mixed_table().schema, gaps())
LEAST = 1e-12  # variance: without bounds
NOTE = (
    "EM over rows was skipped: it needs learned circuits to leave their parties "
    "(allow_collect=True)"
)


def pooled(model: fc.FedPC, parties: fc.Federation) -> Array:
    return np.concatenate([p.table.select(model.schema_.names).values for p in parties])


def refined(start: fc.FedPC, parties: fc.Federation, settings: EMSettings) -> tuple[Any, Any]:
    """What the coordinator has, and the parameters of the whole circuit."""
    outcome = memory.run(row_programs(start, parties, settings))
    assert not outcome.lost, outcome.lost
    found = outcome.results[COORDINATOR]
    return found, collected({**outcome.results, COORDINATOR: found.joint})[1]


# ---------------------------------------------------------------------- against one place


@pytest.mark.parametrize("target", [None, "risk"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_equal_em_on_pooled_rows(target: str | None, rounds: int) -> None:
    parties = parts()
    start, _ = fitted(parties, refine=0, target=target)
    found, learned = refined(start, parties, EMSettings(rounds, **PLAIN))
    whole = start.collect()
    circuit = inline(whole.circuit_, whole.parameters_)
    expected, history = central(circuit, rounds, pooled(start, parties), LEAST)
    np.testing.assert_allclose(found.history, history, atol=1e-9)
    assert_close(learned, expected, 1e-9)


def test_the_estimator_does_the_same() -> None:
    parties = parts()
    start, _ = fitted(parties, refine=0)
    model, _ = once(refine=2)
    found, learned = refined(start, parties, EMSettings(2))
    assert model.history_ == found.history
    whole = model.collect()
    assert inline(whole.circuit_, whole.parameters_)[1] == learned
    for view in model.views_.values():
        assert all(leaf.name in view.parameters.circuits for leaf in view.leaves)


def behind(program: CircuitProgram, packed: Any, table: fc.Table) -> Counts:
    x = torch.from_numpy(table.values[:: max(1, len(table) // SAMPLE)].copy())
    share = torch.full((len(x),), STEP.behind / len(x), dtype=torch.float64)
    return program.counts(x, packed, share)


def test_the_holder_of_a_leaf_stands_behind_it_once() -> None:
    """The M-step of every leaf: all parties' rows by their posteriors, and the holder's as one."""
    parties = parts()
    start, _ = fitted(parties, refine=0)
    found, _ = fitted(parties)
    x = pooled(start, parties)
    leaves = {n: c for v in start.views_.values() for n, c in v.parameters.circuits.items()}
    order = [leaf.name for leaf in start.circuit_.leaves()]
    seen = {n: x[:, [start.schema_.index(v) for v in leaves[n][0].schema.names]] for n in order}
    logs = [fc.Distribution(*leaves[n]).log_likelihood(seen[n]) for n in order]
    weight = start.joint_.parameters["root"]["weight"][0]
    joint = np.exp(np.stack(logs)) * weight[:, None]  # (leaves, rows)
    posterior = joint / joint.sum(axis=0)
    after = found.joint_.parameters["root"]["weight"][0]
    np.testing.assert_allclose(after, posterior.mean(axis=1), atol=1e-9)
    for name, own in zip(order, posterior, strict=True):
        circuit, values = leaves[name]
        holder = name.split("/")[0]
        program = CircuitProgram(circuit)
        packed = program.pack(values)
        counts = program.counts(torch.from_numpy(seen[name]), packed, torch.from_numpy(own))
        rows = parties[holder].table.select(circuit.schema.names)
        total = counts.add(behind(program, packed, rows))
        maximum = program.maximise(total, packed, {"gaussian": Gaussian(LEAST, np.inf)})
        moved = damped(program, total, packed, maximum, STEP.damping)
        expected = program.unpack(moved)
        assert_close(found.views_[holder].parameters.circuits[name][1], expected, 1e-9)


def test_likelihood_rises() -> None:
    parties = parts()
    model, _ = fitted(parties, refine=6, target="risk")
    assert len(model.history_) == 6 and (np.diff(model.history_) > -1e-3).all()
    assert model.history_[-1] > model.history_[0] + 0.1
    start, _ = fitted(parties, refine=0, target="risk")
    whole = fc.Table(start.schema_, pooled(start, parties))
    assert model.history_[0] == pytest.approx(start.score(whole), abs=1e-9)
    assert model.score(whole) > model.history_[-1] - 1e-3


def test_no_spikes_and_nothing_impossible() -> None:
    """Many rounds of few rows leave every category possible and no variance tiny."""
    model, _ = fitted(parts(5).select(["party 0", "party 3"]), refine=25, target="risk")
    for view in model.views_.values():
        own = parts(5)[view.me].table
        for circuit, learned in view.parameters.circuits.values():
            for leaf in circuit.leaves():
                p = learned[leaf.name]
                if leaf.family == "gaussian":
                    spread = np.nanvar(own.select(leaf.scope).values, axis=0)
                    assert (p["variance"] >= 0.9e-4 * spread).all()
                if leaf.family == "categorical" and leaf.scope != ("risk",):
                    assert (p["probability"] > 1e-9).all()


def test_one_party_alone() -> None:
    """A circuit that is one leaf: nothing above it, and nobody to tell."""
    parties = fc.Federation({"only": mixed_table()}, allow_collect=True)
    model, engine = fitted(parties, refine=2)
    assert len(model.history_) == 2 and model.history_[1] >= model.history_[0] - 1e-3
    assert "em/leaves" not in {m.tag for _, m in engine.messages}


# ---------------------------------------------------------------------- permissions


@pytest.mark.parametrize("allowed", [False, ["party 1", "party 3"]])
def test_circuits_that_must_stay_are_not_refined(allowed: Any) -> None:
    whole = mixed_table()
    places = {f"party {i + 1}": whole.rows(slice(50 * i, 50 * i + 50)) for i in range(3)}
    parties = fc.Federation(places, allow_collect=allowed)
    with pytest.warns(UserWarning) as told:
        model, engine = fitted(parties)
    assert [str(w.message) for w in told] == [NOTE] and model.notes_ == (NOTE,)
    assert not [m.tag for _, m in engine.messages if m.tag.startswith("em/")]
    assert not model.history_ and len(model.ledger_) == 4 * 3
    plain, _ = fitted(parties, refine=0)
    assert np.array_equal(model.score_samples(ROWS), plain.score_samples(ROWS))


def test_a_party_refuses_whatever_it_is_told() -> None:
    """Somebody who says for it that it has allowed it does not get its leaves."""
    whole = mixed_table()
    places = {f"party {i}": whole.rows(slice(50 * i, 50 * i + 50)) for i in range(3)}
    parties = fc.Federation(places, allow_collect=["party 0", "party 2"])
    engine = Watched({("party 1", "count/sizes"): lambda told: {**told, "collect": True}})
    text = "party 1 .*was asked for its leaves, but does not allow them to leave it"
    with pytest.raises(PartyLostError, match=text):
        fc.FedPC(QUICK, refine=1, random_state=0).fit(parties, engine=engine)


# ---------------------------------------------------------------------- what crosses


@pytest.mark.parametrize("rounds", [1, 2])
def test_exact_messages(rounds: int) -> None:
    model, engine = once(refine=rounds)
    n = len(model.views_)
    found = [(s, m.party, m.tag) for s, m in engine.messages if m.tag.startswith("em/")]
    clients = [f"party {i}" for i in range(n)]
    expected = [(COORDINATOR, p, "em/graph") for p in clients]
    expected += [(a, b, "em/leaves") for a in clients for b in clients if a != b]
    expected += [("party 0", COORDINATOR, tag) for tag in ("em/size", "em/learned")]
    for t in range(rounds):
        expected += [(p, COORDINATOR, f"em/counts/{t}") for p in clients]
        expected += [(COORDINATOR, p, f"em/counts/{t}") for p in clients]
    assert sorted(found) == sorted(expected)
    assert len(model.ledger_) == 4 * n + n + n * (n - 1) + 2 + 2 * n * rounds
    trained = {m.tag.split("/")[0] for _, m in engine.messages} - {"collect"}  # asked for later
    assert trained == {"agree", "count", "graph", "em"}


def test_refine_0_says_nothing_of_permissions() -> None:
    _, engine = fitted(parts(), refine=0)
    told: list[Any] = [read(m.data) for _, m in engine.messages if m.tag == "count/sizes"]
    assert told == [{"sizes": {i: [50]}, "collect": False, "alone": {}} for i in range(3)]


def test_what_the_coordinator_learns() -> None:
    """With a hub every party's statistics; on secret shares the end only; never a leaf."""
    hub, _ = once(refine=2)
    _, engine = once(refine=2, summation=Secret())
    to_it = [e for e in hub.ledger_ if e.receiver == COORDINATOR and e.phase == "em"]
    seen = {e.tag.split("/")[1] for e in to_it}
    assert seen == {"size", "counts", "learned"}
    told = [m.tag for s, m in engine.messages if m.party == COORDINATOR and m.tag[:3] == "em/"]
    assert told == ["em/learned"]


# ---------------------------------------------------------------------- summations and engines


@pytest.mark.parametrize(
    "summation", [Secret(), Tree("complete"), Chebyshev("complete", tolerance=1e-12)]
)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_other_summations_give_the_same(summation: Any, share: float) -> None:
    hub, _ = once(refine=2, validation=share)
    other, _ = fitted(parts(), refine=2, summation=summation, validation=share)
    np.testing.assert_allclose(other.validation_history_, hub.validation_history_, atol=1e-6)
    np.testing.assert_allclose(other.history_, hub.history_, atol=1e-6)
    np.testing.assert_allclose(other.score_samples(ROWS), hub.score_samples(ROWS), atol=1e-6)
    ours, theirs = (inline(m.circuit_, m.parameters_)[1] for m in (hub.collect(), other.collect()))
    assert_close(theirs, ours, 1e-6, 1e-6)


@pytest.mark.parametrize("number", [1, 2])
def test_secret_shares_need_three(number: int) -> None:
    with pytest.raises(FederationError, match="at least 3 parties, got"):
        fc.FedPC(QUICK, refine=1, summation=Secret()).fit(parts(number))


def test_a_summation_is_one() -> None:
    with pytest.raises(FederationError, match=r"summation must be .*a way to add up.*got 'hub'"):
        fc.FedPC(QUICK, summation="hub").fit(parts())  # type: ignore[arg-type]


def test_all_parties_have_the_same_bits() -> None:
    """Every party hears the same total, so that leaves follow from it wherever they are."""
    _, engine = once(refine=2)
    for t in range(2):
        heard = {
            m.data for s, m in engine.messages if s == COORDINATOR and m.tag == f"em/counts/{t}"
        }
        assert len(heard) == 1


def test_the_laws_of_protocols() -> None:
    """The same in processes to the last bit, replays, losses, what is revealed."""
    check_protocol(once(refine=2)[1].programs[0])


def test_the_laws_of_protocols_on_secret_shares() -> None:
    _, engine = once(refine=2, summation=Secret())
    check_protocol(engine.programs[0], silent=["em/counts"], without=["processes", "losses"])


def test_every_role_sends_the_same_bytes_again() -> None:
    model, engine = once(refine=2)
    with as_one_of(len(engine.programs[0])):
        for role, program in engine.programs[0].items():
            sent = replay(program, engine.records[0][role].inbox)
            assert sent == engine.records[0][role].sent and sent, role
    sent = [m for record in engine.records[0].values() for m in record.sent]
    assert sum(len(m.data) for m in sent) == model.ledger_.bytes


# ---------------------------------------------------------------------- rows held back


def held_rows(parties: fc.Federation, model: fc.FedPC, share: float) -> tuple[Array, Array]:
    """Rows that parties learn from, and rows that they hold back."""
    rows: list[list[Array]] = [[], []]
    for party in parties:
        seed = [0, zlib.crc32(party.name.encode()), training.LOTS]
        held = np.random.default_rng(seed).random(len(party.table)) < share
        values = party.table.select(model.schema_.names).values
        rows[0].append(values[~held])
        rows[1].append(values[held])
    return np.concatenate(rows[0]), np.concatenate(rows[1])


def test_rounds_on_the_other_rows() -> None:
    parties = parts()
    start, _ = fitted(parties, refine=0)
    settings = EMSettings(4, 0.2, stopping=EarlyStopping(9), **PLAIN)
    found, learned = refined(start, parties, settings)
    kept, held = held_rows(parties, start, 0.2)
    whole = start.collect()
    circuit = inline(whole.circuit_, whole.parameters_)
    ways = [central(circuit, t, kept, LEAST) for t in range(5)]
    likely = [fc.Distribution(circuit[0], p).log_likelihood(held).mean() for p, _ in ways]
    np.testing.assert_allclose(found.validation, likely, atol=1e-9)
    np.testing.assert_allclose(found.history, ways[-1][1], atol=1e-9)
    assert_close(learned, ways[int(np.argmax(likely))][0], 1e-9)


@pytest.mark.parametrize("summation", [fc.Hub(), Secret(), Tree("complete")])
def test_exact_messages_with_rows_held_back(summation: Any) -> None:
    """One sum more than rounds, and every sum is judged by one for all."""
    plain, held = (once(refine=1, validation=v, summation=summation)[1] for v in (0.0, 0.2))
    tags = [sorted(m.tag for _, m in e.messages if m.tag[:3] == "em/") for e in (plain, held)]
    judged = [t for t in tags[1] if t.startswith("em/judged")]
    others = 3 if isinstance(summation, fc.Hub) else 2
    assert judged == ["em/judged/0"] * others + ["em/judged/1"] * others
    again = [t.replace("counts/0", "counts/1") for t in tags[0] if "counts/0" in t]
    assert sorted(tags[0] + again) == [t for t in tags[1] if t not in judged]


def test_members_that_gossip_agree_on_the_best_round() -> None:
    """Their sums differ; one of them decides, and nobody waits for another."""
    hub, _ = once(refine=12, validation=0.2)
    loose, _ = fitted(
        parts(), refine=12, validation=0.2, summation=Chebyshev("cycle", tolerance=1e-7)
    )
    assert len(loose.validation_history_) == len(hub.validation_history_) < 13
    np.testing.assert_allclose(loose.validation_history_, hub.validation_history_, atol=1e-3)
    np.testing.assert_allclose(loose.score_samples(ROWS), hub.score_samples(ROWS), atol=1e-2)


def test_the_laws_of_protocols_with_rows_held_back() -> None:
    check_protocol(once(refine=2, validation=0.2)[1].programs[0], without=["processes"])
