"""Trees with differential privacy: how far one row moves sums, what crosses, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program, replay
from fedcircuits.methods.trees import edges, noisy
from fedcircuits.methods.trees.decision_tree import Integers
from fedcircuits.methods.trees.gradient_trees import Cells, GrowingTree, gradients, outputs_of
from fedcircuits.methods.trees.growing import TreesPlan
from fedcircuits.testing import check_messages, check_protocol
from tests.drawn import drawn
from tests.estimators.tree_cases import CANCER
from tests.methods.trees.cases import narrow, programs, recorded
from tests.methods.watched import Watched, read

RANGES = {"a": (-4.0, 4.0), "b": (-4.0, 4.0)}


def table(rows: int) -> fc.Table:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 2))
    y = np.where(x[:, 0] + x[:, 1] + 0.3 * rng.normal(size=rows) > 0, "high", "low")
    return fc.Table.of({"a": x[:, 0], "b": x[:, 1], "risk": y})


def private(epsilon: float = 2.0, **options: Any) -> fc.FedTrees:
    privacy = fc.DifferentialPrivacy(epsilon, 1e-5, options.pop("ranges", {}))
    settings = {"grow": "together", "random_state": 0, "privacy": privacy, **options}
    return fc.FedTrees(target="risk", **settings)


# ---------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_one_row_moves_sums_of_leaves_by_no_more_than_the_sensitivity(classes: int) -> None:
    """Neighbours of small tables, at any scores; the bound on g is reached."""
    rng, outputs = np.random.default_rng(0), outputs_of(classes)
    cells = Cells.of(fc.Schema.real(["a"]), [np.array([0.0])])
    base, farthest = np.full(classes, 1 / classes), 0.0
    for scale in (0.1, 1.0, 30.0):
        for _ in range(60):
            y: Integers = rng.integers(classes, size=4)
            scores = scale * rng.normal(size=(4, outputs))
            codes = cells.codes(rng.normal(size=(4, 1)))
            terms = gradients(scores, base, y, np.ones(4))
            sums = [
                GrowingTree.planted(cells, codes[some]).sums(terms[some])
                for some in (slice(0, 4), slice(1, 4))
            ]
            farthest = max(farthest, float(np.linalg.norm(sums[0] - sums[1])))
    assert 0.95 * (1.0 if outputs == 1 else 2.0) ** 0.5 < farthest <= noisy.sensitivity(outputs)


def test_one_row_moves_counts_of_blocks_by_the_root_of_the_columns() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    blocks = edges.Blocks(np.arange(3), np.zeros(3, np.int64), edges.BITS)

    def counts(rows: Array) -> Array:
        return blocks.counts([np.sort(edges.places_of(c)) for c in rows.T])

    for row in range(6):
        moved = counts(x) - counts(np.delete(x, row, axis=0))
        assert np.linalg.norm(moved) == pytest.approx(3**0.5)


@pytest.mark.parametrize("ranges", [{}, RANGES])
def test_shares_add_up_to_the_budget(ranges: Any) -> None:
    shares = noisy.shares_of(7, fc.Schema.real(["a", "b"]), ranges)
    assert sum(shares) == pytest.approx(1.0) and len(shares) == (8 if ranges else 9)


# ---------------------------------------------------------------------- what crosses


def flows(rows: fc.Table, summation: Any = None, parties: int = 3, **options: Any) -> Any:
    split = fc.split(rows, parties, target="risk")
    engine = Watched()
    summation = summation or fc.Hub()
    model = private(summation=summation, trees=2, **options).fit(split, engine=engine)
    return model, split, engine


def test_a_hub_sees_sums_with_the_noise_that_is_needed() -> None:
    """What a party sends, less what it would send without noise: the deviation of the budget."""
    model, split, engine = flows(table(300), ranges=RANGES)
    sent = {m.tag: read(m.data) for who, m in engine.messages if who == "party 1"}
    own = split["party 1"].table
    tally = sent["count/target"]["tally"] - np.bincount(own.values[:, 2].astype(int), minlength=2)
    assert (tally % 1 != 0).all(), "noise of a fine grid"
    even = [np.linspace(-4, 4, noisy.EVEN + 1)[1:-1]] * 2
    cells = Cells.of(own.schema.select(["a", "b"]), even)
    codes = cells.codes(own.values[:, :2])
    tree = noisy.random_tree(cells, codes, 1, np.random.default_rng(0))
    base, y = model.views_["party 1"].overall, own.values[:, 2].astype(np.int64)
    exact = tree.sums(gradients(np.zeros((len(y), 1)), base, y, np.ones(len(y))))
    added = sent["boost/leaves/0"]["values"] - exact
    plans = {n: p.arguments["plan"].noise for n, p in engine.programs[0].items()}
    share = (1 - noisy.CLASSES) / 2
    needed = noisy.sensitivity(1) * plans["party 1"].multiplier / share**0.5
    assert added.shape == (31, 2) and 0.5 * needed < added.std() < 1.6 * needed
    assert len({noise.key for noise in plans.values()}) == 4 and plans[COORDINATOR].key is None


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Secret(), fc.Tree("path")])
def test_all_that_crosses_of_rows_is_noisy_and_the_budget_stands_in_the_ledger(
    summation: Any,
) -> None:
    model, _, _ = flows(table(300), summation)
    spent = model.ledger_.privacy
    assert spent is not None and 1.9 < spent.epsilon == model.epsilon_ <= 2.0
    told = model.ledger_.revealed()
    counted = told[told["phase"].isin(["count", "boost"]) & (told["to"] != "party 2")]
    shown = [w for w in counted["what"] if "overall" not in w and "share" not in w]
    assert shown and all("nois" in w for w in shown)


def test_members_have_the_same_trees_and_a_replay_sends_the_same_bytes() -> None:
    split = fc.split(table(90), 2, target="risk")
    noise = fc.DifferentialPrivacy(5.0).noise(fc.Hub(), split.names)
    plan = TreesPlan("risk", trees=2, grow="together", noise=noise, ranges=RANGES)
    roles = keyed(programs(split, plan))
    check_protocol(roles)
    for name, record in recorded(roles).items():
        assert record.sent and replay(roles[name], record.inbox) == record.sent


def keyed(roles: dict[str, Program[Any]]) -> dict[str, Program[Any]]:
    """Parties get keys of their own, as fit gives them; the coordinator gets none."""
    for name, role in roles.items():
        plan = role.arguments["plan"]
        assert isinstance(plan, TreesPlan) and plan.noise is not None
        if name != COORDINATOR:
            role.arguments["plan"] = replace(plan, noise=drawn(plan.noise.for_party()))
    return roles


def test_malformed_messages_blame_their_sender() -> None:
    split = fc.split(narrow(40), 2, target="risk")
    noise = fc.DifferentialPrivacy(5.0).noise(fc.Hub(), split.names)
    plan = TreesPlan("risk", trees=1, grow="together", noise=noise)
    assert check_messages(lambda: keyed(programs(split, plan))) > 300


def test_noise_is_for_one_group_of_all() -> None:
    """A coordinator cannot have parties add less noise than a smaller group needs."""
    split = fc.split(table(60), 3, target="risk")
    noise = fc.DifferentialPrivacy(5.0).noise(fc.Hub(), split.names)
    roles = keyed(programs(split, TreesPlan("risk", trees=1, grow="together", noise=noise)))
    engine = Watched({(COORDINATOR, "agree/plan"): _apart})
    with pytest.raises(Exception, match="expected one, of all"):
        for error in engine(roles).lost.values():
            raise error


def _apart(fields: Any) -> Any:
    return fields | {"groups": {p: i for i, p in enumerate(fields["groups"])}}


# ---------------------------------------------------------------------- answers


def test_little_noise_costs_little() -> None:
    train, test = table(3000), table(4000).rows(slice(3000, None))
    truth = test.values[:, 2]
    for options in ({}, {"ranges": RANGES}):
        model = private(8.0, **options).fit(fc.split(train, 3, target="risk"))
        assert roc_auc_score(truth, model.predict_proba(test)[:, 1]) > 0.93


def test_one_party_may_hide_its_rows_from_whoever_gets_the_model() -> None:
    alone = fc.Federation({"clinic": table(400)}, allow_collect=True)
    model = private(4.0, ranges=RANGES, trees=3).fit(alone)
    assert model.epsilon_ <= 4.0 and set(model.collect().classes()) == {"high", "low"}


def test_trees_that_drowned_say_so() -> None:
    with pytest.warns(UserWarning, match="noise drowned the counts .* give public ranges"):
        private(0.1, trees=2).fit(fc.split(table(60), 3, target="risk"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grow": "auto"}, "privacy needs grow='together'"),
        ({"threshold": "macro-f1"}, "threshold='macro-f1' counts rows without noise"),
        ({"on_lost": "continue"}, "on_lost='continue' would release sums of the same rows"),
        ({"target": "a", "task": "number"}, "privacy needs declared classes, but 'a' is a number"),
        ({"ranges": {"height": (0, 1)}}, "ranges of columns that no party has"),
    ],
)
def test_where_no_guarantee_holds_privacy_is_refused(options: Any, words: str) -> None:
    with pytest.raises(FederationError, match=words):
        private(**{k: v for k, v in options.items() if k != "target"}).set_params(
            **{k: v for k, v in options.items() if k == "target"}
        ).fit(fc.split(table(60), 3, target="risk"))


def test_different_columns_are_refused() -> None:
    split = fc.split(CANCER, 2, by="columns", target="diagnosis")
    with pytest.raises(FederationError, match="privacy needs parties with the same columns"):
        private(share_target=True).set_params(target="diagnosis").fit(split)


@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.0, np.inf), (0.0,)])
def test_ranges_rise(ends: Any) -> None:
    with pytest.raises(FederationError, match="two finite numbers that rise"):
        fc.DifferentialPrivacy(1.0, 1e-6, {"a": ends})
