"""Where clusters meet, counted on shares: the plain counts, and nobody's clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.engines import memory
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.sums.counting import Contingency, Labels, patterns
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.operations.checks import ALIKE, CHECKED, COMMITTED, TOSSED
from fedcircuits.privacy.secret_counts import (
    COUNTS,
    LONGEST,
    RING,
    OccurringCombinations,
    SecretCounts,
    inner,
)
from fedcircuits.privacy.sharing.group import SHARE
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.testing import check_messages, check_protocol
from tests.methods.watched import dying, flipped, read, saying
from tests.privacy.liars import KINDS, adding, lies, line
from tests.privacy.parties import key, messages, names

FEW = 100  # numbers of a block: rows are counted in several


def clusters(count: int, rows: int, most: int, seed: int = 0, held: float = 1.0) -> Labels:
    """(rows, parties): clusters that depend on each other, −1 where a party lacks the row."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(most, size=rows)
    own = [
        np.where(rng.random(rows) < 0.6, kind, rng.integers(most, size=rows)) for _ in range(count)
    ]
    found = np.stack(own, axis=1)
    found[rng.random(found.shape) > held] = -1
    return found


def party(me: str, labels: Labels, label: str = "", **counting: Any) -> Flow[None]:
    return (yield from SecretCounts(me, key=key(me + label), **counting).contribute({0: labels}))


def coordinator(table: Contingency, where: Labels, label: str = "", **counting: Any) -> Flow[Any]:
    counts = SecretCounts(COORDINATOR, key=key(COORDINATOR + label), **counting)
    return (yield from counts.collect({0: table}, where))


def programs(
    labels: Labels, groups: Any = None, most: int | None = None, **counting: Any
) -> dict[str, Any]:
    """Parties that list their own rows in their order, and hold a group of variables each."""
    parties = names(labels.shape[1])
    number = most or int(labels.max()) + 1
    table = Contingency(parties, (number,) * len(parties), groups or tuple((p,) for p in parties))
    where, made = np.full(labels.shape, -1), {}
    counting = {"parties": parties, **counting}
    for i, me in enumerate(parties):
        at = np.flatnonzero(labels[:, i] >= 0)
        where[at, i] = np.arange(len(at))
        made[me] = Program(party, {"me": me, "labels": labels[at, i], **counting})
    made[COORDINATOR] = Program(coordinator, {"table": table, "where": where, **counting})
    return made


def counted(labels: Labels, **how: Any) -> Any:
    outcome = memory.run(programs(labels, **how))
    assert not outcome.lost, list(outcome.lost.values())
    assert all(v is None for p, v in outcome.results.items() if p != COORDINATOR)
    return outcome.results[COORDINATOR]


def assert_counts(found: Any, labels: Labels) -> None:
    combinations, rows = patterns(labels)
    np.testing.assert_array_equal(found[0], combinations)
    np.testing.assert_array_equal(found[1], rows)


# ---------------------------------------------------------------------- the counts


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(1, 60), st.integers(1, 5), st.integers(0, 10**6))
def test_they_are_the_plain_ones(count: int, rows: int, most: int, seed: int) -> None:
    labels = clusters(count, rows, most, seed)
    assert_counts(counted(labels, most=most)[0], labels)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_only_combinations_that_occur(count: int) -> None:
    """Where there could be many, and in blocks of few rows."""
    labels = clusters(count, 70, 4, count)
    assert_counts(counted(labels, room=FEW)[0], labels)


def test_rows_that_not_all_hold() -> None:
    """Sets of holders that have all variables count, those that lack some do not."""
    labels = clusters(4, 120, 3, held=0.7)
    p = names(4)
    groups = ((p[0], p[1]), (p[1], p[2]), (p[3],))
    held = labels >= 0
    whole = (held[:, 0] | held[:, 1]) & (held[:, 1] | held[:, 2]) & held[:, 3]
    assert 0 < whole.sum() < 120
    assert_counts(counted(labels, groups=groups)[0], labels[whole])


