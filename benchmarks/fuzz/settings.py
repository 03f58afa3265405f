"""schema.toml, site.toml and consortium.toml: damaged by chance, and written with intent."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedcircuits as fc
from benchmarks.fuzz.judging import pick, require
from fedcircuits.engines.sites.files import ConsortiumFile, SiteFile, read_toml
from fedcircuits.tables.declared import read_schema, read_table

CSV = "a,b,when,pid\n" + "".join(f"{i % 5},{i % 3}.5,0{1 + i % 9}/02/2020,{i}\n" for i in range(30))
SCHEMA = """\
[reading]
delimiter = ","
encoding = "utf-8"
missing = ["k.A.", "-"]

[columns.a]
kind = "category"
categories = [0, 1, 2, 3, 4]

[columns."b"]
kind = "real"
unit = "mg"

[columns.when]
kind = "date+weekday"
"""
SITE = """\
store = "store"

[data]
path = "rows.csv"
row_id = "pid"
columns = { age = "a" }
scale = { age = 0.5 }

[policy]
least_count = 5
"""
CONSORTIUM = """\
name = "risk"
server = "tls://localhost:4222"
sites = ["north", "south"]

[columns.age]
kind = "count"
"""
VALUES = (
    "[" * 3000, "[" * 40 + "]" * 40, "9" * 5000, "99999999999999999999999", "-1", "nan", "inf",
    "1e400", "true", "1979-05-27", "''", '"\\u0000"', '"\\u001b[31m"', '"../../x"', "'\"'", '"\\n"',
    "{}", "[]", "[1, 'a']", "{ a.b.c = 1 }", "'left out'", "'date+day'", "'utf-7'", "'punycode'",
    "'" + "x" * 100_000 + "'", "{" + "a." * 500 + "a=1}", "\ufeff", "\0",
)  # fmt: skip
Reader = Callable[[Path], object]


def prepare(folder: Path) -> Callable[[np.random.Generator], None]:
    rows, path = folder / "settings.csv", folder / "settings.toml"
    rows.write_text(CSV)

    def table(file: Path) -> None:
        read = read_table(rows, read_schema(file), "pid")
        require(not np.isinf(read.values).any(), "a table with infinite values")
        require(isinstance(read, fc.Table) and len(read) <= 30, "more rows than there are")

    kinds: list[tuple[str, Reader]] = [
        (SCHEMA, table),
        (SITE, lambda file: read_toml(file, SiteFile)),
        (CONSORTIUM, lambda file: read_toml(file, ConsortiumFile)),
    ]

    def attempt(rng: np.random.Generator) -> None:
        text, reader = pick(rng, kinds)
        path.write_bytes(_changed(rng, text))
        reader(path)

    return attempt


def _changed(rng: np.random.Generator, text: str) -> bytes:
    lines = text.split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        key = lines[at].partition("=")[0]
        match int(rng.integers(5)):
            case 0:
                lines[at] = f"{key}= {pick(rng, VALUES)}"
            case 1:
                lines.insert(at, lines[int(rng.integers(len(lines)))])
            case 2:
                lines[at] = "[columns" + ".a" * int(rng.integers(1, 20_000)) + "]"
            case 3:
                del lines[at]
                lines = lines or [""]
            case _:
                lines[at] = lines[at][::-1]
    data = bytearray("\n".join(lines).encode())
    for _ in range(int(rng.integers(3)) if data else 0):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    return bytes(data)
