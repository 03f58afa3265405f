"""What a site's owner forbids is refused at the site, with the line of its policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import PartyLostError
from tests.engines.sites.local import LocalSites

RNG = np.random.default_rng(0)
TABLE = fc.Table.of(RNG.normal(size=(120, 1)) + RNG.normal(size=(120, 4)))


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
        fc.FedPC(random_state=0, **settings).fit(sites.federation())
    audit = "".join(path.read_text() for path in tmp_path.glob("*/audit.jsonl"))
    assert line in audit
