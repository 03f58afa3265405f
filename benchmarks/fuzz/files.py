"""Files of models, tables and settings: damaged by chance, and changed under right digests."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from benchmarks.fuzz import settings
from benchmarks.fuzz.judging import Attempt, pick, require
from fedcircuits.circuits.graph import files
from tests.circuits.evaluation.hostile import spoiled
from tests.circuits.strategies import STRUCTURES, model_of, random_rows, schema_of
from tests.estimators.damage import JUNK, broken, changed, part, places
from tests.methods.fusion.sensors import fitted, owners

SORTS = ("boolean", "category", "count", "real", "pixel")
Ask = Callable[[Path, np.random.Generator], None]


def prepare(folder: Path) -> Attempt:
    models = [*_circuits(folder), _trees(folder), _fusion(folder)]
    tables = _tables(folder)
    try_settings = settings.prepare(folder)

    def attempt(rng: np.random.Generator, number: int) -> None:
        if number % 7 == 1:
            try_settings(rng)
            return
        if number % 3 == 0:
            name, data = pick(rng, tables)
            path = folder / f"table{name}"
            path.write_bytes(_table_bytes(rng, name, data))
            table = fc.Table.read(path)
            require(not np.isinf(table.values).any(), "a table with infinite values")
            return
        data, ask = models[0] if rng.random() < 0.1 else pick(rng, models)
        path = folder / "model.fc"
        path.write_bytes(_spoiled(rng, data))
        ask(path, rng)

    return attempt


# ---------------------------------------------------------------------- models


def _circuits(folder: Path) -> list[tuple[bytes, Ask]]:
    found = []
    for seed, structure in enumerate([*STRUCTURES, "chow_liu", "random", "random", "random"]):
        rng = np.random.default_rng(seed)
        sorts = SORTS[:2] if structure == "chow_liu" else SORTS
        sizes = rng.choice(sorts, 3)
        model = fc.CircuitModel(*model_of(structure, schema_of(tuple(map(str, sizes))), seed))
        model.save(folder / "model.fc")
        found.append(((folder / "model.fc").read_bytes(), _ask_circuit))
    return found


def _ask_circuit(path: Path, rng: np.random.Generator) -> None:
    model = fc.load(path)
    schema = model.schema_
    rows = fc.Table(schema, _rows(schema, rng))
    scores = model.score_samples(rows)
    require(not np.isnan(scores).any(), f"log-likelihoods {scores[:3].tolist()}")
    first = schema.variables[0]
    region = {first.name: {first.categories[0]}} if first.size else {first.name: (0.0, 1.0)}
    share = model.probability(region)
    require(-1e-6 <= share <= 1 + 1e-6, f"a probability of {share}")
    drawn = model.sample(3, random_state=0)
    require(not drawn.isna().any(axis=None), "samples with NaN")


def _rows(schema: Any, rng: np.random.Generator) -> Any:
    rows = random_rows(schema, rng, 5)
    for column, variable in zip(rows.T, schema, strict=True):
        if variable.kind == "real" and rng.random() < 0.3:
            column[:] = rng.choice((1e308, -1e308, 0.0, 5e-324, 1e150, 255.0), len(column))
        elif variable.kind == "count" and rng.random() < 0.3:
            column[:] = rng.choice((0.0, 1e15, 1e300, 7.0), len(column))
    return rows


def _trees(folder: Path) -> tuple[bytes, Ask]:
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=60), "b": rng.normal(size=60), "c": ["x", "y", "z"] * 20}
    table = fc.Table.of({**columns, "risk": columns["a"] + rng.normal(size=60) > 0})
    parties = fc.split(table, 2, by="columns", target="risk", allow_collect=True)
    model = fc.FedTrees(target="risk", share_target=True, trees=3, random_state=0).fit(parties)
    model.save(folder / "model.fc")

    def ask(path: Path, rng: np.random.Generator) -> None:
        again = fc.FedTrees.load(path)
        shares = again.predict_proba(table.rows(slice(0, 5)).to_pandas().drop(columns="risk"))
        require(_are_shares(shares), f"shares {shares[:2].tolist()}")

    return (folder / "model.fc").read_bytes(), ask


def _fusion(folder: Path) -> tuple[bytes, Ask]:
    tables = {p.name: p.table for p in owners()}
    parties = fc.Federation(tables, allow_collect=True)
    fitted(parties)[0].save(folder / "model.fc")

    def ask(path: Path, rng: np.random.Generator) -> None:
        shares = fc.FeatureFusion.load(path).predict_proba(parties)
        require(_are_shares(np.asarray(shares)), "shares that are none")

    return (folder / "model.fc").read_bytes(), ask


def _are_shares(found: Any) -> bool:
    return bool((np.abs(found.sum(1) - 1) < 1e-4).all() and (found >= -1e-6).all())


def _spoiled(rng: np.random.Generator, data: bytes) -> bytes:
    match int(rng.integers(6)):
        case 0:
            return _damaged(rng, data)
        case 1 | 2:
            return changed(data, tensors=lambda found: _spoil_numbers(rng, found))
        case 3:
            return changed(data, tensors=lambda found: _spoil_arrays(rng, found))
        case 4:
            return changed(data, metadata=_junk(rng, part(data, files.ABOUT)["metadata"]))
    return changed(data, graph=_junk(rng, part(data, files.GRAPH)))


def _spoil_numbers(rng: np.random.Generator, found: dict[str, Any]) -> None:
    name = pick(rng, sorted(found))
    if found[name].dtype.kind == "f":
        found[name] = spoiled(found[name], rng, float(rng.choice([0.05, 0.5])))
        if rng.random() < 0.5:  # all of them positive: fewer are refused at first sight
            found[name] = np.abs(np.nan_to_num(found[name], nan=1.0))
    elif found[name].size:
        at = int(rng.integers(found[name].size))
        found[name].reshape(-1)[at] = int(rng.choice([-1, 1, 2, 3, 10**6]))


def _spoil_arrays(rng: np.random.Generator, found: dict[str, Any]) -> None:
    name = pick(rng, sorted(found))
    if rng.random() < 0.2:
        found[pick(rng, ("x", '["a"]', '["a", "b"]', "[" * 3000, name + " "))] = found.pop(name)
    elif found[name].ndim and len(found[name]):
        found[name] = np.ascontiguousarray(pick(rng, list(broken(found[name])))[1])


def _junk(rng: np.random.Generator, whole: Any) -> Any:
    """Something else, or nothing, at one place."""
    junk = (*JUNK, {}, 0, 1, 2**62, 1e308, "gaussian", "root", [[]], "circuit")
    place = pick(rng, list(places(whole)))
    at = whole
    for key in place[:-1]:
        at = at[key]
    if rng.random() < 0.2:
        del at[place[-1]]
    else:
        at[place[-1]] = pick(rng, junk)
    return whole


def _damaged(rng: np.random.Generator, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(found)))
        match int(rng.integers(4)):
            case 0:
                found[at] = int(rng.integers(256))
            case 1:
                found = found[: max(at, 1)]
            case 2:
                found[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case 3:
                found[at : at + 4] = pick(rng, (b"\xff" * 4, b"\0" * 4, b"\x7f" + b"\xff" * 3))
    return bytes(found) or b"x"


# ---------------------------------------------------------------------- tables


def _tables(folder: Path) -> list[tuple[str, bytes]]:
    frame = pd.DataFrame({"a": [1.5, 2.5, np.nan], "b": ["x", "y", "x"], "n": [1, 2, 3]})
    text = frame.to_csv(index=False).encode()
    frame.to_parquet(folder / "table.parquet")
    arrays, packed = io.BytesIO(), io.BytesIO()
    np.savez(arrays, a=[1.5, 2.5], n=[1, 2])
    np.savez_compressed(packed, np.ones((3, 4)))
    parquet = (folder / "table.parquet").read_bytes()
    return [(".csv", text), (".csv.gz", gzip.compress(text)), (".parquet", parquet),
            (".npz", arrays.getvalue()), (".npz", packed.getvalue())]  # fmt: skip


def _table_bytes(rng: np.random.Generator, name: str, data: bytes) -> bytes:
    if rng.random() < 0.003:
        return _bomb(rng, name) or data
    if name == ".csv" and rng.random() < 0.7:
        return _csv(rng)
    if name == ".csv.gz" and rng.random() < 0.5:
        return gzip.compress(_csv(rng), 1)
    if name == ".npz" and rng.random() < 0.5:
        return _npz(rng)
    return _damaged(rng, data)


def _csv(rng: np.random.Generator) -> bytes:
    cells = ("1", "2.5", "x", "", "NA", '"', '"a,b"', "1e999", "nan", "9" * 400, "\0", "é", "True",
             "\ud800", "-0", "\r", "\n", "'", ",", ";", "\t", "x" * 5000, "٣")  # fmt: skip
    width = int(rng.integers(1, 5))
    head = [pick(rng, ("a", "b", "c", "d", "", "1", '"', "x" * 500, "\0")) for _ in range(width)]
    lines = [",".join(head)]
    for _ in range(int(rng.integers(0, 8))):
        plain = cells if rng.random() < 0.3 else ("1", "2.5", "x", "NA")
        cut = width if rng.random() < 0.9 else int(rng.integers(6))
        lines.append(",".join(pick(rng, plain) for _ in range(cut)))
    return pick(rng, ("\n", "\r\n", "\r")).join(lines).encode("utf-8", "surrogatepass")


def _npz(rng: np.random.Generator) -> bytes:
    shapes = ("(2,)", "(2, 2)", "(10**6, 10**6)", "(100000, 1000000)", "(-1,)", "(0,)", "()",
              "(2**63,)", "(9223372036854775807, 2)", "(0, 9223372036854775807)")  # fmt: skip
    kinds = ("<f8", "<i8", "|b1", "<U3", "<U1000000000", "|O", "<c16", "<M8[s]", "|V8", ">f8", "x")
    header = f"{{'descr': {pick(rng, kinds)!r}, 'fortran_order': False, 'shape': "
    header += pick(rng, shapes) + ", }"
    raw = header.encode().ljust(117) + b"\n"
    version = pick(rng, (b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = len(raw).to_bytes(2 if version[0] == 1 else 4, "little")
    body = b"\x93NUMPY" + version + size + raw + rng.bytes(int(pick(rng, (0, 16, 32))))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("a.npy", "b.npy", "../a.npy")[: int(rng.integers(1, 4))]:
            archive.writestr(name, body)
    return target.getvalue()


def _bomb(rng: np.random.Generator, name: str) -> bytes | None:
    """A small file that unpacks to more than a gigabyte."""
    target = io.BytesIO()
    if name == ".csv.gz":
        piece = pick(rng, (b"0" * (1 << 24), b"0,0\n" * (1 << 22), bytes(1 << 24)))
        with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as file:
            file.write(b"a,b\n")
            for _ in range(80):
                file.write(piece)
        return target.getvalue()
    if name == ".npz":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("a.npy", "w", force_zip64=True) as member:
                header = {"descr": "<f8", "fortran_order": False, "shape": (80 << 21,)}
                np.lib.format.write_array_header_2_0(member, header)
                for _ in range(80):
                    member.write(bytes(1 << 24))
        return target.getvalue()
    return (",".join(f"x{i}" for i in range(200_000)) + "\n").encode() if name == ".csv" else None
