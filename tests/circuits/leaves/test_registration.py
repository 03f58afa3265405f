import pytest

from fedcircuits.circuits import leaves
from fedcircuits.circuits.graph.family import FAMILIES
from fedcircuits.testing import check_leaf


def test_every_exported_family_is_registered_under_its_name() -> None:
    exported = {getattr(leaves, name).name: getattr(leaves, name) for name in leaves.__all__}
    assert len(exported) == len(leaves.__all__)
    for name, kind in exported.items():
        assert isinstance(FAMILIES[name], kind) and FAMILIES[name] == kind()


@pytest.mark.parametrize("name", sorted(n for n in leaves.__all__))
def test_keeps_the_contract_on_default_parameters(name: str) -> None:
    check_leaf(getattr(leaves, name)())
