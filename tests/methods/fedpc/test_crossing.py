"""What crosses in one-pass training, and what does not: ids, values, keys, classes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Envelope
from tests.federation.cases import QUICK, federation
from tests.methods.fedpc.runs import labels_of, trained
from tests.methods.watched import Watched, read

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


def found_in(messages: list[tuple[str, Envelope]], needles: list[bytes]) -> list[tuple[str, str]]:
    whole = [(sender, m.tag, m.data) for sender, m in messages]
    return [(sender, tag) for sender, tag, data in whole if any(n in data for n in needles)]


def spelt(value: float) -> list[bytes]:
    ways = [struct.pack("<d", value), struct.pack("<f", value), repr(value).encode()]
    return [*ways, str(int(value)).encode(), struct.pack("<q", int(value))] if value > 1e5 else ways


@pytest.mark.parametrize(
    "settings",
    [
        {"share_clusters": True},
        {"weights": "em"},
        {"refine": 2},
        {"target": "sex", "share_target": True},
    ],
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
    told = Envelope("x", "a/b", b"..." + struct.pack("<d", value) + b"...")
    assert found_in([("north", told)], spelt(value)) == [("north", "a/b")]


@pytest.mark.parametrize("settings", [{}, {"refine": 1, "target": "sex", "share_target": True}])
def test_the_coordinator_never_has_the_key(settings: dict[str, Any]) -> None:
    model, engine = trained(distinctive(), **settings)
    (programs,) = engine.programs
    secret = programs["north"].arguments["secret"]
    assert isinstance(secret, bytes) and "secret" not in programs[COORDINATOR].arguments
    assert programs["south"].arguments["secret"] == b""  # the first party tells it a key
    to_it = [(s, m) for s, m in engine.messages if m.party == COORDINATOR]
    assert to_it and found_in(to_it, [secret, secret.hex().encode()]) == []
    keys = [e for e in model.ledger_ if e.phase == "key"]
    assert [(e.sender, e.receiver) for e in keys] == [("north", "south")]
    revealed = model.ledger_.revealed(COORDINATOR)
    assert "the cluster of each row (rows are known only by sealed tokens)" in set(revealed["what"])
    assert "the sealed tokens of its rows" in set(revealed["what"])


def test_tokens_say_nothing_of_the_order_of_rows() -> None:
    _, engine = trained(distinctive())
    _, other = trained(distinctive())
    tokens = [
        read(m.data)["tokens"]
        for e in (engine, other)
        for s, m in e.messages
        if (s, m.tag) == ("north", "rows/tokens")
    ]
    for one in tokens:
        assert (np.diff(one.astype(float)) > 0).all()
    assert not np.isin(tokens[0], tokens[1]).any()  # another run, another key


def test_rows_are_split_without_tokens() -> None:
    model, engine = trained(federation("rows"))
    assert {m.tag for _, m in engine.messages} == {
        "agree/hello", "agree/plan", "count/sizes", "graph/leaves"
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
        _, engine = trained(parties, target="risk", share_target=share, clusters=4, ensemble=2)
        found = labels_of(engine, parties, 1)
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
    assert len(list(model.circuit_.leaves())) <= 6 * 4  # circuits


def test_first_clusters_do_not_tell_the_class() -> None:
    """What others hear is the same whatever the target's values are."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 200, 2))
    told = []
    for classes in (rng.integers(2, size=200), np.arange(200) // 100):
        own = fc.Table.of({"x0": x[:, 0], "x1": x[:, 1], "risk": classes.astype(str)})
        tables = {"a": fc.Table(own.schema, own.values, np.arange(200)),
                  "b": fc.Table.of({"id": np.arange(200), "y0": y[:, 0], "y1": y[:, 1]},
                                   row_id="id")}  # fmt: skip
        engine = Watched()
        fc.FedPC(QUICK, target="risk", share_clusters=True, random_state=0).fit(
            fc.Federation(tables), engine=engine
        )
        told.append({m.tag: read(m.data) for s, m in engine.messages if s == "a"})
    ours = [
        {d: np.bincount(v).tolist() for d, v in fields["clusters/own"]["labels"].items()}
        for fields in told
    ]
    assert ours[0] == ours[1]
    assert told[0]["count/sizes"] != told[1]["count/sizes"]  # what the coordinator counts does


def test_a_party_with_the_target_alone_tells_nothing() -> None:
    rng = np.random.default_rng(4)
    tables = {
        "a": fc.Table.of({"id": np.arange(90), "risk": rng.choice(["x", "y"], 90)}, row_id="id"),
        "b": fc.Table.of({"id": np.arange(90), "z": rng.normal(size=90)}, row_id="id"),
    }
    engine = Watched()
    fc.FedPC(QUICK, target="risk", share_clusters=True, random_state=0).fit(
        fc.Federation(tables), engine=engine
    )
    (told,) = [read(m.data) for s, m in engine.messages if (s, m.tag) == ("a", "clusters/own")]
    assert told["labels"]
    assert not any(np.asarray(own).any() for own in told["labels"].values())
