"""Parties at sites of their own: every law of engines, over good links and bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcircuits.testing import check_engine
from tests.engines.sites.links import Relay
from tests.engines.sites.local import LocalSites


@pytest.mark.parametrize("bad", [0.0, 0.1])
def test_every_law_of_engines_holds(tmp_path: Path, bad: float) -> None:
    sites = LocalSites(dict.fromkeys("xyz"), tmp_path, relay=Relay(bad))
    check_engine(sites.remote)
