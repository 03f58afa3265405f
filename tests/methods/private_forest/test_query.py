"""Private inference: exact for any number of parties; nobody learns more; no wrong answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.engines import memory
from fedcircuits.errors import QueryError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import encode_message
from fedcircuits.methods.private_forest.model import Forest, ModelShares, bounded
from fedcircuits.methods.private_forest.query import LIKELIHOOD, PrivateDistribution
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.operations.checks import ALIKE, CHECKED, COMMITTED, TOSSED
from fedcircuits.privacy.operations.powers import Logarithm, logs_of
from fedcircuits.privacy.operations.products import MASKED
from fedcircuits.privacy.sharing.group import SHARE, Group, Shares, summed
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.testing import check_protocol
from tests.methods.private_forest.asking import (
    ASKER,
    CLOSE,
    RUN,
    answer,
    asking,
    booleans,
    circuits,
    exact,
    held,
    known,
    mixed,
    mixture,
    parameters,
    points,
    ready,
    run,
    stores,
    taken,
)
from tests.methods.watched import dying, read
from tests.privacy.parties import answers, key, messages, names

FOREST = Forest(mixture_of_products(booleans(4), 3))
BEGUN = tuple(f"query/checks/{what}" for what in ("blinds", "commit", "same"))
CHECK, LAST = (
    tuple(f"query/{which}/{what}" for what in ("toss/0", "values", "toss/1", "opened"))
    for which in ("check", "answer")
)
TAGS = ("query/points", *BEGUN, *CHECK, "query/exponents", "query/product", *LAST, "query/root")

# ---------------------------------------------------------------------- exactness


@pytest.mark.parametrize(
    ("name", "count"),
    [*(("flat", count) for count in (3, 4, 5, 8, 12)), ("side by side", 3), ("side by side", 6)],
)
def test_log_likelihoods(name: str, count: int) -> None:
    """Booleans and categories, some left out, asked by an outsider."""
    forest = Forest(circuits()[name], marginals=True)
    learned = parameters(forest, count)
    x = points(forest.circuit.schema, 5, count, 0.2)
    assert np.abs(answer(forest, learned, count, x) - exact(forest, learned, x)).max() < CLOSE


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(3, 6), st.sampled_from([0.1, 1.0, 10.0]))
def test_any_mixture(seed: int, count: int, alpha: float) -> None:
    """Sharp and flat distributions, one component or several, any asker."""
    rng = np.random.default_rng(seed)
    schema = mixed(int(rng.integers(0, 4)))
    forest = Forest(mixture_of_products(schema, int(rng.integers(1, 5))), marginals=True)
    learned = parameters(forest, seed, alpha)
    x = points(schema, 3, seed, 0.3)
    asker = [ASKER, *names(count)][int(rng.integers(count + 1))]
    found = answer(forest, learned, count, x, asker)
    assert np.abs(found - exact(forest, learned, x)).max() < CLOSE


@pytest.mark.parametrize("name", ["nltcs", "tretail"])
def test_data_sets(name: str, data: Path) -> None:
    """Components around training rows, asked about test rows: far below what a float64 holds as a
    probability of single components."""
    with np.load(data / "debd" / f"{name}.npz") as found:
        train, test = found["train"][:20].astype(float), found["test"][:30].astype(float)
    forest = Forest(mixture_of_products(booleans(train.shape[1]), len(train)))
    weight = np.random.default_rng(0).dirichlet(np.ones(len(train)))
    learned = bounded(forest, mixture(forest, 0.02 + 0.96 * train, weight))
    found = answer(forest, learned, 3, test)
    assert np.abs(found - exact(forest, learned, test)).max() < CLOSE


@pytest.mark.parametrize(("variables", "count"), [(16, 3), (16, 12), (135, 3), (135, 5)])
def test_edges(variables: int, count: int) -> None:
    """All parameters at their bounds, rows at the bottom and at the top: nothing vanishes, nothing
    overflows."""
    forest = Forest(mixture_of_products(booleans(variables), 2))
    p = np.stack([np.full(variables, 2.0**-9.5), np.full(variables, 2.0**-9.4)])
    learned = mixture(forest, p, np.array([2.0**-16, 1 - 2.0**-16]))
    x = np.concatenate([np.ones((5, variables)), np.zeros((5, variables))])
    expected = exact(forest, learned, x)
    assert expected[0] < -6.5 * variables and expected[-1] > -0.3
    assert np.abs(answer(forest, learned, count, x) - expected).max() < CLOSE


def test_one_component_at_the_bound() -> None:
    """The least likelihood that there can be."""
    forest = Forest(mixture_of_products(booleans(8), 1))
    learned = mixture(forest, np.full((1, 8), 2.0**-9.5), np.array([1.0]))
    found = answer(forest, learned, 4, np.ones((20, 8)))
    assert np.abs(found + 76 * np.log(2)).max() < CLOSE


def test_zeros_are_smoothed_by_their_owner() -> None:
    forest = Forest(mixture_of_products(booleans(5), 2))
    raw = mixture(forest, np.eye(2, 5), np.array([0.0, 1.0]))
    learned = bounded(forest, raw)
    x = np.array([[1.0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    found = answer(forest, learned, 3, x)
    assert np.isfinite(found).all()
    assert np.abs(found - exact(forest, learned, x)).max() < CLOSE


def test_everything_left_out() -> None:
    forest = Forest(mixture_of_products(booleans(4), 3), marginals=True)
    found = answer(forest, parameters(forest), 3, np.full((2, 4), np.nan))
    assert np.abs(found).max() < CLOSE


def test_posterior_of_a_class() -> None:
    """All classes of all points in one query, in the same rounds."""
    forest = Forest(mixture_of_products(mixed(3), 3))
    learned, x = parameters(forest), points(mixed(3), 4)
    tags: list[str] = []

    def asked(joint: Any) -> Any:
        assert joint.shape == (16, 5)
        outcome = run(ready(forest, learned, 3, joint))
        tags.extend(dict.fromkeys(e.tag for e in outcome.ledger))
        return outcome.results[ASKER]

    found = PrivateDistribution(forest, asked).posterior(x, "b")
    expected = Distribution(forest.circuit, learned).posterior(x, "b")
    assert np.abs(found - expected).max() < CLOSE and np.allclose(found.sum(1), 1)
    assert sorted(set(tags)) == sorted(TAGS)


def test_parameters_that_all_know() -> None:
    """Each party's share is the parameter itself; points are hidden all the same."""
    learned, x = parameters(FOREST), points(booleans(4), 3)
    shares = {me: known(FOREST, learned, me, names(3)) for me in names(3)}
    made = asking(FOREST, shares, taken(stores(FOREST, 3, 3), 3), x)
    assert np.abs(run(made).results[ASKER] - exact(FOREST, learned, x)).max() < CLOSE


