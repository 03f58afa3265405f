"""Private learning: the same as in the clear, rounds, who learns what, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.engines import memory
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.methods.private_forest.parameters import bounded, logarithm
from fedcircuits.methods.private_forest.structures import (
    RULES,
    ForestShape,
    joined,
    joined_parameters,
    learned_alone,
    structure_weights,
)
from fedcircuits.methods.private_forest.training import ForestPlan, LocalTraining, TrainedForest
from fedcircuits.privacy.operations.products import MASKED
from fedcircuits.privacy.sharing.group import SHARE
from fedcircuits.tables.table import Table
from fedcircuits.testing import check_protocol
from tests.methods.private_forest.learning import (
    DEEP,
    FLAT,
    OPEN,
    SMALL,
    alone,
    close,
    mean_by_use,
    parameters,
    parties,
    programs,
    trained,
)
from tests.privacy.parties import by_round, key, messages

# ---------------------------------------------------------------------- the same as in the clear


@pytest.mark.parametrize(
    ("count", "shape", "public"),
    [(3, FLAT, False), (4, DEEP, True), (5, FLAT, True)],
)
def test_average_is_the_mean_by_use(count: int, shape: ForestShape, public: bool) -> None:
    plan = replace(SMALL, shape=shape, public_total=public)
    outcome = trained(plan, count)
    found = parameters(outcome)
    found.check(outcome.results["party0"].forest.circuit)
    close(found, mean_by_use(outcome, alone(plan, count)))
    sizes = sum(len(p.table) for p in parties(count))
    assert outcome.results["party0"].total == (sizes if public else None)


@pytest.mark.parametrize("shape", [FLAT, DEEP])
def test_concatenate_is_the_mixture_of_parties(shape: ForestShape) -> None:
    """Each with its part of all rows; 6 weights or fewer in all, as the forest would have."""
    plan = replace(SMALL, shape=shape, combine="concatenate")
    outcome = trained(plan)
    circuit = outcome.results["party1"].forest.circuit
    found = Distribution(circuit, parameters(outcome))
    x = np.concatenate([p.table.values for p in parties(3)])
    expected, total = np.full(len(x), -np.inf), len(x)
    for i, party in enumerate(parties(3)):
        site = LocalTraining.of(party.table, plan, i, 3)
        own, _ = learned_alone(
            site.circuits[i], site.starts[i], site.rows, site.held, plan.schedule
        )
        share = np.log(len(party.table) / total)
        likelihood = Distribution(site.circuits[i], own).log_likelihood(x)
        expected = np.logaddexp(expected, share + likelihood)
    np.testing.assert_allclose(found.log_likelihood(x), expected, atol=2e-3)  # but for bounds


@pytest.mark.parametrize("validation", [0.1, 0.999])
def test_whatever_is_held_out_the_least_count_is_learned_from(validation: float) -> None:
    """EM tells parties the parameters: nobody should learn from one row only."""
    plan = replace(SMALL, validation=validation)
    for i, party in enumerate(parties(3)):
        rows = len(party.table)
        site = LocalTraining.of(party.table, plan, i, 3, least=20)
        assert site.size == rows and len(site.held) == min(round(validation * rows), rows - 20)


@pytest.mark.parametrize("shape", [FLAT, DEEP])
def test_em_is_that_of_all_rows(shape: ForestShape) -> None:
    plan = replace(SMALL, shape=shape, combine="em", validation=0.0, max_iter=4, tol=-1e9)
    outcome = trained(plan)
    forest = outcome.results["party0"].forest
    every = parties(3)
    rows = np.concatenate([p.table.values for p in every])
    site = LocalTraining.of(every[0].table, plan, 0, 3)
    schedule = EMSchedule(epochs=4, tolerance=-1e9)
    own = [
        maximise_likelihood(c, s, InMemory(rows), schedule=schedule, rules=RULES)
        for c, s in zip(site.circuits, site.starts, strict=True)
    ]
    history = outcome.results["party0"].history
    np.testing.assert_allclose(history, [f.history for f in own])
    weights = structure_weights(np.array([f.history[-1] for f in own]), "rank")
    joint = joined_parameters(site.circuits, [f.parameters for f in own], weights)
    assert forest.circuit == joined(site.circuits)
    close(parameters(outcome), bounded(forest, joint))


def test_iterations_together() -> None:
    """Each goes on alone from where EM on all rows has come."""
    plan = replace(SMALL, together=4, validation=0.0, max_iter=2)
    rows = InMemory(np.concatenate([p.table.values for p in parties(3)]))
    site, _ = alone(plan, 3)[0]
    schedule = EMSchedule(epochs=4, tolerance=-1e9)
    starts = [
        maximise_likelihood(c, s, rows, schedule=schedule, rules=RULES).parameters
        for c, s in zip(site.circuits, site.starts, strict=True)
    ]
    outcome = trained(plan)
    close(parameters(outcome), mean_by_use(outcome, alone(plan, 3, starts)), 1e-7)


def test_same_start_makes_components_alike() -> None:
    """The mean of forests that began at other points is much less likely."""
    plan = replace(SMALL, max_iter=25)
    outcome = trained(plan)
    circuit, x = outcome.results["party0"].forest.circuit, parties(3)[1].table.values
    apart = [alone(replace(plan, seed=seed), 3)[i] for i, seed in enumerate((3, 4, 5))]
    same, other = (
        Distribution(circuit, found).log_likelihood(x).mean()
        for found in (parameters(outcome), mean_by_use(outcome, apart))
    )
    assert same > other + 0.05


# ---------------------------------------------------------------------- rounds, and who learns what


@pytest.mark.parametrize(
    ("count", "shape", "more"), [(3, FLAT, 1), (3, DEEP, 1 + 4 + 1), (5, FLAT, 2)]
)
def test_rounds_of_average(count: int, shape: ForestShape, more: int) -> None:
    """As the head of the protocol says, with more = ⌈log2(t + 1)⌉ where flat; a tag is a round."""
    outcome = trained(replace(SMALL, shape=shape, max_iter=1), count)
    logs = logarithm(outcome.results["party0"].forest, count, 0).rounds
    assert len(by_round(outcome)) == 2 + 2 + 1 + logs + 2 + more


def test_rounds() -> None:
    def rounds(plan: ForestPlan) -> int:
        return len(by_round(trained(plan)))

    assert rounds(replace(SMALL, combine="concatenate", max_iter=1)) == 5
    ems = replace(SMALL, combine="em", max_iter=3, tol=-1e9, validation=0.0)
    assert rounds(ems) == 2 + 2 * (3 + 1) + 1
    together = replace(SMALL, together=2, max_iter=1)
    assert rounds(together) == rounds(replace(together, together=0)) + 4


def test_messages_of_concatenate() -> None:
    found = by_round(trained(replace(SMALL, combine="concatenate"), 4))
    assert found == dict.fromkeys(
        ("agree/plan", "agree/structure", "total/rows/shares", "total/rows/total", "deal/model"), 12
    )


def test_what_parties_learn() -> None:
    """Of parameters nothing but where all learn together; numbers of rows by their sum alone."""
    total = "the sum of numbers of rows"

    def told(plan: ForestPlan) -> set[str]:
        return {e.reveals for e in trained(replace(plan, max_iter=1)).ledger} - {SHARE, MASKED}

    assert told(SMALL) == told(replace(SMALL, combine="concatenate")) == {*OPEN, total}
    assert told(replace(SMALL, public_total=False)) == OPEN
    [counts] = told(replace(SMALL, combine="em")) - OPEN
    assert counts.startswith("the sum of expected counts")
    assert told(replace(SMALL, together=1)) == {*OPEN, total, counts}


@pytest.mark.parametrize("combine", ["average", "concatenate", "em"])
def test_views_are_shares(combine: Any) -> None:
    """Other keys, other shares of the same parameters; nobody's are the parameters."""
    plan = replace(SMALL, combine=combine)
    first = trained(plan)
    made = programs(plan)
    for program in made.values():
        program.arguments["key"] = key(f"another {program.arguments['key'].hex()}")
    second = memory.run(made)
    close(parameters(first), parameters(second))
    for me, own in first.results.items():
        other = second.results[me].shares
        for name, shares in own.shares.arrays.items():
            assert (shares != other.arrays[name]).any(axis=-1).all()
            sizes = own.forest.layouts(3)[name].ring.integers(shares)
            assert max(map(int, sizes.reshape(-1))).bit_length() > 115  # none is a parameter


