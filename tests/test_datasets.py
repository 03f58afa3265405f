"""Data sets: facts, checked bytes, originals that give the same tables, downloads."""

from __future__ import annotations

import doctest
import gzip
import hashlib
import shutil
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedcircuits import datasets
from fedcircuits.datasets import describe, find, load
from fedcircuits.datasets.originals import Original, download
from fedcircuits.errors import DatasetError

SHARED = Path(__file__).parents[2] / "shared" / "data"
FOLDER = next((p for p in datasets.places() if (p / "adult.parquet").is_file()), SHARED)
needs_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no folder with data sets: set FEDCIRCUITS_DATA"
)
FILES = [n for n in datasets.names() if describe(n).form != "shipped"]
TABLES = [n for n in datasets.names() if describe(n).form == "table"]


def same(one, other) -> bool:
    return one.schema == other.schema and np.array_equal(one.values, other.values, equal_nan=True)


def lines_of(array) -> bytes:
    return "".join(",".join(map(str, row)) + "\n" for row in array.tolist()).encode()


def idx_of(array) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def test_names_and_facts():
    assert {"adult", "debd_nltcs", "mnist", "breast_cancer", "digits"} <= set(datasets.names())
    for name in datasets.names():
        facts = describe(name)
        assert facts.licence and (facts.url or facts.name == "metr_la_semisynthetic")
        assert facts.form == "shipped" or len(facts.sha256) == 64
        if facts.splits:
            assert sum(facts.splits.values()) == facts.rows
    assert describe("nltcs") is describe("debd_nltcs")
    text = str(describe("adult"))
    for word in ["48,842 rows × 14 columns", "train 32,561", "income", "CC BY 4.0", "https://"]:
        assert word in text


def test_documented_example():
    assert doctest.testmod(datasets).failed == 0


def test_unknown_names_and_splits():
    with pytest.raises(DatasetError, match="did you mean 'adult'"):
        load("adul")
    with pytest.raises(DatasetError, match="there are debd_nltcs"):
        describe("zzz")
    with pytest.raises(DatasetError, match="no split 'valid': expected 'train', 'test' or None"):
        load("adult", "valid")
    with pytest.raises(DatasetError, match=r"use datasets.arrays\('mnist'\)"):
        load("mnist")
    with pytest.raises(DatasetError, match=r"use datasets.load\('digits'\)"):
        datasets.arrays("digits")