def test_no_row_that_all_hold() -> None:
    labels = np.array([[0, -1, 1], [-1, 1, 0]])
    assert counted(labels) == {}


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 40), st.integers(0, 10**6))
def test_sums_of_products(a: int, b: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(RING.modulus, size=(n, rows), dtype=np.uint64) for n in (a, b))
    x[rng.random(x.shape) < 0.3] = RING.modulus - 1
    expected = (
        x.astype(object) @ y.T.astype(object) % RING.modulus if rows else np.zeros((a, b), object)
    )
    assert (inner(x, y).astype(object) == expected).all()


def test_sums_of_products_of_the_most_rows() -> None:
    """At the edge of what float64 holds."""
    x = np.full((1, LONGEST), RING.modulus - 1, np.uint64)
    assert int(inner(x, x)[0, 0]) == LONGEST % RING.modulus  # (−1)² each


# ---------------------------------------------------------------------- what crosses


@pytest.mark.parametrize(("count", "members"), [(2, 3), (3, 3), (4, 4)])
def test_who_learns_what(count: int, members: int) -> None:
    """Parties: shares, and which of their rows others hold. The coordinator: counts."""
    made = programs(clusters(count, 40, 3))
    ledger = memory.run(made).ledger
    assert len(SecretCounts("party0", names(count)).members) == members
    to_parties = {e.reveals for e in ledger if e.receiver != COORDINATOR}
    checks = {COMMITTED, ALIKE, TOSSED, CHECKED}
    assert to_parties == {
        SHARE,
        *checks,
        "which of the reader's rows other parties hold",
        "which parties' clusters are counted, over how many rows, and which of the reader's "
        "clusters are among them",
    }
    to_it = {e.reveals for e in ledger if e.receiver == COORDINATOR}
    assert to_it == ({COUNTS, SHARE, *checks} if count == 2 else {COUNTS})


def test_which_occur_is_told_where_there_could_be_many() -> None:
    ledger = memory.run(programs(clusters(3, 40, 3), room=FEW)).ledger
    occur = OccurringCombinations.reveals
    assert {e.receiver for e in ledger if e.reveals == occur} == set(names(3))


def test_messages_do_not_depend_on_clusters() -> None:
    seen = []
    for seed in (1, 2):
        outcome = memory.run(programs(clusters(3, 50, 4, seed), most=4))
        seen.append(sorted((e.sender, e.receiver, e.tag, e.bytes) for e in outcome.ledger))
    assert seen[0] == seen[1]


def test_the_coordinator_has_shares_of_counts_only() -> None:
    """All it gets, put together, are the counts of combinations: no number of a row."""
    labels = clusters(3, 60, 3)
    _, sent = messages(programs(labels, most=3))
    to_it = {p: [m for m in sent[p] if m.party == COORDINATOR] for p in names(3)}
    assert {m.tag for own in to_it.values() for m in own} == {"count/0/table"}
    shares = []
    for own in to_it.values():
        data = read(own[0].data)["data"]
        shares.append(RING.unpacked(data.reshape(-1), data.shape[:-1]))
    found = reconstruct(RING, np.stack(shares), 1, names(3))[..., 0]  # (one party, two parties)
    assert found.size == 27 and found.sum() == 60
    counts = patterns(labels)[1]
    assert sorted(found[found > 0].tolist()) == sorted(counts.tolist())


def bits_of(data: Any) -> Any:
    shares = read(data)["data"]
    return RING.unpacked(shares.reshape(-1), shares.shape[:-1])[..., 0].ravel()


def test_shares_of_one_cluster_and_of_another_look_the_same() -> None:
    """What one party is dealt is uniform, whether all rows are in the first cluster or the last."""
    for label in (0, 1):
        _, sent = messages(programs(np.full((4000, 3), label), most=2))
        [dealt] = [
            m.data for m in sent["party1"]
            if m.tag == "count/0/clusters/party1" and m.party == "party0"
        ]  # fmt: skip
        found = bits_of(dealt)
        assert len(found) == 8000
        bits = (found[:, None] >> np.arange(31, dtype=np.uint64)) & np.uint64(1)
        deviations = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(len(found))
        assert np.abs(deviations).max() < 4.5
        assert len(np.unique(found)) > 7990


# ---------------------------------------------------------------------- losses and wrong shares