def test_other_rows_same_messages() -> None:
    """What crosses has the same tags and sizes whatever the rows are."""
    outcome, sent = messages(programs(SMALL))
    made = programs(SMALL)
    party = made["party1"].arguments["party"]
    flipped = Table(party.table.schema, party.table.values[::-1] * 0)
    made["party1"].arguments["party"] = replace(party, table=flipped)
    _, other = messages(made)
    for me in sent:
        assert [(m.tag, len(m.data)) for m in sent[me]] == [(m.tag, len(m.data)) for m in other[me]]
    assert not outcome.lost


# ---------------------------------------------------------------------- the contract


def same(a: TrainedForest, b: TrainedForest) -> bool:
    arrays = b.shares.arrays
    return (a.forest, a.total, a.history) == (b.forest, b.total, b.history) and all(
        np.array_equal(own, arrays[n]) for n, own in a.shares.arrays.items()
    )


@pytest.mark.parametrize(
    "plan",
    [
        replace(SMALL, max_iter=1),
        replace(SMALL, combine="concatenate", max_iter=2),
        replace(SMALL, combine="em", max_iter=2),
    ],
)
def test_contract(plan: ForestPlan) -> None:
    """Processes, replay, kept work, losses at first, middle and last message."""
    check_protocol(lambda: programs(plan), equal=same)
