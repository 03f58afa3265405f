"""The names of the package: imported when they are asked for, and the same as ever then."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedcircuits as fc

SOURCE = Path(fc.__file__)


def typed() -> dict[str, str]:
    """By name: the module that type checkers are told it comes from."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedcircuits"):
            names = [a.name for a in node.names if not str(a.asname).startswith("_")]
            found |= {name: str(node.module) for name in names}
    return found


def fresh(code: str) -> str:
    """What the code prints in a process that has imported nothing yet."""
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(SOURCE.parents[1])}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    return found.stdout.strip()


def test_every_name_has_one_home() -> None:
    assert typed().keys() == set(fc.__all__) and fc.__all__ == sorted(fc.__all__)
    homes = {name: home.removesuffix(f".{name}") for name, home in fc._MODULES.items()}
    assert typed() == fc._HOMES | homes


@pytest.mark.parametrize("name", fc.__all__)
def test_names_are_what_their_modules_have(name: str) -> None:
    home = import_module(typed()[name])
    assert getattr(fc, name) is getattr(home, name)
    assert name in dir(fc) and name in vars(fc), "a name is looked for once"


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'fedcircuits' has no attribute 'FedPc'"):
        fc.FedPc  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from fedcircuits import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_all_names_at_once() -> None:
    space: dict[str, object] = {}
    exec("from fedcircuits import *", space)
    assert set(fc.__all__) <= space.keys() and space["FedPC"] is fc.FedPC


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    """And a circuit made by its own module knows our leaf families."""
    code = """
import sys, fedcircuits as fc
print("FedPC" in dir(fc), "torch" in sys.modules)
from fedcircuits.circuits.graph.family import family
print(type(family("poisson")).__name__)
"""
    assert fresh(code).split() == ["True", "False", "Poisson"]


def test_a_family_may_take_the_name_of_one_of_ours() -> None:
    code = """
from fedcircuits.circuits.graph.family import family, register
class Mine:
    name = "gaussian"
register(Mine())
print(type(family("poisson")).__name__, type(family("gaussian")).__name__)
"""
    assert fresh(code) == "Poisson Mine"
