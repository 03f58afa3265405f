"""What ``fedcircuits train`` and ``fedcircuits split`` do, apart from their options.

Every file is a party, named after the file: ``data/north.csv`` is north, ``site=data/north.csv`` is
site. All files belong to whoever runs the command, so every party allows its part of the circuit to
be collected into one file.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fedcircuits.app import crossing, report, screen
from fedcircuits.circuits.graph import files
from fedcircuits.errors import FederationError, FileError, PartyLostError, TableError
from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.fedpc import FedPC
from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.trees import ChowLiuTree, MixtureOfChowLiuTrees
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.split import Skew, dirichlet
from fedcircuits.methods.fedpc.leaves import LeafLearner
from fedcircuits.tables.readers import SUFFIXES, existing
from fedcircuits.tables.table import Table

LEARNERS = {
    "learn-spn": LearnSPN,
    "mixture": MixtureOfProducts,
    "chow-liu": ChowLiuTree,
    "chow-liu-mixture": MixtureOfChowLiuTrees,
    "hidden-chow-liu": HiddenChowLiuTree,
    "einsum": EinsumNetwork,
}


# ---------------------------------------------------------------------- train


def learner_of(name: str) -> LeafLearner:
    return cast(LeafLearner, LEARNERS[name]())


def parties_of(arguments: Sequence[str]) -> dict[str, Path]:
    """Paths of files by the names of their parties."""
    paths: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = _stem(argument), argument
        if name in paths:
            raise FederationError(
                f"two files are called {name!r}: name their parties, such as "
                f"a={paths[name]} b={path}"
            )
        paths[name] = existing(path)
    return paths


def _stem(path: str) -> str:
    name = Path(path).name
    endings = sorted(SUFFIXES, key=len, reverse=True)
    return next((name[: -len(e)] for e in endings if name.lower().endswith(e)), name)


def check_output(path: Path) -> None:
    """FileError, before anything is learned, if the model cannot be written there."""
    if path.suffix != ".fc":
        raise FileError(f"{path}: expected the name of a model, ending in .fc")
    if path.is_dir():
        raise FileError(f"{path}: expected the name of a model, got a folder")
    if not path.parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}; make it first")


def describe(federation: Federation) -> None:
    screen.say(
        f"{federation.kind} split: {len(federation)} parties, "
        f"{len(federation.schema)} variables; who holds what:"
    )
    screen.show(crossing.holdings(federation))
    screen.say()


def fit(model: FedPC, federation: Federation, engine: str) -> None:
    """Fit, with progress; warnings become notes. The error about a lost party comes without the
    advice to resume, which a command cannot do."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Bar(f"learning at {len(federation)} parties"):
            try:
                model.fit(federation, engine=engine)
            except PartyLostError as error:
                raise error.__cause__ or error from None
    for text in dict.fromkeys(str(w.message) for w in caught if w.category is UserWarning):
        screen.warn(text)


def show_ledger(model: FedPC) -> None:
    screen.say("What crossed between the parties:")
    screen.show(crossing.by_phase(model.ledger_))
    screen.say("\nWhat was revealed to whom:")
    screen.show(crossing.revealed(model.ledger_))


def save(path: Path, model: FedPC, federation: Federation, settings: Mapping[str, object]) -> None:
    """Write the collected circuit, and how it was learned."""
    collected = model.collect()
    about = {
        "estimator": type(model).__name__,
        "target": model.target,
        "learned": {
            **settings,
            "split": model.kind_,
            "parties": {p.name: [len(p.table), len(p.table.names)] for p in federation},
            "messages": len(model.ledger_),
            "bytes": model.ledger_.bytes,
            "notes": list(model.notes_),
        },
    }
    files.write(path, collected.circuit_, collected.parameters_, about)


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
    """The names of parties, from their number or from names separated by commas."""
    if text.isdigit():
        return [f"party-{i + 1}" for i in range(int(text))]
    names = [name.strip() for name in text.split(",")]
    if any(not n or Path(n).name != n or "=" in n for n in names):
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
                f"the table has a column {self.row_id!r}, which is to be that of row ids: "
                f"if it holds them, give --row-id {self.row_id}"
            )
        for name in names:
            if self.path(name).exists():
                raise FileError(f"{self.path(name)} exists already: remove it, or name another -o")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def write(self, federation: Federation) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for party in federation:
            frame = party.table.to_pandas()
            frame.insert(0, self.row_id, party.table.row_ids)
            report.write(self.path(party.name), frame.to_csv(index=False).encode())


def command(parts: CsvFolder, names: Sequence[str], target: str | None) -> str:
    """What to type next."""
    words = ["fedcircuits", "train", *(str(parts.path(n)) for n in names)]
    words += ["--row-id", parts.row_id]
    words += ["--target", target] if target else []
    return "  " + shlex.join([*words, "-o", "model.fc"])
