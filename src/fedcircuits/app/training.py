"""The implementation of ``fedcircuits train`` and ``fedcircuits split``.

Every file is a party, named after the file: ``data/north.csv`` is north, ``site=data/north.csv``
is site. All files belong to whoever runs the command, so every party allows its part of the
circuit to be collected into one file.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedcircuits.app import columns, crossing, events, methods, report, screen
from fedcircuits.app.columns import ColumnOptions
from fedcircuits.app.crossing import counted
from fedcircuits.app.methods import MethodOptions
from fedcircuits.errors import FederationError, FileError, PartyLostError, TableError
from fedcircuits.estimators import record
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.estimators.progress import Bar
from fedcircuits.federation.federation import LEAST_COUNT, Federation
from fedcircuits.federation.sent import totals
from fedcircuits.federation.split import Skew, dirichlet
from fedcircuits.tables.numerals import written_units
from fedcircuits.tables.packed import existing
from fedcircuits.tables.readers import SUFFIXES
from fedcircuits.tables.table import Table

# ---------------------------------------------------------------------- train


def is_consortium(places: Sequence[str]) -> bool:
    """Whether sites are named, by a kit or a consortium.toml, instead of files."""
    return len(places) == 1 and (Path(places[0]).suffix == ".toml" or Path(places[0]).is_dir())


def parties_of(arguments: Sequence[str]) -> dict[str, Path]:
    """Paths of files by party."""
    paths: dict[str, Path] = {}
    problems: list[TableError] = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = _stem(argument), argument
        if name in paths:
            raise FederationError(
                f"two files are called {name!r}: name their parties, such as "
                f"a={paths[name]} b={path}"
            )
        paths[name] = Path(path)
        try:
            existing(path)
        except TableError as error:
            problems.append(error)
    if problems:
        raise TableError("; ".join(map(str, problems)))
    return paths


def row_id_of(words: Sequence[str], parties: Collection[str]) -> dict[str, str]:
    """The columns of row ids by party: COLUMN is that of all parties but those of PARTY=COLUMN."""
    every = [word for word in words if "=" not in word]
    if len(every) > 1:
        raise FederationError(
            f"--row-id names the columns {' and '.join(map(repr, every))}: if parties call it "
            "differently, give --row-id PARTY=COLUMN for each"
        )
    by_party = (word.partition("=") for word in words if "=" in word)
    named = {party: column for party, _, column in by_party}
    return dict.fromkeys(parties, every[0]) | named if every else named


def _stem(path: str) -> str:
    name = Path(path).name
    endings = sorted(SUFFIXES, key=len, reverse=True)
    return next((name[: -len(e)] for e in endings if name.lower().endswith(e)), name)


def describe(federation: Federation) -> None:
    screen.say(
        f"{federation.kind} split: {counted(len(federation), 'party', 'parties')}, "
        f"{counted(len(federation.schema), 'variable')}; who holds what:"
    )
    screen.show(crossing.holdings(federation))
    screen.say()


def fit(
    model: FederatedEstimator[object],
    federation: Federation,
    watch: Path | None = None,
    **settings: Any,
) -> None:
    """Fit with progress, and with events written to the file ``watch``; warnings become notes.
    The error about a lost party comes without the advice to resume, which differs for commands."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        where = counted(len(federation), "party", "parties")
        with Bar(f"learning at {where}"), events.written(watch) as callback:
            try:
                model.fit(federation, callback=callback, **settings)
            except PartyLostError as error:
                raise error.__cause__ or error from None
    for text in dict.fromkeys(str(w.message) for w in caught if w.category is UserWarning):
        screen.warn(text)


def show_ledger(model: FederatedEstimator[object]) -> None:
    screen.say("Messages between the parties:")
    screen.show(crossing.by_phase(model.ledger_))
    screen.say("\nWhat was revealed to whom:")
    screen.show(crossing.revealed(model.ledger_))


