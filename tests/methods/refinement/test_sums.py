"""EM by sums of log-likelihoods: those of the network, and nobody sees one party's part."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.refinement import sums
from fedcircuits.methods.refinement.network import HeldRows
from fedcircuits.methods.refinement.roles import JUDGED, EMSettings
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.sharing.group import SHARE
from fedcircuits.testing import check_protocol
from tests.federation.cases import QUICK, federation, gaps, mixed_table
from tests.federation.cases import three_columns as three
from tests.methods.refinement.cases import sum_programs, views
from tests.methods.watched import Watched, dying, flipped

ROWS = fc.Table(mixed_table().schema, gaps())


@functools.cache
def trained(name: str, secret: bool, **how: Any) -> tuple[fc.FedPC, Watched]:
    parties = three() if name == "three" else federation(name)
    usual: dict[str, Any] = {
        "clusters": 3,
        "ensemble": 1,
        "share_clusters": False,
        "random_state": 0,
    }
    engine = Watched()
    model = fc.FedPC(QUICK, **usual | how, summation=Secret() if secret else fc.Hub())
    return model.fit(parties, engine=engine), engine


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("three", {"weights": "em"}),
        ("both", {"refine": 4, "validation": 0.2}),
        ("uneven", {"refine": 4, "validation": 0.2}),
    ],
)
def test_it_is_the_em_of_a_coordinator(name: str, how: dict[str, Any]) -> None:
    plain, secret = (trained(name, s, **how)[0] for s in (False, True))
    np.testing.assert_allclose(secret.history_, plain.history_, atol=1e-9)
    judged = secret.validation_history_
    np.testing.assert_allclose(judged, plain.validation_history_, atol=1e-9)
    assert bool(judged) == bool(how.get("validation") and name != "both")  # 31 rows in common
    np.testing.assert_allclose(secret.score_samples(ROWS), plain.score_samples(ROWS), atol=1e-8)
    for node, arrays in plain.joint_.parameters.values.items():
        found = secret.joint_.parameters[node]["weight"]
        np.testing.assert_allclose(found, arrays["weight"], atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_who_learns_what(share: float) -> None:
    model, _ = trained("three", True, refine=2, validation=share)
    told = [(e.receiver, e.tag.split("/")[1], e.reveals) for e in model.ledger_ if e.phase == "em"]
    to_it = {(what, reveals) for to, what, reveals in told if to == COORDINATOR}
    assert to_it == {
        ("learned", "the weights above the leaves, and the likelihood of the shared rows"),
        ("learned", "the weights of its mixtures of leaves"),
    }
    to_parties = {reveals for to, _, reveals in told if to != COORDINATOR}
    assert to_parties == {
        SHARE,
        f"the sum of {sums.VALUES}",
        *([HeldRows.reveals, JUDGED] if share else ["whether EM has converged"]),
        "which of the reader's rows all parties hold",
        "how often each combination of clusters occurs, and which of them contain the reader's "
        "clusters",
    }


def test_exact_messages_with_rows_held_back() -> None:
    """Every sum is judged, by one for all; weights alone are not learned after it."""
    plain, held = (trained("three", True, refine=2, validation=v)[0] for v in (0.0, 0.2))
    tags = [[e.tag for e in m.ledger_ if e.phase == "em"] for m in (plain, held)]
    told = [t for t in tags[1] if t.split("/")[1] in ("held", "judged")]
    others = ["em/held", "em/judged/0", "em/judged/1", "em/judged/2"]
    assert sorted(told) == sorted(others * 2)  # from the first party to two others
    left = [t for t in tags[0] if t.split("/")[1] not in ("settled", "mixtures")]
    assert sorted(t for t in tags[1] if t not in others) == sorted(left)


def test_own_likelihoods_never_cross() -> None:
    """Log-likelihoods of a party's leaves are in no message of it; to a coordinator they are."""
    for secret, crosses in ((False, True), (True, False)):
        _, engine = trained.__wrapped__("three", secret, refine=2)
        for party in ("north", "south", "west"):
            data = b"".join(m.data for s, m in engine.messages if s == party)
            steps = [
                v for (who, step), v in engine.kept.items()
                if who == party and step.startswith("evaluating shared rows")
            ]  # fmt: skip
            assert len(steps) == 3
            for step in steps:
                lines = list(step.values()) if isinstance(step, dict) else list(np.asarray(step))
                values = np.concatenate(lines)
                assert (values.tobytes() in data) == crosses
                single = [v for v in values.tolist() if abs(v) > 1e-3][:200]
                encoded = FixedPoint(40, 64).encode(np.array(single))
                found = [np.float64(v).tobytes() in data for v in single]
                assert all(found) if crosses else not any(found)
                assert not any(e.tobytes() in data for e in encoded)


# ---------------------------------------------------------------------- the flows alone


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("age", [1e6, 1e200])
def test_rows_that_are_impossible(rounds: int, age: float) -> None:
    """Or next to it, under all combinations: they count as at a coordinator."""
    found = []
    for way in ("sums", "network"):
        outcome = memory.run(sum_programs(EMSettings(rounds), age, way))
        assert not outcome.lost, list(outcome.lost.values())
        joint, history = (getattr(outcome.results[COORDINATOR], k) for k in ("joint", "history"))
        assert len(history) > 1 and history[0] < -1e6
        found.append(joint.parameters[joint.circuit.root.name]["weight"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize(
    ("tag", "who"),
    [("em/held", "north"), ("em/judged/1", "north"), ("em/values/0/shares", "south"),
     ("em/values/1/total", "south"), ("em/learned", "west"), ("em/graph", COORDINATOR),
     ("em/rows", COORDINATOR)],
)  # fmt: skip
def test_a_party_killed_in_every_round(tag: str, who: str) -> None:
    made = sum_programs(EMSettings(1, 0.2))
    told = {"program": made[who], "tag": tag, "after": 0}
    outcome = memory.run({**made, who: Program(dying, told)})
    assert COORDINATOR not in outcome.results and who in outcome.lost
    assert who in str(outcome.lost[COORDINATOR])


def test_a_flipped_share_is_caught() -> None:
    engine = Watched({("south", "em/values/0/total"): flipped(5, 1)})
    with pytest.raises(PartyLostError, match="inconsistent shares"):
        fc.FedPC(QUICK, clusters=2, ensemble=1, weights="em", summation=Secret()).fit(
            three(), engine=engine
        )


def test_leaves_of_several_parties_in_one_sum() -> None:
    """Their product is no sum of logarithms: refused before anything of rows crosses."""
    joint = views(0)[COORDINATOR]
    flow = sums.coordinator(joint, {p: np.arange(3) for p in ("north", "south", "west")})
    with pytest.raises(
        fc.errors.FederationError, match="sums over parties need shared_leaves='divided'"
    ):
        next(flow)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_laws_of_protocols(share: float) -> None:
    made = sum_programs(EMSettings(1, share))
    check_protocol(made, without=["processes"])  # test_secret_counts.py