@pytest.mark.parametrize("room", [1 << 22, FEW])
def test_malformed_messages_blame_their_sender(room: int) -> None:
    assert check_messages(lambda: programs(clusters(3, 20, 3), room=room)) > 100


@pytest.mark.parametrize(
    ("tag", "after"),
    [
        *(("count/0/clusters/party1", after) for after in (0, 1)),
        *(("count/0/meet", after) for after in (0, 1)),
        *(("count/0/sums", after) for after in (0, 1)),
        ("count/0/table", 0),
    ],
)
def test_a_party_killed_in_every_round(tag: str, after: int) -> None:
    made = programs(clusters(4, 30, 3))
    told = {"program": made["party1"], "tag": tag, "after": after}
    outcome = memory.run({**made, "party1": Program(dying, told)})
    assert COORDINATOR not in outcome.results and "party1" in outcome.lost
    assert "party1" in str(outcome.lost[COORDINATOR])


@pytest.mark.parametrize("tag", ["count/0/sums", "count/0/table"])
def test_a_flipped_share_is_caught(tag: str) -> None:
    """There are N − t − 1 shares to spare when counts are opened."""
    made = programs(clusters(4, 30, 3))
    told = {"program": made["party1"], "tag": tag, "change": flipped(1, 2)}
    outcome = memory.run({**made, "party1": Program(saying, told)})
    found_by = COORDINATOR if tag == "count/0/table" else "party0"
    assert "inconsistent shares" in str(outcome.lost[found_by])


def test_clusters_that_are_none_are_noticed() -> None:
    """A party that deals two clusters of a row, or none, or numbers by which single rows of others
    could be read in the counts: nothing is opened."""
    made = programs(clusters(3, 30, 3))
    made["party2"].arguments["labels"] = np.full(30, 7)
    outcome = memory.run(made)
    assert COORDINATOR not in outcome.results
    assert "count/0/table" not in {e.tag for e in outcome.ledger}
    assert "counts of party0, party1, party2 are wrong" in str(outcome.lost["party0"])


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_one_liar_in_every_message(count: int, kind: str) -> None:
    """Flipped, replayed, swapped or withheld: no counts."""
    for tag, lied in lies(_counting(count), "party0", kind):
        outcome = memory.run(lied)
        assert COORDINATOR not in outcome.results, f"{tag!r} was believed"


@pytest.mark.parametrize("count", [3, 4, 5])
def test_one_count_more_and_another_less(count: int) -> None:
    """They still add up to the rows: without the check it would be believed."""
    made = programs(clusters(count, 30, 3))
    amount = line(RING, names(count), "party0", 5)
    told = {"program": made["party0"], "tag": "count/0/sums", "amount": amount, "ring": RING}
    outcome = memory.run({**made, "party0": Program(adding, told)})
    assert COORDINATOR not in outcome.results
    assert "counts of party0" in str(outcome.lost["party1"])


def _counting(count: int) -> Any:
    """The same counts, by keys of a label."""
    labels = clusters(count, 12, 2)
    return lambda label: programs(labels, label=label)


def test_combinations_that_there_are_not() -> None:
    made = programs(clusters(3, 30, 3), room=FEW)
    wrong = {"occurs": np.ones((3, 4), bool)}
    told = {"program": made[COORDINATOR], "tag": "count/0/0/occur", "change": lambda _: wrong}
    outcome = memory.run({**made, COORDINATOR: Program(saying, told)})
    text = "coordinator sent 'count/0/0/occur' that does not fit, field 'occurs': expected"
    assert text in str(outcome.lost["party0"])


def test_too_many_combinations() -> None:
    outcome = memory.run(programs(clusters(3, 30, 3), room=FEW, products=100))
    assert "too many to count on shares: use fewer clusters" in str(outcome.lost[COORDINATOR])


def test_shares_of_all_but_one_cannot_be_multiplied() -> None:
    Secret().require_counts("summation")
    with pytest.raises(FederationError, match="use threshold='majority'"):
        Secret("all").require_counts("summation")


@pytest.mark.parametrize("count", [2, 3])
def test_laws_of_protocols(count: int) -> None:
    check_protocol(programs(clusters(count, 12, 2)), without=["processes"] if count == 3 else [])
