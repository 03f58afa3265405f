"""How a model was learned, as recorded in its file: parties, command, messages.

``save`` of a federated estimator writes the record, and the command ``train`` adds its own words
and the sizes of the tables. For a model at sites it is derived from its ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fedcircuits.circuits.graph import files
from fedcircuits.errors import FileError
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.sent import phases, revelations
from fedcircuits.tables.declared import DeclaredReading
from fedcircuits.tables.schema import ReadingHabits
from fedcircuits.version import __version__

if TYPE_CHECKING:
    from fedcircuits.estimators.federated import FederatedEstimator

Lines = list[list[str]]


class HoldingRecord(msgspec.Struct, frozen=True):
    """The rows and columns of one party."""

    rows: int
    columns: list[str]


class TrainingRecord(msgspec.Struct, frozen=True):
    """The record of a training, for reports."""

    estimator: str
    split: str
    version: str = ""
    command: str = ""
    parties: dict[str, HoldingRecord] = {}
    crossed: Lines = []  # phase, messages, bytes
    revealed: Lines = []  # phase, to, from, what
    placement: dict[str, str] = {}  # nodes of the federated circuit
    notes: list[str] = []
    privacy: str = ""
    reading: DeclaredReading = DeclaredReading()  # what was said of the files
    habits: dict[str, ReadingHabits] = {}  # of every party's file


def of_training(
    model: FederatedEstimator[object],
    federation: Federation | None = None,
    command: str = "",
    reading: DeclaredReading | None = None,
) -> TrainingRecord:
    """``federation``: parties whose rows can be counted here; ``reading``: how their files were
    read."""
    parties = {} if federation is None else {
        p.name: HoldingRecord(len(p.table), list(p.table.names)) for p in federation
    }  # fmt: skip
    placement, ledger = getattr(model, "placement_", None), model.ledger_
    spent = ledger.privacy
    return TrainingRecord(
        type(model).__name__,
        model.kind_,
        __version__,
        command,
        parties,
        phases(ledger),
        revelations(ledger),
        dict(placement) if isinstance(placement, Mapping) else {},
        list(model.notes_),
        ""
        if spent is None
        else f"ε = {spent.epsilon:.3g}, δ = {spent.delta:.1g}, for tables that "
        f"differ in {spent.neighbours}",
        reading or DeclaredReading(),
        {p.name: p.table.habits for p in federation or () if p.table.habits != ReadingHabits()},
    )


def write(path: Path, record: TrainingRecord) -> None:
    """Write the record into an existing model file."""
    files.note_training(path, msgspec.to_builtins(record))


def read(path: Path) -> TrainingRecord | None:
    """The record in a model file; None if there is none."""
    training = files.training_of(path)
    if not training:
        return None
    try:
        return msgspec.convert(training, TrainingRecord)
    except (msgspec.ValidationError, OverflowError, RecursionError, SystemError) as error:
        raise FileError(f"{path} is damaged: its record of the training: {error}") from None
