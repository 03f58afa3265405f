"""Every run of every method: the ledger says what crossed, who sends a malformed message is blamed,
and what programs, plans, keys and states are printed as holds no key, no table and no share.

The runs are made once for all of these, so the tests stand in one file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.estimators.federated import TrainingState
from fedcircuits.federation.flow import Compute, Program, Send
from fedcircuits.methods.meeting.tokens import HiddenRows, TokenKey
from fedcircuits.privacy.identity import Identity
from fedcircuits.tables.table import Table
from fedcircuits.testing import check_ledger, check_messages
from tests.methods.inventory import INVENTORY, declared
from tests.methods.runs import CASES, programs_of

KEY = bytes(range(100, 132))
SPARE = {  # whose readers cannot know how many others tell, or how many rows a party has
    "FedPC, clusters": ["clusters/others"],
    "alignment": ["rows/tokens"],
}
SLOW = ("FedPC, by sums", "FedPC, cells of five", "FedPC, cells of two", "FedPC, cells by class")
ANSWERS = ("FedPC, questions", "FedPC, answers of the root")  # methods/fedpc has tests of these


# ---------------------------------------------------------------------- what crosses


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_ledger_says_what_crossed(name: str) -> None:
    """What each role received, from the bytes, is what the ledger says it learned."""
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


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("FedPC") and n not in ANSWERS])
def test_who_sends_a_malformed_message_is_blamed(name: str) -> None:
    """In training a federated circuit; the other methods have tests of their own."""
    [programs] = programs_of(name)
    most = 80 if name in SLOW else 220  # all kinds
    assert check_messages(lambda: dict(programs), most=most) > 60


# ---------------------------------------------------------------------- what is printed


def parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Everything that can be reached in a value."""
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    yield value
    if isinstance(value, Program):
        below: Any = [value.arguments]
    elif isinstance(value, Mapping):
        below = [*value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        below = [*value]
    elif dataclasses.is_dataclass(value):
        below = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        below = [getattr(value, name) for name in value.__struct_fields__]
    else:
        below = [*vars(value).values()] if hasattr(value, "__dict__") else []
    for part in below:
        yield from parts(part, seen)


def secret_texts(found: list[Any]) -> set[str]:
    """Keys as bytes and as hexadecimal digits, and long numbers of tables."""
    texts: set[str] = set()
    for value in found:
        if isinstance(value, bytes) and len(value) >= 16:
            texts |= {repr(value)[2:-1], value.hex()}
        if isinstance(value, Table):
            texts |= {s for s in map(str, value.values[~np.isnan(value.values)]) if len(s) > 8}
    return texts


def own(value: Any) -> bool:
    """Whether this library says how it is printed, and it is no table that its owner looks at."""
    ours = type(value).__module__.startswith("fedcircuits.")
    return ours and not isinstance(value, Table | np.ndarray | torch.Tensor)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_programs_print_no_secrets(name: str) -> None:
    sought: set[str] = set()
    for programs in programs_of(name):
        found = [*parts(dict(programs), set())]
        secrets = secret_texts(found)
        sought |= secrets
        for value in (v for v in found if own(v)):
            text = repr(value)
            shown = [s for s in secrets if s in text]
            assert not shown, f"{type(value).__name__} prints {shown[0]}: {text[:300]}"
    assert sought or name == "Chow-Liu, hub"  # which has no key, and a table of booleans


def test_the_search_finds_keys() -> None:
    program: Program[Any] = Program(len, {"me": "north", "key": KEY, "plan": {"deep": [KEY]}})
    assert repr(KEY)[2:-1] in secret_texts([*parts(program, set())])
    assert repr(program) == "<Program len(me, key, plan)>"


@pytest.mark.parametrize(
    "value",
    [
        TrainingState(seed=123456789, drawn={("north", "secret"): KEY}),
        HiddenRows(KEY, np.array([1], np.uint64)),
        TokenKey(KEY),
        Identity(KEY),
        fc.Secret(key=KEY),
        Send("south", "key/tokens", KEY),
        Compute("learning", print, key=KEY.hex()),
        Program(print, {"secret": KEY}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_keys_are_not_printed(value: object) -> None:
    for text in (repr(value), str(value)):
        assert repr(KEY)[2:-1] not in text and KEY.hex() not in text and "123456789" not in text
