"""Public data sets, by name, as typed tables or arrays.

    >>> from fedcircuits import datasets
    >>> datasets.load("breast_cancer").names[-1]
    'diagnosis'

No data travel with the package; it knows facts about them (manifest.json: digest, source, licence,
splits). A file is looked for in ``folder``, in the folder that the environment variable
FEDCIRCUITS_DATA names, in ``../shared/data`` beside the repository or the working folder, and in
the user's cache. What is absent is fetched into the cache where the public address is the file
itself; else the error says what to get and where to put it. Every file is checked by sha256.

A set may be there as our one file (``adult.parquet``) or as its public originals (``adult.data``
and ``adult.test``): both give the same table. The kinds are inferred from all rows, so the splits
of a set share one schema.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.datasets.originals import (
    Arrays,
    Original,
    download,
    read_originals,
    values_digest,
    verify,
)
from fedcircuits.errors import DatasetError, ExtraMissingError
from fedcircuits.tables.readers import parquet_table
from fedcircuits.tables.table import Table

VARIABLE = "FEDCIRCUITS_DATA"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is known of a data set. ``columns`` are without the target."""

    name: str
    title: str
    form: Literal["table", "arrays", "shipped"]
    rows: int
    columns: int
    splits: Mapping[str, int]
    licence: str
    target: str | None = None
    url: str | None = None
    file: str | None = None
    sha256: str | None = None
    originals: tuple[Original, ...] = ()
    reader: str | None = None
    package: str | None = None

    def __str__(self) -> str:
        splits = ", ".join(f"{name} {rows:,}" for name, rows in self.splits.items())
        lines = [
            f"{self.name}: {self.title}",
            f"  {self.rows:,} rows × {self.columns:,} columns ({splits or 'no splits'})",
            f"  target: {self.target or 'none'}",
            f"  licence: {self.licence}",
            f"  source: {self.url or 'made by us'}",
        ]
        return "\n".join(lines)


@cache
def _manifest() -> dict[str, Dataset]:
    text = (
        resources.files("fedcircuits.datasets")
        .joinpath("manifest.json")
        .read_text(encoding="utf-8")
    )
    sets = {}
    for facts in json.loads(text)["datasets"]:
        originals = tuple(Original(**o) for o in facts.pop("originals", ()))
        sets[facts["name"]] = Dataset(**facts, originals=originals)
    return sets


def names() -> tuple[str, ...]:
    """The names of all data sets."""
    return tuple(_manifest())


def describe(name: str) -> Dataset:
    """The facts of a data set; ``nltcs`` stands for ``debd_nltcs`` and so on."""
    sets = _manifest()
    for known in (name, f"debd_{name}"):
        if known in sets:
            return sets[known]
    near = difflib.get_close_matches(str(name), sets, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sets)}"
    raise DatasetError(f"unknown data set {name!r}: {hint}")


def load(
    name: str, split: str | None = None, *, folder: str | PathLike[str] | None = None
) -> Table:
    """The table of a data set: one of its published splits, or all rows."""
    dataset = describe(name)
    if dataset.form == "arrays":
        raise DatasetError(f"{dataset.name!r} is no table: use datasets.arrays({dataset.name!r})")
    if split is not None and split not in dataset.splits:
        known = ", ".join(map(repr, dataset.splits))
        raise DatasetError(f"{dataset.name!r} has no split {split!r}: expected {known} or None")
    if dataset.form == "shipped":
        return _shipped(dataset)
    content = find(dataset, places(folder))
    if isinstance(content, dict):
        return _binary(content, split)
    parts = content.pop("split") if "split" in content else None
    table = Table.of(content)
    return table if parts is None or split is None else table.rows((parts == split).to_numpy())


def arrays(name: str, *, folder: str | PathLike[str] | None = None) -> Arrays:
    """The arrays of a data set by name: images, series, graphs, binary matrices."""
    dataset = describe(name)
    content = None if dataset.form == "shipped" else find(dataset, places(folder))
    if not isinstance(content, dict):
        raise DatasetError(f"{dataset.name!r} is a table: use datasets.load({dataset.name!r})")
    return content