def averages(me: str, members: tuple[str, ...], key: bytes, own: Any, forest: Forest) -> Flow[Any]:
    """ModelShares of logarithms of the parties' mean parameters."""
    logarithm = Logarithm(len(members), 16)
    group = Group.of(me, members, key, "average").over(logarithm.ring)
    point, arrays = FixedPoint(logarithm.precision, 1, logarithm.ring), {}
    for name, plain in own.items():
        mean = yield from summed(group, f"mean/{name}", point.encode(plain / len(members)))
        arrays[name] = yield from logs_of(group, f"log/{name}", mean, logarithm)
    found = ModelShares(RUN, me, members, arrays)
    found.check(forest)
    return found


@pytest.mark.parametrize("count", [3, 4])
def test_averages_of_parameters(count: int) -> None:
    """Shares made by secure logarithms, asked at once: the mean of what parties have learned."""
    given_, learned = {}, [parameters(FOREST, seed, 2.0) for seed in range(count)]
    for me, own in zip(names(count), learned, strict=True):
        p = own["component"]["probability"]
        given_[me] = {"component": np.stack([1 - p, p], -1), "root": own["root"]["weight"]}
    shares = answers(averages, given_, forest=FOREST)
    p = np.mean([own["component"]["probability"] for own in learned], axis=0)
    weight = np.mean([own["root"]["weight"] for own in learned], axis=0)
    x = points(booleans(4), 4)
    made = asking(FOREST, shares, taken(stores(FOREST, count, 4), 4), x)
    expected = exact(FOREST, mixture(FOREST, p, weight[0]), x)
    assert np.abs(run(made).results[ASKER] - expected).max() < CLOSE


