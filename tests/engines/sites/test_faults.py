"""Sites that die and come back, refuse, or never join: the same result, or an error with a name."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.described import DescribedTable
from fedcircuits.federation.federation import Party
from fedcircuits.tables.schema import Schema
from tests.engines.sites.links import Relay
from tests.engines.sites.local import LocalSites

RNG = np.random.default_rng(0)
LATENT = RNG.normal(size=(120, 1))
TABLE = fc.Table.of(LATENT + RNG.normal(size=(120, 4)))
OPEN = Policy()


def local() -> fc.Federation:
    return fc.split(TABLE, 3, by="columns")


def learner() -> fc.FedPC:
    return fc.FedPC(random_state=0)


def connected(sites: LocalSites) -> fc.Federation:
    parties = {}
    for name, facts in sites.remote.describe_all().items():
        table = DescribedTable(Schema(facts["variables"]), facts["rows"], facts["ids"])
        parties[name] = Party(name, table, facts["allow_collect"], facts["least_count"])
    return fc.Federation.of_sites(parties, sites.remote)


class Striking(Relay):
    """Kills a site, and starts it again, when so many packets of it have passed."""

    def __init__(self, site: str, after: list[int]) -> None:
        super().__init__()
        self.site, self.after, self.passed = site, list(after), 0
        self.sites: LocalSites

    def put(self, sender: str, receiver: str, packet: bytes) -> None:
        super().put(sender, receiver, packet)
        self.passed += sender == self.site
        if self.after and self.passed >= self.after[0]:
            self.after.pop(0)
            Thread(target=self._strike, daemon=True).start()

    def _strike(self) -> None:
        self.sites.kill(self.site)
        self.sites.start(self.site)
        self.sites.couriers[self.site].send("coordinator", ["hello"])


@pytest.mark.parametrize("after", [[4], [9], [12], [15], [18], [6, 20, 40]])
def test_a_site_that_is_killed_and_started_again_goes_on(tmp_path: Path, after: list[int]) -> None:
    expected = learner().fit(local()).score_samples(TABLE)
    relay = Striking("party 2", after)
    relay.sites = sites = LocalSites(
        {p.name: p for p in local()}, tmp_path, policy=OPEN, relay=relay, patience=20.0
    )
    model = learner().fit(connected(sites))
    assert np.array_equal(model.score_samples(TABLE), expected)
    assert not relay.after, "it was never killed"


def test_a_site_that_never_joins_is_named(tmp_path: Path) -> None:
    sites = LocalSites({p.name: p for p in local()}, tmp_path, policy=OPEN)
    federation = connected(sites)
    sites.kill("party 3")
    sites.remote.patience = 2.0
    with pytest.raises(PartyLostError, match="party 3 is silent") as error:
        learner().fit(federation)
    assert error.value.party == "party 3"


@pytest.mark.parametrize(
    ("policy", "settings", "line"),
    [
        (Policy(roles=("fedcircuits.methods.trees.*",)), {}, "roles"),
        (Policy(least_rows=500), {}, "least_rows = 500"),
        (Policy(withheld=("rows/tokens",)), {}, "withheld"),
        (Policy(private_rows=True), {}, "private_rows = true"),
        (Policy(), {"share_clusters": True}, "share_clusters = false"),
        (Policy(), {"target": "x0", "share_target": True}, "share_target = false"),
    ],
)
def test_what_the_policy_of_a_site_forbids_is_refused_there(
    tmp_path: Path, policy: Policy, settings: dict[str, Any], line: str
) -> None:
    table = TABLE if "target" not in settings else fc.Table.of(TABLE.to_pandas().round() > 0)
    parties = {p.name: p for p in fc.split(table, 3, by="columns")}
    sites = LocalSites(parties, tmp_path, policy=policy)
    with pytest.raises(PartyLostError, match=line):
        fc.FedPC(random_state=0, **settings).fit(connected(sites))
    audit = "".join(path.read_text() for path in tmp_path.glob("*/audit.jsonl"))
    assert line in audit


def test_two_trainings_at_once_are_those_apart(tmp_path: Path) -> None:
    sites = LocalSites({p.name: p for p in local()}, tmp_path, policy=OPEN)
    federation, models = connected(sites), [fc.FedPC(random_state=seed) for seed in (0, 1)]
    threads = [Thread(target=model.fit, args=(federation,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, model in enumerate(models):
        alone = fc.FedPC(random_state=seed).fit(local())
        assert np.array_equal(model.score_samples(TABLE), alone.score_samples(TABLE))
