"""The engine 'ray' where Ray is not installed."""

from __future__ import annotations

import sys

import pytest

import fedcircuits as fc
from tests.federation.cases import federation


def test_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fc.errors.ExtraMissingError, match=r"pip install 'fedcircuits\[ray\]'"):
        fc.FedPC().fit(federation("rows"), engine="ray")
