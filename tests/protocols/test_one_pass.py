"""One-pass training: weights by hand, what crosses and what does not, replays, what is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.family import Array
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.replay import Message, replay
from fedcircuits.federation.wire import decode
from tests.federation.cases import FEDERATIONS, QUICK, federation, gaps, mixed_table
from tests.protocols.counted import by_hand
from tests.protocols.watched import Watched

ROWS = fc.Table(mixed_table().schema, gaps())


def trained(parties: fc.Federation, **settings: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    usual: dict[str, Any] = {"learner": QUICK, "clusters": 3, "random_state": 0}
    model = fc.FedPC(**usual | settings)
    return model.fit(parties, engine=engine), engine


def labels_of(engine: Watched, parties: fc.Federation) -> dict[str, dict[str, int]]:
    """By party and row id: the cluster, as the party has kept it."""
    found = {}
    for party in parties:
        [own] = [
            v for (who, step), v in engine.kept.items()
            if who == party.name and step.startswith("clustering")
        ]  # fmt: skip
        assert isinstance(own, np.ndarray) and party.table.row_ids is not None
        ids = [str(i) for i in party.table.row_ids.tolist()]
        found[party.name] = dict(zip(ids, own.tolist(), strict=True))
    return found


def leaf_values(model: fc.FedPC, x: Array) -> list[dict[str, float]]:
    """p of every row under every leaf, also those that no product uses."""
    found: list[dict[str, float]] = [{} for _ in x]
    for view in model.views_.values():
        for name, learned in view.parameters.circuits.items():
            own = fc.Distribution(*learned)
            columns = [model.schema_.index(n) for n in own.circuit.schema.names]
            for row, log in zip(found, own.log_likelihood(x[:, columns]), strict=True):
                row[name] = float(np.exp(log))
    return found


# ---------------------------------------------------------------------- weights by hand


def test_rows_make_a_mixture_weighed_by_rows() -> None:
    parties = federation("rows")
    model, _ = trained(parties)
    x = ROWS.select(model.schema_.names).values
    sizes = np.array([len(p.table) for p in parties], float)
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        own = [leaves[f"{p.name}/0/0"] for p in parties]
        assert np.exp(log) == pytest.approx(sizes @ own / sizes.sum(), rel=1e-9)


def test_classes_are_clusters_of_rows() -> None:
    """With a target every party has a leaf a class, and the mixture is over all of them."""
    parties = federation("rows")
    model, engine = trained(parties, target="risk")
    labels = labels_of(engine, parties)
    sizes = {p: np.bincount(list(own.values())) for p, own in labels.items()}
    assert all(len(s) == 2 for s in sizes.values())
    total = sum(s.sum() for s in sizes.values())
    x = ROWS.select(model.schema_.names).values
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        own = sum(
            n / total * leaves[f"{p}/{k}/0"] for p, s in sizes.items() for k, n in enumerate(s)
        )
        assert np.exp(log) == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("name", ["columns", "both", "uneven"])
@pytest.mark.parametrize("target", [None, "risk"])
def test_root_weights_count_combinations(name: str, target: str | None) -> None:
    parties = federation(name)
    model, engine = trained(parties, target=target)
    labels = labels_of(engine, parties)
    ids = sorted(set().union(*labels.values()))
    table = np.array([[labels[p].get(i, -1) for p in parties.names] for i in ids])
    sizes = {p: np.bincount(list(own.values())).tolist() for p, own in labels.items()}
    x = ROWS.select(model.schema_.names).values
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        expected = by_hand(table, parties.names, parties.subspaces, sizes, leaves)
        assert np.exp(log) == pytest.approx(expected, rel=1e-9)


def test_dependence_between_parties_is_captured() -> None:
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=400)
    table = fc.Table.of(
        {"x": side * 8 + rng.normal(size=400), "y": side * 8 + rng.normal(size=400)}
    )
    parties = fc.split(table, ["a", "b"], by="columns")
    counted, _ = trained(parties, clusters=2, learner=fc.MixtureOfProducts(1))
    assert counted.score(table) == pytest.approx(-np.log(2) - np.log(2 * np.pi * np.e), abs=0.1)
    given = {
        n: counted.expect("y", given={"x": v}).loc["y", "mean"]
        for n, v in (("low", 0.0), ("high", 8.0))
    }
    assert given["low"] == pytest.approx(0, abs=0.5) and given["high"] == pytest.approx(8, abs=0.5)


# ---------------------------------------------------------------------- replays


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in FEDERATIONS),
        ("columns", {"weights": "sizes"}),
        ("uneven", {"target": "risk", "share_target": True, "refine": 2}),
        ("both", {"weights": "em", "shared_leaves": "pooled"}),
    ],
)
def test_every_role_sends_the_same_bytes_again(name: str, settings: dict[str, Any]) -> None:
    model, engine = trained(federation(name), **settings)
    (programs,), (records,) = engine.programs, engine.records
    assert set(programs) == {COORDINATOR, *federation(name).names}
    for role, program in programs.items():
        sent = replay(program, records[role].inbox)
        assert sent == records[role].sent and sent, role
    assert sum(len(r.sent) for r in records.values()) == len(model.ledger_)
    assert sum(len(m.data) for _, m in engine.messages) == model.ledger_.bytes


# ---------------------------------------------------------------------- how many messages


@pytest.mark.parametrize(
    ("name", "settings", "per_party", "more"),
    [
        ("rows", {}, 4, 0),  # schema, plan, sizes, graph
        ("columns", {"weights": "sizes"}, 4, 0),
        ("columns", {}, 6, -1),  # and tokens, and the key from the first to the others
        ("uneven", {}, 6, -1),
        ("both", {"shared_leaves": "pooled"}, 6, -1),
        ("uneven", {"weights": "em"}, 9, -1),  # and positions, values, the end
        ("uneven", {"refine": 3}, 6 + 1 + 2 * 4, -1),
        ("rows", {"refine": 2}, 4 + 2 + 1 + 2 * 3, -1),
        ("uneven", {"target": "risk"}, 6, -1),
        ("uneven", {"target": "risk", "share_target": True}, 6, -1 + 2),  # north tells two
        ("uneven", {"target": "age", "share_target": True}, 6, -1),  # no classes to be told
    ],
)
def test_exact_numbers_of_messages(
    name: str, settings: dict[str, Any], per_party: int, more: int
) -> None:
    parties = federation(name)
    if name == "rows" and settings:  # rows that all hold
        whole = mixed_table()
        parties = fc.Federation({n: whole.rows(slice(i, 140 + i)) for i, n in enumerate("abc")})
    model, _ = trained(parties, **settings)
    assert len(model.ledger_) == per_party * len(parties) + more


# ---------------------------------------------------------------------- what does not cross


IDS = np.array([f"Dulcinea-{i:04d}" for i in range(80)])


def distinctive() -> fc.Federation:
    """Ids and values that are found among any bytes."""
    rng = np.random.default_rng(8)
    north = {
        "id": IDS,
        "pulse": rng.normal(size=80) * np.pi,
        "count": rng.integers(10**6, 10**7, 80),
    }
    order = rng.permutation(80)[:70]
    south = {
        "id": IDS[order],
        "height": rng.normal(size=70) * np.e,
        "sex": rng.choice(["f", "m"], 70),
    }
    tables = {
        "north": fc.Table.of(north, row_id="id", kinds={"count": "count"}),
        "south": fc.Table.of(south, row_id="id"),
    }
    return fc.Federation(tables)


def found_in(messages: list[tuple[str, Message]], needles: list[bytes]) -> list[tuple[str, str]]:
    whole = [(sender, m.tag, m.data) for sender, m in messages]
    return [(sender, tag) for sender, tag, data in whole if any(n in data for n in needles)]


def spelt(value: float) -> list[bytes]:
    ways = [struct.pack("<d", value), struct.pack("<f", value), repr(value).encode()]
    return [*ways, str(int(value)).encode(), struct.pack("<q", int(value))] if value > 1e5 else ways


@pytest.mark.parametrize(
    "settings", [{}, {"weights": "em"}, {"refine": 2}, {"target": "sex", "share_target": True}]
)
def test_no_ids_and_no_values_cross(settings: dict[str, Any]) -> None:
    parties = distinctive()
    _, engine = trained(parties, **settings)
    ids = [w for i in IDS.tolist() for w in (i.encode(), i.encode("utf-32-le"))]
    assert found_in(engine.messages, ids) == []
    for party in parties:
        for name in party.table.names:
            if not party.table.schema[name].size:
                column = party.table.values[:, party.table.schema.index(name)]
                values = [w for v in column.tolist() for w in spelt(v)]
                assert found_in(engine.messages, values) == [], name


def test_the_search_finds_what_crosses() -> None:
    """The same search, on messages that do hold an id or a value."""
    value = float(distinctive()["north"].table.values[5, 0])
    told = Message("x", "a/b", b"..." + struct.pack("<d", value) + b"...")
    assert found_in([("north", told)], spelt(value)) == [("north", "a/b")]


@pytest.mark.parametrize("settings", [{}, {"refine": 1, "target": "sex", "share_target": True}])
def test_the_coordinator_never_has_the_key(settings: dict[str, Any]) -> None:
    model, engine = trained(distinctive(), **settings)
    (programs,) = engine.programs
    secret = programs["north"].arguments["secret"]
    assert isinstance(secret, bytes) and "secret" not in programs[COORDINATOR].arguments
    to_it = [(s, m) for s, m in engine.messages if m.party == COORDINATOR]
    assert to_it and found_in(to_it, [secret, secret.hex().encode()]) == []
    keys = [e for e in model.ledger_ if e.phase == "key"]
    assert [(e.sender, e.receiver) for e in keys] == [("north", "south")]
    revealed = model.ledger_.revealed(COORDINATOR)
    assert "clusters of rows that it cannot name (sealed tokens)" in set(revealed["what"])


def test_tokens_say_nothing_of_the_order_of_rows() -> None:
    _, engine = trained(distinctive())
    _, other = trained(distinctive())
    told: list[Any] = [
        decode(m.data)
        for e in (engine, other)
        for s, m in e.messages
        if (s, m.tag) == ("north", "count/tokens")
    ]
    assert set(told[0]) == {"tokens", "clusters"}
    for one in told:
        assert (np.diff(one["tokens"].astype(float)) > 0).all()
    assert not np.isin(told[0]["tokens"], told[1]["tokens"]).any()  # another run, another key


def test_rows_are_split_without_tokens() -> None:
    model, engine = trained(federation("rows"))
    assert {m.tag for _, m in engine.messages} == {
        "agree/schema", "agree/plan", "count/sizes", "graph/leaves"
    }  # fmt: skip
    assert set(model.ledger_.summary().reset_index()["phase"]) == {"agree", "count", "graph"}


# ---------------------------------------------------------------------- the target's classes


def test_told_classes_keep_clusters_apart() -> None:
    parties = federation("columns")
    holder = next(p for p in parties if "risk" in p.table.schema)
    other = next(p for p in parties if "risk" not in p.table.schema)
    assert holder.table.row_ids is not None
    codes = holder.table.values[:, holder.table.schema.index("risk")]
    classes = dict(zip(map(str, holder.table.row_ids.tolist()), codes, strict=True))
    for share in (True, False):
        _, engine = trained(parties, target="risk", share_target=share, clusters=4)
        found = labels_of(engine, parties)
        mixed = {
            name: max(
                len({classes[i] for i, k in own.items() if k == c and not np.isnan(classes[i])})
                for c in set(own.values())
            )
            for name, own in found.items()
        }
        assert mixed[holder.name] == 1 and mixed[other.name] == (1 if share else 2)


def test_numbers_are_no_classes() -> None:
    model, _ = trained(federation("columns"), target="age", share_target=True)
    assert "labels" not in {e.phase for e in model.ledger_}
    assert len(list(model.circuit_.leaves())) <= 6


# ---------------------------------------------------------------------- notes and refusals


def test_parties_without_row_ids_are_taken_to_be_independent() -> None:
    whole = mixed_table()
    parts = {n: whole.select(c) for n, c in (("a", ["age", "risk"]), ("b", ["visits"]))}
    plain = {n: fc.Table(t.schema, t.values) for n, t in parts.items()}
    plain["a"] = parts["a"]  # one has ids, the other none
    text = (
        "parties are taken to be independent beyond their clusters' sizes, because not all of "
        "them have row ids: give row ids that they share, Federation(…, row_id='…')"
    )
    with pytest.warns(UserWarning) as told:
        model, engine = trained(fc.Federation(plain))
    assert [str(w.message) for w in told] == [text] and model.notes_ == (text,)
    assert "key/tokens" not in {m.tag for _, m in engine.messages}
    sizes, _ = trained(fc.Federation(plain), weights="sizes")  # asked for: nothing to be told
    assert np.array_equal(sizes.score_samples(ROWS), model.score_samples(ROWS))


def test_no_row_with_all_variables() -> None:
    whole = mixed_table()
    parties = {
        "a": whole.select(["age", "risk"]).rows(slice(0, 70)),
        "b": whole.select(["visits"]).rows(slice(70, 150)),
    }
    with pytest.warns(UserWarning, match="because no row is held by parties that have all variab"):
        model, _ = trained(fc.Federation(parties))
    assert np.isfinite(model.score_samples(ROWS)).all()


def test_numbers_and_texts_as_ids_meet() -> None:
    whole = mixed_table()
    assert whole.row_ids is not None
    left, right = whole.select(["age"]), whole.select(["visits", "risk"])
    scores = []
    for ids in (whole.row_ids, whole.row_ids.astype(str)):
        told = fc.Table(right.schema, right.values, ids)
        scores.append(trained(fc.Federation({"a": left, "b": told}))[0].score_samples(ROWS))
    assert np.array_equal(scores[0], scores[1])


def test_other_versions_are_refused() -> None:
    engine = Watched({("south", "agree/schema"): lambda hello: {**hello, "version": 0}})
    text = "south speaks version 0 of this protocol, expected [0-9]+: install the same fedcircuits"
    with pytest.raises(PartyLostError, match=text):
        fc.FedPC(QUICK).fit(federation("columns"), engine=engine)


@pytest.mark.parametrize(
    ("who", "tag", "text"),
    [
        ("south", "agree/schema", "south sent list under 'agree/schema', expected dict"),
        ("south", "count/tokens", "south sent list under 'count/tokens', expected dict"),
        (COORDINATOR, "agree/plan", "coordinator sent list under 'agree/plan', expected dict"),
        ("north", "key/tokens", "north sent list under 'key/tokens', expected str"),
    ],
)
def test_messages_of_another_kind_are_refused(who: str, tag: str, text: str) -> None:
    engine = Watched({(who, tag): lambda _: [1, 2]})
    with pytest.raises(PartyLostError, match=text):
        fc.FedPC(QUICK).fit(federation("columns"), engine=engine)


def test_columns_that_mean_two_things() -> None:
    """Refused before anything runs, with both parties and the column."""
    tables = {"north": {"age": [31.5, 40.5]}, "south": {"age": ["old", "young"]}}
    with pytest.raises(fc.errors.FederationError, match="'age' is a real at north and a category"):
        fc.Federation(tables)


def test_many_missing_values() -> None:
    """A column that a cluster lacks altogether, at a party that holds nothing else."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=200)
    x = np.where(group == 1, np.nan, rng.normal(size=200))
    y, z = rng.normal(size=200) + 6 * group, rng.normal(size=200)
    table = fc.Table.of({"x": x, "y": y, "z": z})
    whole = fc.Table(table.schema, table.values, np.arange(200))
    parties = fc.Federation({"a": whole.select(["x", "y"]), "b": whole.select(["y", "z"])})
    for learner in (fc.LearnSPN(), QUICK):
        model, _ = trained(parties, clusters=2, learner=learner)
        assert np.isfinite(model.score_samples(whole)).all()
