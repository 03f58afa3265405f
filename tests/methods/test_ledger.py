"""What each role of each method received, from the bytes, is what the ledger says it learned."""

from __future__ import annotations

import pytest

from fedcircuits.testing import check_ledger
from tests.methods.inventory import INVENTORY, declared
from tests.methods.runs import CASES, programs_of

SPARE = {"FedPC, clusters": ["clusters/others"]}  # its reader cannot know how many others tell


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_ledger_says_what_crossed(name: str) -> None:
    for programs in programs_of(name):
        assert check_ledger(programs, spare=SPARE.get(name, ())) or len(programs) == 1


def test_fields_that_may_cross_have_been_reviewed() -> None:
    """A message that is new, or has a new field, is looked at before it may cross."""
    known, found = INVENTORY.read_text(encoding="utf-8").splitlines(), declared()
    new, gone = sorted({*found} - {*known}), sorted({*known} - {*found})
    assert not new + gone, (
        f"new: {new}, gone: {gone}; once you have reviewed what they reveal: "
        "python -m tests.methods.inventory"
    )
