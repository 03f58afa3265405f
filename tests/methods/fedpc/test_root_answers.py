"""Answers of the root alone: the same likelihoods, and nothing of a leaf at the coordinator."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import View
from fedcircuits.methods.fedpc import query
from fedcircuits.methods.fedpc.root_answers import DEPTHS, POINT, PRECISION, STEP, RootScale
from fedcircuits.methods.vertical.answers import answerer, asker
from fedcircuits.privacy.sharing.shares import reconstruct, threshold
from fedcircuits.testing import check_ledger, check_messages, check_protocol
from tests.federation.cases import QUICK, federation, gaps, mixed_table, three_columns
from tests.methods.watched import Watched, read

ROWS = fc.Table(mixed_table().schema, gaps())
NATS = 1e-6
MEMBERS = ("north", "south", "west")


def parties_of(name: str) -> fc.Federation:
    if name in ("uneven", "rows", "both"):
        return federation(name)
    by, number = name.split()
    settings: dict[str, Any] = {} if by == "columns" else {"overlap": 0.3}
    return fc.split(mixed_table(), int(number), by=by, seed=1, **settings)  # type: ignore[arg-type]


def fitted(parties: fc.Federation, **settings: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    usual: dict[str, Any] = {"clusters": 2, "ensemble": 1, "random_state": 0}
    model = fc.FedPC(QUICK, **usual | settings).fit(parties, engine=engine)
    engine.programs.clear()
    engine.records.clear()
    return model, engine


@functools.cache
def both(name: str) -> tuple[fc.FedPC, fc.FedPC]:
    parties = parties_of(name)
    return fitted(parties)[0], fitted(parties, answers="root")[0]


# ---------------------------------------------------------------------- the same answers


FEDERATIONS = ("rows", "both", "uneven", "columns 3", "columns 5")


@pytest.mark.parametrize("name", FEDERATIONS)
def test_likelihoods_are_those_of_the_leaves(name: str) -> None:
    leaves, root = both(name)
    plain = leaves.score_samples(ROWS)
    assert root.score_samples(ROWS) == pytest.approx(plain, abs=NATS, rel=0)
    assert root.score(ROWS) == pytest.approx(leaves.score(ROWS), abs=NATS)


@pytest.mark.parametrize("name", ["rows", "both", "uneven", "columns 3", "columns 5"])
def test_probabilities_and_posteriors_are_those_of_the_leaves(name: str) -> None:
    leaves, root = both(name)
    for event, given in (("age > 40 or smoker = True", "weight > 58"), ("risk = high", None)):
        expected = leaves.probability(event, given=given)
        assert root.probability(event, given=given) == pytest.approx(expected, rel=4 * NATS)
    posterior = leaves.predict_proba(ROWS, "risk")
    assert root.predict_proba(ROWS, "risk") == pytest.approx(posterior, abs=NATS)


def test_mixtures_that_em_has_refined() -> None:
    parties = three_columns()
    leaves, _ = fitted(parties, refine=2)
    root, _ = fitted(parties, refine=2, answers="root")
    expected = leaves.score_samples(ROWS)
    assert root.score_samples(ROWS) == pytest.approx(expected, abs=NATS, rel=0)


def wide(columns: int) -> tuple[fc.Federation, fc.Table]:
    """Three parties with different rows of so many columns, whose bounds are those of the leaves
    that the others have, 1; and two rows: a whole one, and one of a single column."""
    values = np.random.default_rng(0).normal(size=(61, columns))
    table = fc.Table.of(pd.DataFrame(values).add_prefix("x"))
    rows = values[60] * np.where(np.arange(columns) > 0, [[1.0], [np.nan]], 1.0)
    parties = {m: table.rows(np.arange(60)[i::3]) for i, m in enumerate(MEMBERS)}
    return fc.Federation(parties), fc.Table(table.schema, rows)


@pytest.mark.parametrize(("columns", "times"), [(2, 1), (60, 2), (400, 3)])
def test_deep_rows_are_asked_again(columns: int, times: int) -> None:
    parties, rows = wide(columns)
    leaves, _ = fitted(parties)
    root, engine = fitted(parties, answers="root")
    plain = leaves.score_samples(rows)
    assert root.score_samples(rows) == pytest.approx(plain, abs=NATS, rel=0)
    answers = [m.tag for s, m in engine.messages if s == "north" and m.tag[:11] == "root/answer"]
    again = [read(m.data)["again"].sum() for _, m in engine.messages if m.tag == "query/again"]
    assert len(answers) == times
    assert again == [1] * 3 * (times - 1) + [0] * 3 * (3 - times)


def test_what_lies_below_all_depths_is_impossible() -> None:
    scale = RootScale(len(MEMBERS), 4, DEPTHS[-1])
    least = 1 << (scale.unit - scale.depth + scale.shift)
    noise = (threshold(len(MEMBERS)) + 1) << (scale.noise[1] - 1)  # its mean
    values = scale.ring.elements(np.array([noise + least - 1, noise + least], dtype=object))
    found = scale.log2_of(values, MEMBERS)
    assert found[0] == -np.inf and found[1] == pytest.approx(-DEPTHS[-1], abs=1)


def test_nobody_is_asked_about_nothing() -> None:
    root, engine = fitted(three_columns(), answers="root")
    nothing = pd.DataFrame({"age": [np.nan, np.nan]})
    assert root.score_samples(nothing) == pytest.approx([0, 0], abs=1e-12)
    assert engine.messages == []


# ---------------------------------------------------------------------- what is told to whom


def heard(engine: Watched, receiver: str) -> list[tuple[str, str, Any]]:
    """Sender, tag and fields of all that a role received."""
    return [(s, m.tag, read(m.data)) for s, m in engine.messages if m.party == receiver]


def leaf_values(model: fc.FedPC, rows: fc.Table) -> list[np.ndarray]:
    """log-values of all leaves of all parties, by what the parties hold."""
    found = []
    for view in model.views_.values():
        assert isinstance(view, View)
        for leaf in view.leaves:
            distribution = view.leaf(leaf.name)
            x = rows.select(distribution.circuit.schema.names).values
            found.append(distribution.log_values_within(x, {}))
    return found


def test_no_value_of_a_leaf_reaches_the_coordinator() -> None:
    """Looked for in the bytes, which hold all of them where leaves answer."""
    rows = fc.Table(mixed_table().schema, mixed_table(20, seed=2).values).rows([0, 1, 2, 3])
    for answers, told in (("leaves", True), ("root", False)):
        model, engine = fitted(three_columns(), answers=answers, ensemble=1)
        model.score_samples(rows)
        wire = b"".join(m.data for s, m in engine.messages if m.party == COORDINATOR)
        values = np.concatenate(leaf_values(model, rows))
        values = values[(values < 0) & np.isfinite(values)]
        bits = POINT.ring.packed(POINT.encode(values / np.log(2))).reshape(len(values), -1)
        forms = [v.tobytes() in wire for v in values] + [b.tobytes() in wire for b in bits]
        assert any(forms) == told
        assert sum(forms) >= (len(values) if told else 0)


def opened(engine: Watched, tag: str, scale: RootScale | None = None) -> np.ndarray:
    """What the coordinator makes of the shares it has received, as whole numbers."""
    ring = POINT.ring if scale is None else scale.ring
    parts = {s: fields["data"] for s, t, fields in heard(engine, COORDINATOR) if t == tag}
    shares = [ring.unpacked(parts[m].reshape(-1), parts[m].shape[:1]) for m in MEMBERS]
    return ring.signed(reconstruct(ring, np.stack(shares), 1, MEMBERS))


def test_the_coordinator_receives_shares_of_two_numbers_per_row() -> None:
    model, engine = fitted(three_columns(), answers="root")
    rows = ROWS.rows([0, 1, 2])
    logs = model.score_samples(rows)
    told = heard(engine, COORDINATOR)
    assert sorted({(s, t) for s, t, _ in told}) == sorted(
        (m, t) for m in MEMBERS for t in ("root/answer/0", "root/bound/0")
    )
    assert all(fields["data"].shape[0] == 3 for *_, fields in told)
    bound = np.sort(opened(engine, "root/bound/0").astype(float) / 2**36)
    assert (bound % STEP == 0).all() and (bound >= np.sort(logs / np.log(2))).all()


def test_last_bits_of_an_answer_are_noise() -> None:
    """The same sum is opened as another number each time, alike in its first bits alone."""
    model, engine = fitted(three_columns(), answers="root")
    seen = []
    for _ in range(4):
        engine.records.clear()
        model.score_samples(ROWS.rows([0]))
        children = read(engine.messages[1][1].data)["children"]
        scale = RootScale(3, children, DEPTHS[0])
        seen.append(int(opened(engine, "root/answer/0", scale)[0]))
    gaps_between = [abs(a - b) / a for a, b in itertools.pairwise(seen)]
    assert all(2.0 ** -(PRECISION + 20) < gap < 2.0**-PRECISION for gap in gaps_between)


def test_all_parties_take_part_whoever_is_asked() -> None:
    """Those whose columns are not asked about send as many bytes, and hear of no column."""
    model, engine = fitted(three_columns(), answers="root")
    column = next(iter(model.views_["north"].schema)).name  # type: ignore[union-attr]
    model.score_samples(ROWS.select([column]).rows([0, 1]))
    sizes = {m: [len(e.data) for s, e in engine.messages if s == m and e.tag[:11] == "root/values"]
             for m in MEMBERS}  # fmt: skip
    assert len({tuple(s) for s in sizes.values()}) == 1
    evidence = {m.party: read(m.data) for _, m in engine.messages if m.tag == "query/evidence"}
    assert {p: tuple(e["columns"]) for p, e in evidence.items()} == {
        "north": (column,), "south": (), "west": ()
    }  # fmt: skip


def test_a_party_refuses_to_tell_its_leaves() -> None:
    """Also if the coordinator asks in the other way."""
    model, engine = fitted(three_columns(), answers="root")
    model.score_samples(ROWS.rows([0]))
    asks = engine.programs[0][COORDINATOR].arguments
    programs = {COORDINATOR: Program(query.evaluate, {n: asks[n] for n in ("asker", "question")})}
    for party in MEMBERS:
        told = {"view": model.views_[party], "completes": False, "seed": 0}
        programs[party] = Program(query.respond, told)
    outcome = engine_of("memory", False)(programs)
    assert COORDINATOR in outcome.lost
    causes = " ".join(str(e) for lost in outcome.lost.values() for e in (lost, lost.__cause__))
    assert "does not answer for single leaves" in causes


def test_no_role_of_another_method_tells_leaves() -> None:
    """Terms of a mixture are those of its leaves: once those of any model that a party holds."""
    model, _ = fitted(three_columns(), answers="root")
    for party in MEMBERS:
        view = model.views_[party]
        assert isinstance(view, View)
        asked = {"evidence": {party: np.zeros((1, len(view.schema)))}}
        programs = {
            COORDINATOR: Program(asker, {**asked, "components": len(view.leaves)}),
            party: Program(answerer, {"learned": view}),
        }
        outcome = engine_of("memory", False)(programs)
        assert "does not answer for single leaves" in str(outcome.lost[party].__cause__)


def test_questions_count_in_the_budget() -> None:
    tables = {p.name: p.table for p in three_columns()}
    model, _ = fitted(fc.Federation(tables, most_questions=3), answers="root")
    model.score_samples(ROWS.rows([0, 1]))
    with pytest.raises(FederationError, match="could not be answered"):
        model.score_samples(ROWS.rows([0, 1]))


# ---------------------------------------------------------------------- messages


@functools.cache
def programs() -> dict[str, Program[Any]]:
    parties, rows = wide(60)
    model, engine = fitted(parties, answers="root")
    model.score_samples(rows)
    (found,) = engine.programs
    return found


def test_malformed_messages_blame_their_sender() -> None:
    assert check_messages(lambda: dict(programs()), most=300) > 200


def test_the_ledger_says_what_crossed() -> None:
    lines = check_ledger(lambda: dict(programs()))
    assert any("root/answer" in line for line in lines)


def test_the_protocol_keeps_the_laws() -> None:
    check_protocol(lambda: dict(programs()))


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "question",
    [
        lambda m: m.expect("age"),
        lambda m: m.sample(2),
        lambda m: m.explain(ROWS.rows([0, 1])),
    ],
)
def test_questions_that_need_leaves_are_refused(question: Any) -> None:
    _, root = both("columns 3")
    before = len(root.queries_)
    with pytest.raises(QueryError, match=r"answers='root'.*answers='leaves'"):
        question(root)
    assert len(root.queries_) == before


def test_two_parties_are_refused() -> None:
    with pytest.raises(FederationError, match="at least 3 parties, got 2"):
        fitted(federation("columns"), answers="root")


def test_leaves_of_several_parties_below_a_product_are_refused() -> None:
    with pytest.raises(FederationError, match=r"answers='root' cannot: take shared_leaves"):
        fitted(federation("both"), answers="root", shared_leaves="pooled")


def test_other_answers_are_refused() -> None:
    with pytest.raises(FederationError, match="answers must be one of 'leaves', 'root'"):
        fitted(three_columns(), answers="leaf")
