"""Every method on Ray: results and messages of the engine in memory, bit for bit."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from fedcircuits.engines.ray import RayEngine
from tests.engines.every_method import METHODS, Compared

if find_spec("ray") is None:
    reason = "the engine 'ray' needs fedcircuits[ray]: make test-engines"
    pytest.skip(reason, allow_module_level=True)


@pytest.mark.parametrize("method", METHODS)
def test_equal_to_memory(method: str) -> None:
    """With workers that several parties share; test_engine.py has one for each."""
    engine = Compared(RayEngine(workers=3, timeout=120.0))
    METHODS[method](engine)
    assert engine.runs
