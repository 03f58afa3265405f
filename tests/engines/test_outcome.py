"""Nothing of a row in a word: what parties hear of each other's failures, and names of steps."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome, failure
from fedcircuits.errors import FedcircuitsError, MessageError, PartyLostError, TableError
from fedcircuits.federation import agreement
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Compute, Effect, Flow, Program, Send, through
from fedcircuits.federation.messages import encode_fields, fields_of
from fedcircuits.methods.meeting import hello
from fedcircuits.tables.schema import Schema
from tests.federation.cases import QUICK

Bend = Callable[[dict[str, Any]], None]  # of one variable of a plan


class Listening:
    """The memory engine with a coordinator that bends plans; ``words`` reach other parties."""

    def __init__(self, column: str = "", bend: Bend = dict.copy) -> None:
        self.column, self.bend = column, bend
        self.words: list[str] = []

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        watched = {n: Program(self._watched, {"program": p}) for n, p in programs.items()}
        return memory.run(watched, kept)

    def _watched(self, program: Program[Any]) -> Flow[Any]:
        return (yield from through(program.start(), self._noted))

    def _noted(self, effect: Effect) -> Flow[object]:
        if isinstance(effect, Compute):
            self.words.append(effect.step)
        if isinstance(effect, Send) and effect.tag == "agree/plan":
            effect = replace(effect, data=encode_fields(self._bent(fields_of(effect.data))))
        try:
            return (yield effect)
        except PartyLostError as lost:
            self.words += [str(lost), lost.safe_text, repr(lost)]
            raise

    def _bent(self, fields: dict[str, Any]) -> dict[str, Any]:
        for variable in fields["variables"]:
            if variable["name"] == self.column:
                self.bend(variable)
        return fields


def patients(seed: int) -> fc.Federation:
    """Equal schemas and sizes whatever the seed."""
    rng = np.random.default_rng(seed)
    ids = [f"p{i}" for i in range(40)]
    load = rng.uniform(1e3, 1e6, 40).round(4)
    clinic = {"id": ids, "age": rng.uniform(20, 80, 40).round(6), "smoker": rng.random(40) < 0.5}
    lab = {"id": ids, "load": load, "hiv": rng.permutation(np.arange(40) < 11)}
    kinds = {"load": "real", "age": "real"}
    tables = {
        n: fc.Table.of(d, kinds={k: v for k, v in kinds.items() if k in d}, row_id="id")
        for n, d in (("clinic", clinic), ("lab", lab))
    }
    return fc.Federation(tables)


def count(variable: dict[str, Any]) -> None:
    variable["kind"] = "count"


def one_class(variable: dict[str, Any]) -> None:
    variable.update(kind="category", categories=["False", "maybe"])


def few_numbers(variable: dict[str, Any]) -> None:
    variable.update(kind="category", categories=[1.0, 2.0, 3.0])


BENDS: list[tuple[str, Bend]] = [
    ("load", count), ("load", few_numbers), ("load", one_class), ("hiv", one_class),
    ("hiv", few_numbers), ("age", count), ("age", one_class),
]  # fmt: skip


def words_of(seed: int, column: str = "", bend: Bend = dict.copy) -> list[str]:
    """All that other parties hear in a run whose coordinator bends a column."""
    engine = Listening(column, bend)
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    if not column:
        model.fit(patients(seed), engine=engine)
        return engine.words
    with pytest.raises(PartyLostError) as lost:
        model.fit(patients(seed), engine=engine)
    return [*engine.words, lost.value.__cause__.safe_text]  # type: ignore[union-attr]


def values_in(words: list[str], federation: fc.Federation) -> set[float]:
    text = "\n".join(words)
    numbers = np.concatenate([p.table.values.reshape(-1) for p in federation])
    return {v for v in numbers.tolist() if v not in (0, 1) and (f"{v:g}" in text or str(v) in text)}


@pytest.mark.parametrize(("column", "bend"), BENDS)
def test_a_bent_schema_tells_no_value(column: str, bend: Bend) -> None:
    """What is heard follows from the schemas alone: it is the same whatever the rows are."""
    words = words_of(0, column, bend)
    assert any("'agree/plan' that does not fit" in text for text in words)
    assert not values_in(words, patients(0))
    assert all(words_of(seed, column, bend) == words for seed in (1, 2))


def test_with_whole_texts_every_run_told_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack itself: without the two protections the coordinator reads a column."""
    monkeypatch.setattr(MessageError, "safe_text", property(str))
    monkeypatch.setattr(FedcircuitsError, "safe_text", property(str))

    def trusting(table: fc.Table, agreed: Schema) -> fc.Table:
        return fc.Table.of(table, schema=agreed.select(table.names))

    for module in (agreement, hello):
        monkeypatch.setattr(module, "in_agreed", trusting)
    found = [values_in(words_of(seed, "load", count), patients(seed)) for seed in range(4)]
    assert all(found)


def test_names_of_steps_hold_nothing_of_rows() -> None:
    """They were a CRC-32 of the table, from which 30 booleans could be found."""
    words = words_of(0)
    assert len(words) > 4
    assert {re.sub(r"\d+", "", w) for w in words} == {re.sub(r"\d+", "", w) for w in words_of(1)}
    for party in patients(0):
        for column in (party.table.values, *party.table.values.T):
            assert f"{zlib.crc32(column.tobytes()):08x}" not in "\n".join(words)
    assert not values_in(words, patients(0))


def test_the_owner_hears_everything(caplog: pytest.LogCaptureFixture) -> None:
    """The caller's error and the party's log have the text that others do not hear."""
    with caplog.at_level(logging.INFO, "fedcircuits.party"):
        lost = failure("lab", "reading its rows", TableError("row 7 has 4711"))
    assert str(lost) == "lab failed while reading its rows: row 7 has 4711"
    assert lost.safe_text == "lab failed while reading its rows: TableError"
    assert "4711" in caplog.text


def test_a_bad_message_is_told_by_names() -> None:
    lost = failure("lab", "", MessageError(COORDINATOR, "agree/plan", "variables", "4711 rows"))
    assert "4711" in str(lost) and lost.party == COORDINATOR
    assert lost.safe_text == "coordinator sent 'agree/plan' that does not fit, field 'variables'"