def places(folder: str | PathLike[str] | None = None) -> list[Path]:
    """The folders that are searched, in order; the last is the user's cache."""
    paths = []
    if folder is not None:
        paths.append(Path(folder))
        if not paths[0].is_dir():
            raise DatasetError(f"folder: expected a folder with data sets, got {str(folder)!r}")
    if variable := os.environ.get(VARIABLE):
        paths.append(Path(variable).expanduser())
    for beside in (Path(__file__).parents[3], Path.cwd()):
        paths.append(beside.parent / "shared" / "data")
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return list(dict.fromkeys([*paths, Path(root) / "fedcircuits"]))


def find(dataset: Dataset, searched: list[Path]) -> Arrays | pd.DataFrame:
    """The checked content of a data set from the first folder that has it, else fetched."""
    for place in searched:
        if dataset.file is not None and (place / dataset.file).is_file():
            return _converted(verify(place / dataset.file, dataset.sha256, dataset.url))
        if dataset.originals and all((place / o.file).is_file() for o in dataset.originals):
            return _original(dataset, place)
    if not dataset.originals or any(o.url is None for o in dataset.originals):
        raise DatasetError(_instructions(dataset, searched))
    for original in dataset.originals:
        if not (searched[-1] / original.file).is_file():
            download(original, searched[-1])
    return _original(dataset, searched[-1])


def _converted(path: Path) -> Arrays | pd.DataFrame:
    if path.suffix == ".parquet":
        return parquet_table(path).to_pandas()
    with np.load(path, allow_pickle=False) as opened:
        return {name: opened[name] for name in opened.files}


def _original(dataset: Dataset, place: Path) -> Arrays | pd.DataFrame:
    files = {o.file: verify(place / o.file, o.sha256, o.url) for o in dataset.originals}
    content = read_originals(dataset.reader or "", files)
    for original in dataset.originals:
        expected = original.values_sha256
        if expected is None or not isinstance(content, pd.DataFrame):
            continue
        if (actual := values_digest(content)) != expected:
            raise DatasetError(
                f"{files[original.file]}: expected numbers with the sha256 {expected}, got "
                f"{actual}; get the file again from {dataset.url}"
            )
    return content


def _instructions(dataset: Dataset, searched: list[Path]) -> str:
    looked = ", ".join(str(place) for place in searched)
    if dataset.originals:
        wanted = " and ".join(o.file for o in dataset.originals)
        advice = f"get {wanted} from {dataset.url} (licence: {dataset.licence})"
    else:
        source = f" of the data at {dataset.url}" if dataset.url else ""
        advice = (
            f"it is a conversion{source} without a public address of its own: get "
            f"{dataset.file} (sha256 {dataset.sha256}) from somebody who has it"
        )
    return (
        f"data set {dataset.name!r} is not here (looked in {looked}); {advice}, put it in a folder "
        f"and set the environment variable {VARIABLE} to that folder, or pass folder="
    )


def _binary(content: Arrays, split: str | None) -> Table:
    values = content[split] if split else np.concatenate(list(content.values()))
    columns = [f"x{i}" for i in range(values.shape[1])]
    return Table.of(values, names=columns, kinds=dict.fromkeys(columns, "boolean"))


def _shipped(dataset: Dataset) -> Table:
    try:
        from sklearn import datasets as shipped
    except ImportError:
        raise ExtraMissingError(
            f"data set {dataset.name!r} comes with {dataset.package}: pip install {dataset.package}"
        ) from None
    if dataset.name == "breast_cancer":
        bunch = shipped.load_breast_cancer()
        words = np.asarray(bunch.target_names).astype(str)
        columns = dict(zip(map(str, bunch.feature_names), bunch.data.T, strict=True))
        return Table.of(columns | {"diagnosis": words[bunch.target]})
    return _digits(shipped.load_digits())


def _digits(bunch: Mapping[str, NDArray[np.generic]]) -> Table:
    pixels = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    columns = dict(zip(pixels, bunch["data"].T, strict=True)) | {"digit": bunch["target"]}
    kinds = dict.fromkeys(pixels, "count") | {"digit": "category"}
    return Table.of(columns, kinds=kinds)  # type: ignore[arg-type]