# ---------------------------------------------------------------------- what crosses


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("asker", [ASKER, "party1"])
def test_rounds_messages_and_bytes(count: int, asker: str) -> None:
    rows, outcome = 7, run(ready(FOREST, parameters(FOREST), count, points(booleans(4), 7), asker))
    others = count - 1 if asker == "party1" else count
    found: dict[str, list[int]] = {}
    for e in outcome.ledger:
        found.setdefault(e.tag, []).append(e.bytes)
    size, most = FOREST.ring(count).bytes, (count - 1) // 2
    all_to_all, dealt = count * (count - 1), (2 * most + 1) * (count - 1)
    assert FOREST.ring(count).bits != 127 and -(-rows * 8 // 16) == 4  # terms of 16 groups
    blinds = 16 * 2 * 4 + 16 * 2 * 1 + size * 3 * 2 * 1  # of points, of exponents, of the product
    answers = {
        "toss/0": (all_to_all, (64,)),
        "values": (dealt, (16 * 2 * 8 + size * 3 * 2 * rows,)),
        "toss/1": (all_to_all, (64,)),
        "opened": (all_to_all, (16 * 3 + size * 3 * 3,)),
    }
    shapes = {
        "query/points": (others, (rows, 8, 16)),
        "query/checks/blinds": ((most + 1) * (count - 1), (blinds,)),
        "query/checks/commit": (all_to_all, (4 * 32,)),
        "query/checks/same": (all_to_all, (64,)),
        "query/check/toss/0": (all_to_all, (64,)),
        "query/check/values": (dealt, (1, 32, 16)),
        "query/check/toss/1": (all_to_all, (64,)),
        "query/check/opened": (all_to_all, (1, 9, 16)),
        "query/exponents": (all_to_all, (rows, 3, 16)),
        "query/product": (dealt, (rows, size)),
        **{f"query/answer/{what}": shape for what, shape in answers.items()},
        "query/root": (others, (rows, size)),
    }
    assert found == {
        tag: [len(encode_message(Shares(np.zeros(shape, np.uint8))))] * number
        for tag, (number, shape) in shapes.items()
    }


def test_who_learns_what() -> None:
    """The root goes to the asker alone; a coordinator is no part of it."""
    made = ready(FOREST, parameters(FOREST), 4, points(booleans(4), 2))
    assert COORDINATOR not in made
    ledger = run(made).ledger
    told = {"toss/0": TOSSED, "values": SHARE, "toss/1": TOSSED, "opened": CHECKED}
    assert {(e.tag, e.reveals) for e in ledger} == {
        ("query/points", SHARE),
        ("query/checks/blinds", SHARE),
        ("query/checks/commit", COMMITTED),
        ("query/checks/same", ALIKE),
        *(
            (f"query/{which}/{what}", word)
            for which in ("check", "answer")
            for what, word in told.items()
        ),
        ("query/exponents", MASKED),
        ("query/product", SHARE),
        ("query/root", LIKELIHOOD),
    }
    assert {e.receiver for e in ledger if e.tag == "query/root"} == {ASKER}
    assert {e.sender for e in ledger if e.receiver in names(4)} == {ASKER, *names(4)}
    assert {e.tag for e in ledger if e.receiver == ASKER} == {"query/root"}


def opened(made: dict[str, Any], tag: str, ring: Any, degree: int) -> list[int]:
    """What shares under a tag open to."""
    _, sent = messages(made)
    rows = []
    for me in names(3):
        [data, *_] = [m.data for m in sent[me] if m.tag == tag]
        payload = read(data)["data"]
        rows.append(ring.unpacked(payload.reshape(-1), payload.shape[:-1]))
    return [
        int(v) for v in ring.integers(reconstruct(ring, np.stack(rows), degree, names(3))).ravel()
    ]


def test_opened_exponents_tell_nothing() -> None:
    """Of the likeliest and of the least likely point: every bit below the first is a fair coin."""
    learned = mixture(FOREST, np.full((3, 4), 0.01), np.full(3, 1 / 3))
    for value in (0.0, 1.0):
        made = ready(FOREST, learned, 3, np.full((500, 4), value))
        found = opened(made, "query/exponents", FIELD, 2)
        bits = np.array([[v >> k & 1 for k in range(124)] for v in found])
        deviations = (bits.mean(0) - 0.5) * 2 * np.sqrt(len(found))
        assert np.abs(deviations).max() < 4.5 and 0.7 < np.square(deviations).mean() < 1.3


def test_components_cannot_be_read_in_the_answer() -> None:
    """Two components 240 bits apart: below the first 60 bits the root is noise, in which the
    second would otherwise stand."""
    forest = Forest(mixture_of_products(booleans(40), 2))
    p = np.stack([np.full(40, 0.5), np.full(40, 2.0**-6)])
    made = ready(forest, mixture(forest, p, np.array([0.5, 0.5])), 3, np.ones((400, 40)))
    found = opened(made, "query/root", forest.ring(3), 1)
    length = max(v.bit_length() for v in found)
    bits = np.array([[v >> k & 1 for k in range(length - 25)] for v in found])
    deviations = (bits.mean(0) - 0.5) * 2 * np.sqrt(len(found))
    assert len(deviations) > 900
    assert np.abs(deviations).max() < 4.8 and 0.85 < np.square(deviations).mean() < 1.15


# ---------------------------------------------------------------------- losses and wrong shares


@pytest.mark.parametrize("tag", TAGS)
def test_a_party_killed_in_every_round(tag: str) -> None:
    """Before its first message of the round, or between two of them: no answer, and all who still
    needed it blame it."""
    x, learned, count = points(booleans(4), 2), parameters(FOREST), 4
    senders = [e.sender for e in run(ready(FOREST, learned, count, x)).ledger if e.tag == tag]
    for victim in dict.fromkeys(senders):
        for after in (0, 1) if senders.count(victim) > 1 else (0,):
            made = ready(FOREST, learned, count, x)
            told = {"program": made[victim], "tag": tag, "after": after}
            outcome = memory.run({**made, victim: Program(dying, told)})
            assert ASKER not in outcome.results and victim in outcome.lost
            assert set(outcome.results.values()) <= {None}
            for me, error in outcome.lost.items():
                blamed = error.party
                while blamed != victim and blamed != outcome.lost[blamed].party:
                    blamed = outcome.lost[blamed].party
                assert blamed == victim, f"{me}: {error}"


@pytest.mark.parametrize("count", [3, 4, 5])
def test_wrong_shares_of_the_model_are_caught(count: int) -> None:
    shares = held(FOREST, parameters(FOREST), count)
    shares["party2"].arrays["root"][0, 1, 0] ^= np.uint64(1)
    made = asking(FOREST, shares, taken(stores(FOREST, count, 1), 1), points(booleans(4), 1))
    outcome = memory.run(made)
    assert not outcome.results
    assert "inconsistent shares" in str(outcome.lost["party0"])


# ---------------------------------------------------------------------- askers


def test_points_are_for_the_asker() -> None:
    x = points(booleans(4), 2)
    made = ready(FOREST, parameters(FOREST), 3, x)
    made["party1"].arguments["points"] = x
    assert f"party1 has points and {ASKER} asks" in str(memory.run(made).lost["party1"])
    made = ready(FOREST, parameters(FOREST), 3, x, "party0")
    made["party0"].arguments["points"] = None
    assert "party0 has no points and party0 asks" in str(memory.run(made).lost["party0"])


def test_an_outsider_is_no_party() -> None:
    x = points(booleans(4), 2)
    made = ready(FOREST, parameters(FOREST), 3, x)
    flow = Program(made[ASKER].function, {**made[ASKER].arguments, "me": "party0"}).start()
    with pytest.raises(QueryError, match="party0 is one of the parties"):
        next(flow)


def test_another_number_of_points_is_refused() -> None:
    made = ready(FOREST, parameters(FOREST), 3, points(booleans(4), 3))
    made[ASKER].arguments["points"] = points(booleans(4), 2)
    outcome = memory.run(made)
    assert not outcome.results and f"{ASKER} sent 'query/points'" in str(outcome.lost["party0"])


def test_laws_of_protocols() -> None:
    """In processes too, asked by an outsider; in memory, by a party."""
    learned, x = parameters(FOREST), points(booleans(4), 2)
    check_protocol(ready(FOREST, learned, 3, x))
    check_protocol(ready(FOREST, learned, 4, x, "party2"), run=memory.run)


def test_shares_are_dealt_by_fresh_keys() -> None:
    """The same point asked twice crosses as other bytes."""
    x, shares = points(booleans(4), 1), held(FOREST, parameters(FOREST), 3)
    prepared, seen = stores(FOREST, 3, 2), []
    for label in ("first", "second"):
        _, sent = messages(asking(FOREST, shares, taken(prepared, 1), x, label=label))
        seen.append({m.data for own in sent.values() for m in own})
    assert not seen[0] & seen[1]
    assert key("asks first") != key("asks second")