def test_shipped_sets():
    cancer = load("breast_cancer")
    assert cancer.values.shape == (569, 31)
    assert cancer.schema["diagnosis"].categories == ("benign", "malignant")
    assert (cancer.column("diagnosis") == "malignant").sum() == 212
    assert cancer.schema["mean radius"].kind == "real"
    digits = load("digits", "all")
    assert digits.values.shape == (1797, 65)
    assert digits.schema["digit"].categories == tuple(range(10))
    assert {digits.schema[f"pixel_{i}_{j}"].kind for i in range(8) for j in range(8)} == {"count"}
    assert digits.values[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


@needs_data
@pytest.mark.parametrize("name", TABLES)
def test_tables(name):
    facts, whole = describe(name), load(name)
    width = facts.columns + (facts.target is not None)
    assert whole.values.shape == (facts.rows, width)
    for split, rows in facts.splits.items():
        part = load(name, split)
        assert part.values.shape == (rows, width)
        assert part.schema == whole.schema
    assert facts.target is None or facts.target in whole.names


@needs_data
def test_known_facts_of_the_tables():
    adult = load("adult", "train")
    assert adult.schema["income"].categories == ("<=50K", ">50K")
    whole = load("adult")
    assert (whole.column("income") == ">50K").sum() == 11_687
    assert np.isnan(whole.select(["workclass"]).values).sum() == 2_799
    credit = load("give_me_some_credit", "train")
    assert credit.select(["SeriousDlqin2yrs"]).values.sum() == 10_026
    assert load("htru2").select(["class"]).values.sum() == 1_639
    plants = load("plants", "train")
    assert plants.names[:2] == ("x0", "x1")
    assert {v.kind for v in plants.schema} == {"boolean"}


@needs_data
@pytest.mark.parametrize("name", [n for n in FILES if describe(n).file.endswith(".npz")])
def test_arrays(name):
    found = datasets.arrays(name)
    facts = describe(name)
    with np.load(FOLDER / facts.file) as expected:
        assert list(found) == expected.files
        if facts.form == "table":
            assert {k: len(v) for k, v in found.items()} == dict(facts.splits)
    with pytest.raises(DatasetError, match="is a table"):
        datasets.arrays("htru2")


@needs_data
def test_originals_of_debd_give_the_same_table(tmp_path):
    for name in ("debd_nltcs", "debd_tretail"):
        for split, array in datasets.arrays(name).items():
            path = tmp_path / "debd" / f"{name[5:]}.{split}.data"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(lines_of(array))
        for split in (None, "train", "valid", "test"):
            assert same(load(name, split, folder=tmp_path), load(name, split))
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(DatasetError, match="expected the sha256"):
        load("tretail", folder=tmp_path)


@needs_data
def test_originals_of_mnist_give_the_same_arrays(tmp_path):
    expected = datasets.arrays("mnist")
    for original, array in zip(describe("mnist").originals, expected.values(), strict=True):
        (tmp_path / original.file).write_bytes(idx_of(array))
    found = datasets.arrays("mnist", folder=tmp_path)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@needs_data
def test_originals_of_htru2_are_checked_by_their_numbers(tmp_path):
    whole, path = load("htru2"), tmp_path / "HTRU_2.csv"
    frame = whole.to_pandas()
    frame.to_csv(path, header=False, index=False)
    assert same(load("htru2", folder=tmp_path), whole)
    frame.iloc[0, 0] += 1
    frame.to_csv(path, header=False, index=False)
    with pytest.raises(DatasetError, match=r"expected numbers with the sha256 \w{64}, got \w{64}"):
        load("htru2", folder=tmp_path)
    for text in ("a,b\n1,2,3,4,5,6,7,8,9,10,11\n", "a;b", ""):
        path.write_text(text)
        with pytest.raises(DatasetError, match=r"HTRU_2\.csv"):
            load("htru2", folder=tmp_path)


def test_adult_and_credit_are_read_from_their_originals(tmp_path):
    row = "{}, ?, 7, HS, 9, Never, Sales, Own-child, White, {}, 0, 0, 40, Cuba, {}\n"
    texts = {
        "adult.data": row.format(39, "Male", "<=50K") + row.format(50, "Female", ">50K") + "\n",
        "adult.test": "|1x3 Cross validator\n" + row.format(25, "Male", "<=50K.") + "\n",
        "cs-training.csv": '"",SeriousDlqin2yrs,age,MonthlyIncome\n1,1,45,9120\n2,0,40,NA\n',
        "cs-test.csv": '"",SeriousDlqin2yrs,age,MonthlyIncome\n1,NA,43,5700\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    adult, credit = (
        find(_with_digests(n, texts), [tmp_path]) for n in ("adult", "give_me_some_credit")
    )
    assert adult["income"].tolist() == ["<=50K", ">50K", "<=50K"]
    assert adult["split"].tolist() == ["train", "train", "test"]
    assert adult["workclass"].isna().all() and adult["sex"].tolist() == ["Male", "Female", "Male"]
    assert credit["split"].tolist() == ["train", "train", "unlabelled"]
    np.testing.assert_array_equal(credit["SeriousDlqin2yrs"], [1, 0, np.nan])
    np.testing.assert_array_equal(credit["MonthlyIncome"], [9120, np.nan, 5700])


def _with_digests(name, texts):
    """The facts of a set, with the digests of a small stand-in for its originals."""
    facts = describe(name)
    digests = {f: hashlib.sha256(t.encode()).hexdigest() for f, t in texts.items()}
    return replace(
        facts, originals=tuple(replace(o, sha256=digests[o.file]) for o in facts.originals)
    )


@needs_data
@pytest.mark.parametrize("name", ["adult", "debd_nltcs"])
def test_tampered_file_is_refused(tmp_path, name):
    facts = describe(name)
    copy = tmp_path / facts.file
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(FOLDER / facts.file, copy)
    assert len(load(name, folder=tmp_path)) == facts.rows
    data = bytearray(copy.read_bytes())
    data[1000] ^= 1
    copy.write_bytes(data)
    found = hashlib.sha256(data).hexdigest()
    with pytest.raises(DatasetError, match=f"expected the sha256 {facts.sha256}, got {found}"):
        load(name, folder=tmp_path)


def test_places(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCIRCUITS_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found = datasets.places(tmp_path)
    assert found[:2] == [tmp_path, tmp_path / "mine"]
    assert tmp_path.parent / "shared" / "data" in found[2:-1]
    assert found[-1] == tmp_path / "cache" / "fedcircuits"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.places()[-1] == tmp_path / ".cache" / "fedcircuits"
    with pytest.raises(DatasetError, match="expected a folder"):
        datasets.places(tmp_path / "absent")


@needs_data
def test_environment_variable_is_followed(tmp_path, monkeypatch):
    shutil.copytree(FOLDER / "debd", tmp_path / "debd")
    (tmp_path / "debd" / "nltcs.npz").write_bytes(b"other")
    monkeypatch.setenv("FEDCIRCUITS_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match="sha256"):
        load("nltcs")
    assert len(load("plants", "valid")) == 2_321


def test_absent_sets_say_what_to_do(tmp_path):
    with pytest.raises(DatasetError) as caught:
        find(describe("give_me_some_credit"), [tmp_path])
    for word in [str(tmp_path), "cs-training.csv and cs-test.csv", "kaggle", "FEDCIRCUITS_DATA"]:
        assert word in str(caught.value)
    with pytest.raises(DatasetError) as caught:
        find(describe("cifar10_subset"), [tmp_path])
    for word in ["cifar10_subset.npz", "sha256", "kriz/cifar.html", "FEDCIRCUITS_DATA"]:
        assert word in str(caught.value)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        if not self.path.startswith("/cut"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")
        return None


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "public"
    root.mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *parts: Quiet(*parts, directory=str(root))
    ) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", root
        http.shutdown()
        thread.join()


def test_absent_set_is_fetched_once(server, tmp_path):
    address, root = server
    rng, parts = np.random.default_rng(0), {}
    for split in ("train", "valid", "test"):
        parts[split] = rng.integers(0, 2, (20, 5), dtype=np.uint8)
        (root / f"toy.{split}.data").write_bytes(lines_of(parts[split]))
    facts = replace(
        describe("nltcs"),
        originals=tuple(
            Original(
                f"debd/toy.{s}.data",
                hashlib.sha256(lines_of(a)).hexdigest(),
                url=f"{address}/toy.{s}.data",
            )
            for s, a in parts.items()
        ),
    )
    places = [tmp_path / "empty", tmp_path / "cache"]
    for _ in range(2):
        found = find(facts, places)
        assert all(np.array_equal(found[s], parts[s]) for s in parts)
        shutil.rmtree(root, ignore_errors=True)  # the second time from the cache
    names = sorted(p.name for p in (tmp_path / "cache" / "debd").iterdir())
    assert names == ["toy.test.data", "toy.train.data", "toy.valid.data"]


def test_gzipped_download_is_unpacked(server, tmp_path):
    address, root = server
    (root / "pixels.gz").write_bytes(gzip.compress(b"pixels"))
    original = Original("pixels", hashlib.sha256(b"pixels").hexdigest(), url=f"{address}/pixels.gz")
    assert download(original, tmp_path / "cache").read_bytes() == b"pixels"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("wrong", "expected the sha256 0{64}, got"),
        ("absent", "could not be fetched from .*404"),
        ("cut", "could not be fetched"),
        ("broken.gz", "could not be fetched"),
    ],
)
def test_failed_download_leaves_nothing(server, tmp_path, path, message):
    address, root = server
    (root / "wrong").write_bytes(b"other bytes")
    (root / "broken.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(DatasetError, match=message):
        download(Original("file", "0" * 64, url=f"{address}/{path}"), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_download_needs_an_address_and_a_place(tmp_path):
    with pytest.raises(DatasetError, match="no address"):
        download(Original("file"), tmp_path)
    with pytest.raises(DatasetError, match="could not be fetched from http://127"):
        download(Original("file", url="http://127.0.0.1:9/file"), tmp_path)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DatasetError, match="cannot write there"):
        download(Original("taken/file", url="http://127.0.0.1:9/file"), tmp_path)