def train(
    files: Sequence[str],
    output: Path,
    words: MethodOptions,
    row_id: Sequence[str],
    least_count: int,
    engine: str,
    said: ColumnOptions,
    watch: Path | None = None,
) -> dict[str, object]:
    """Learn from files, each a party; a summary for JSON."""
    methods.check_output(output, words.name)
    model, parties = words.estimator(), parties_of(files)
    screen.tell("reading")
    declared = said.declared()
    with columns.shown_in_table():
        federation = Federation(
            parties,
            row_id_of(row_id, parties) or None,
            allow_collect=True,
            least_count=least_count,
            declared=declared,
        )
    said.check(federation.schema.names, columns.readings_of(federation))
    columns.show({party.name: party.table for party in federation})
    describe(federation)
    fit(model, federation, watch, engine=engine)
    typed = [
        "fedcircuits",
        "train",
        *files,
        *(w for column in row_id for w in ("--row-id", column)),
    ]
    typed += [*words.words(), *said.words()]
    typed += ["--least-count", str(least_count)] if least_count != LEAST_COUNT else []
    typed += ["--engine", engine] if engine != "memory" else []
    how = shlex.join([*typed, "-o", str(output)])
    methods.save(output, model, federation, words.about(engine), how, declared.reading)
    schema = columns.write(output, federation, declared.reading)
    show_ledger(model)  # the reader of a pipe may have left: | head
    screen.say(f"\nwrote {output}, and {schema}, which you can edit and pass to --schema")
    return {"model": str(output), "schema": str(schema)} | summary(model, federation, how)


def summary(
    model: FederatedEstimator[object], federation: Federation | None, how: str
) -> dict[str, object]:
    """Parties, messages and what was revealed, for JSON."""
    about = record.of_training(model, federation, how)
    crossed = [
        {"phase": phase, "messages": messages, "bytes": size}
        for phase, (messages, size) in totals(model.ledger_).items()
    ]
    revealed = [
        dict(zip(("phase", "to", "from", "what"), row, strict=True)) for row in about.revealed
    ]
    return {
        "estimator": about.estimator,
        "split": about.split,
        "parties": {n: {"rows": p.rows, "columns": p.columns} for n, p in about.parties.items()},
        "crossed": crossed,
        "revealed": revealed,
        "notes": about.notes,
        "command": how,
    }


# ---------------------------------------------------------------------- split


def skew_of(text: str | None) -> Skew:
    """None, label, cluster, or dirichlet:β."""
    name, _, beta = (text or "").partition(":")
    if name != "dirichlet":
        return cast(Skew, text)  # which split checks
    try:
        return dirichlet(float(beta))
    except ValueError:
        raise FederationError(f"expected a number, as in dirichlet:0.5, got {text!r}") from None


def names_of(text: str) -> list[str]:
    """The names of parties, from their number or from comma-separated names."""
    if text.isdigit():
        return [f"party-{i + 1}" for i in range(int(text))]
    names = [name.strip() for name in text.split(",")]
    if any(not n or n.startswith("-") or Path(n).name != n or "=" in n for n in names):
        raise FederationError(f"parties: expected a number or names of files, got {text!r}")
    return names


@dataclass(frozen=True, slots=True)
class CsvFolder:
    """Tables of a federation as csv files in a folder, with row ids in a column."""

    folder: Path
    row_id: str

    def check(self, table: Table, names: Sequence[str]) -> None:
        """FileError if a file exists already: nothing is overwritten."""
        if self.row_id in table.names:
            raise TableError(
                f"the table has a column {self.row_id!r}, which is the name for row ids: if it "
                f"holds them, give --row-id {self.row_id}"
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise FileError(f"{self.folder}: expected a folder, got a file: give another -o")
        for name in names:
            if self.path(name).exists():
                raise FileError(f"{self.path(name)} already exists: remove it, or give another -o")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def summary(self, federation: Federation) -> dict[str, object]:
        """The files written, for JSON."""
        files = {
            p.name: {"file": str(self.path(p.name)), "rows": len(p.table), "columns": p.table.names}
            for p in federation
        }
        return {"split": federation.kind, "row_id": self.row_id, "parties": files}

    def write(self, federation: Federation) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for party in federation:
            frame = party.table.to_pandas()
            for v in party.table.schema:
                if v.unit and not v.size and not v.dated and written_units([f"1 {v.unit}"]):
                    numbers = map(v.decode, party.table.select([v.name]).values[:, 0])
                    frame[v.name] = [None if n is None else f"{n} {v.unit}" for n in numbers]
            frame.insert(0, self.row_id, party.table.row_ids)
            report.write(self.path(party.name), frame.to_csv(index=False).encode())

    def say(self, names: Sequence[str], target: str | None) -> None:
        """Say what was written, and what to type next."""
        learned = [n for n in names if n != "test"] or names  # test rows are kept for evaluate
        words = ["fedcircuits", "train", *(str(self.path(n)) for n in learned)]
        words += ["--row-id", self.row_id, *(["--target", target] if target else [])]
        screen.say(f"wrote {', '.join(str(self.path(n)) for n in names)}; now try\n")
        screen.say("  " + shlex.join([*words, "-o", "model.fc"]))
