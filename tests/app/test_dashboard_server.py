"""The dashboard's server without a browser: who is refused, bad questions, what crossed."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.app import cli, events
from fedcircuits.app.dashboard.command import bound
from fedcircuits.app.dashboard.desk import Desk
from fedcircuits.app.dashboard.server import ASSETS, Shown
from fedcircuits.engines.watching import Progress
from fedcircuits.errors import FileError
from tests.app.browser import served
from tests.commands import RUNNER
from tests.federation.cases import QUICK, mixed_table

COMMAND = [sys.executable, "-m", "fedcircuits", "dashboard"]


@pytest.fixture(scope="module")
def federated() -> fc.FedPC:
    parties = fc.split(mixed_table(), ["north", "south"], by="columns")
    return fc.FedPC(QUICK, clusters=2, target="risk", random_state=0).fit(parties)


@pytest.fixture(scope="module")
def address(federated: fc.FedPC) -> Iterator[str]:
    with served(Shown(Path("model.fc"), Desk(federated))) as found:
        yield found


def answer(
    address: str, path: str, said: object = None, **headers: str
) -> tuple[int, dict[str, Any] | str]:
    line = HTTPConnection(urlsplit(address).netloc, timeout=300)
    body = None if said is None else said if isinstance(said, str) else json.dumps(said)
    line.request("GET" if body is None else "POST", path, body, headers)
    found = line.getresponse()
    text = found.read().decode()
    line.close()
    form = found.headers.get("content-type", "")
    return found.status, json.loads(text) if form.startswith("application/json") else text


def test_an_answer_tells_what_crossed_for_it(address: str, federated: fc.FedPC) -> None:
    already = len(federated.queries_)
    status, found = answer(address, "/api/marginals", {"known": {"colour": {"codes": [2]}}})
    assert status == 200 and isinstance(found, dict)
    own = federated.queries_.entries[already:]
    assert sum(int(row[2].replace(",", "")) for row in found["crossed"]) == len(own) > 0
    assert sum(int(row[3].replace(",", "")) for row in found["crossed"]) == sum(
        e.bytes for e in own
    )
    assert {row[1] for row in found["crossed"]} >= {"north", "south"}
    expected = federated._posterior("risk", {"colour": "blue"})[0].tolist()
    assert found["marginals"]["risk"] == pytest.approx(expected)


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """The system holds the second part of an answer back for 40 ms, unless asyncio, which goes by
    the socket's protocol, forbids it."""
    with bound("127.0.0.1", 0) as line:
        assert line.proto == socket.IPPROTO_TCP


def test_ranges_within(address: str, federated: fc.FedPC) -> None:
    known = {"known": {"age": {"low": 40, "high": 50}, "visits": {"value": 3}}}
    status, found = answer(address, "/api/within", known)
    assert status == 200 and isinstance(found, dict) and list(found["marginals"]) == ["age"]
    status, found = answer(address, "/api/marginals", known)
    assert isinstance(found, dict) and found["known"] == ["age", "visits"]
    share = federated.probability({"age": (40, 50), "visits": 3})
    assert found["probability"] == pytest.approx(share)


def test_averages_are_the_library_s(federated: fc.FedPC, tmp_path: Path) -> None:
    federated.collect().save(tmp_path / "model.fc")
    model = fc.load(tmp_path / "model.fc")
    assert isinstance(model, fc.CircuitModel)
    desk = Desk(model)
    known = {"age": {"low": 40, "high": None}, "visits": {"value": 3}}
    found = desk.averages(known)["averages"]
    numbers = [v.name for v in model.schema_ if not v.size and v.name != "visits"]
    expected = model.expect(numbers, given={"age": (40, None), "visits": 3})
    assert isinstance(found, dict) and list(found) == numbers and "age" in numbers
    assert list(found.values()) == pytest.approx(expected.loc[numbers, "mean"].tolist())


def test_averages_are_not_asked_of_parties(address: str, federated: fc.FedPC) -> None:
    already = len(federated.queries_)
    assert answer(address, "/api/averages", {"known": {}})[1]["averages"] == {}  # type: ignore[index]
    assert len(federated.queries_) == already


def test_of_many_values_the_most_probable_are_shown() -> None:
    levels = [f"K{i:02d}" for i in range(60)]
    rows = pd.DataFrame({"code": levels * 2 + ["K57"] * 200, "n": np.arange(320.0) % 7})
    desk = Desk(fc.MixtureOfProducts(1, random_state=0).fit(rows))
    points = desk.columns()[0]["points"]
    assert isinstance(points, list) and len(points) == 40 and levels.index("K57") in points
    assert max(desk.before["code"]) == desk.before["code"][points.index(levels.index("K57"))]


def test_samples_are_the_library_s(address: str, federated: fc.FedPC) -> None:
    known = quote(json.dumps({"colour": {"codes": [0]}}))
    status, csv = answer(address, f"/api/samples.csv?number=5&seed=3&known={known}")
    assert status == 200
    assert csv == federated.sample(5, {"colour": "red"}, random_state=3).to_csv(index=False)
    already, asked = len(federated.queries_), {"colour": {"codes": [0]}}
    _, found = answer(address, "/api/samples", {"known": asked, "number": 5, "seed": 3})
    assert isinstance(found, dict) and found["csv"] == csv
    own = federated.queries_.entries[already:]
    assert sum(int(row[2].replace(",", "")) for row in found["crossed"]) == len(own) > 0
    assert {row[1] for row in found["crossed"]} >= {"north", "south"}


@pytest.mark.parametrize(
    ("path", "said", "error"),
    [
        ("marginals", "{", "a question is a JSON object"),
        ("marginals", [1], "a question is a JSON object"),
        ("marginals", {"known": [1]}, "'known' is a JSON object"),
        ("marginals", {"known": {"aeg": {"value": 1}}}, "aeg"),
        ("marginals", {"known": {"colour": {"codes": [7]}}}, "expected codes of a category"),
        ("marginals", {"known": {"colour": {"codes": []}}}, "expected at least one value"),
        ("marginals", {"known": {"age": {"low": "x", "high": None}}}, "expected codes"),
        ("marginals", {"known": {"age": {"low": 9, "high": 3}}}, "age"),
        ("marginals", {"known": {"visits": {"value": -1}}}, "visits"),
        ("event", {"event": "age >"}, "expected a value of 'age'"),
        ("event", {"event": ""}, "expected"),
        ("completed", {"known": 3}, "'known' is a JSON object"),
    ],
)
def test_bad_questions_are_told_in_one_line(
    address: str, path: str, said: object, error: str
) -> None:
    status, found = answer(address, f"/api/{path}", said)
    assert status == 400 and isinstance(found, dict)
    assert error in found["error"] and "\n" not in found["error"]


@pytest.mark.parametrize("query", ["number=0", "number=x", "number=100001", "seed=-1", "known=3"])
def test_bad_draws(address: str, query: str) -> None:
    status, found = answer(address, f"/api/samples.csv?{query}")
    assert status == 400 and isinstance(found, dict) and found["error"]
    name, _, value = query.partition("=")
    status, found = answer(address, "/api/samples", {name: value})
    assert status == 400 and isinstance(found, dict) and found["error"]


def test_large_questions_are_refused(address: str) -> None:
    status, found = answer(address, "/api/marginals", " " * (1 << 20) + "{}")
    assert status == 400 and isinstance(found, dict) and "at most" in found["error"]


def test_other_names_and_other_origins_are_refused(address: str) -> None:
    assert answer(address, "/api/start", Host="evil.example")[0] == 400
    assert answer(address, "/api/start", Origin="http://evil.example")[0] == 403
    assert answer(address, "/api/start", Origin="http://[")[0] == 403  # was an error of Python
    port = urlsplit(address).port
    assert answer(address, "/api/start", Origin=f"http://127.0.0.1:{port}")[0] == 200


def test_pictures_and_scripts_of_other_pages_are_refused(address: str) -> None:
    """They come without an origin, but browsers tell where they stand. Links to the page work."""
    for place in ("cross-site", "same-site"):
        elsewhere = {"Sec-Fetch-Site": place}
        assert answer(address, "/api/samples.csv?number=1", **elsewhere)[0] == 403
        assert answer(address, "/", **elsewhere)[0] == 200
    assert answer(address, "/api/start", **{"Sec-Fetch-Site": "same-origin"})[0] == 200


def test_nothing_is_open_where_all_columns_are_known(address: str, federated: fc.FedPC) -> None:
    """An answer without marginals; it was an error of Python."""
    known = {
        v.name: {"codes": [0]} if v.size else {"low": None, "high": 1e6}
        for v in federated.circuit_.schema
    }
    status, found = answer(address, "/api/marginals", {"known": known})
    assert status == 200 and isinstance(found, dict) and found["marginals"] == {}


def test_no_file_but_the_page_s_own(address: str) -> None:
    assert answer(address, "/assets/../server.py")[0] == 404
    assert answer(address, "/assets/%2e%2e/server.py")[0] == 404


def test_the_page_is_small_and_names_no_other_host() -> None:
    files = [p for p in ASSETS.iterdir() if p.suffix != ".txt"]
    assert sum(p.stat().st_size for p in files) < 120_000
    own = [p.read_text("utf-8") for p in files if not p.name.startswith("uPlot")]
    assert not [text for text in own if "https://" in text or "//cdn" in text]
    assert "MIT License" in (ASSETS / "uPlot.LICENSE.txt").read_text("utf-8")


# ---------------------------------------------------------------------- events


def test_events_are_read_as_the_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert events.read_from(path, 0) == ([], 0)
    with events.written(path) as write:
        assert write is not None
        write(Progress("begin", "north, south"))
        first, place = events.read_from(path, 0)
        write(Progress("round", "north", likelihood=float("-inf")))
        for _ in range(5):
            write(Progress("message", "north", "south"))  # within a moment: one line
    rest, end = events.read_from(path, place)
    assert [e["kind"] for e in first + rest] == ["begin", "round", "message"]
    assert rest[0]["likelihood"] is None and end == path.stat().st_size
    with path.open("a") as file:
        file.write('{"kind": "do')
    assert events.read_from(path, end) == ([], end), "half a line is left for later"
    path.write_text('{"kind": "end"}\n')
    assert events.read_from(path, end) == ([{"kind": "end"}], 16), "another run"


def test_whoever_still_waits_is_told_of_later() -> None:
    """South sends and waits twice within a moment; north then computes for long."""
    file, times = io.StringIO(), iter([0.0, 0.0, 0.01, 0.02, 0.03, 9.0])
    write = events.EventWriter(file, lambda: next(times))
    write(Progress("message", "south", "north", bytes=5, seconds=0.0))
    write(Progress("wait", "south", "north", text="a/one", bytes=5, seconds=0.0))
    write(Progress("message", "south", "north", bytes=9, seconds=0.01))
    write(Progress("wait", "south", "north", text="a/two", bytes=9, seconds=0.02))
    write(Progress("step", "north", text="learning", bytes=9, seconds=0.03))
    write(Progress("step", "north", text="learning on", bytes=9, seconds=9.0))
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    told = [(e["kind"], e["party"], e["text"], e["seconds"]) for e in lines]
    assert told == [
        ("message", "south", "", 0.0),
        ("wait", "south", "a/one", 0.0),
        ("step", "north", "learning", 0.03),
        ("wait", "south", "a/two", 9.0),
        ("step", "north", "learning on", 9.0),
    ]


def test_silence_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert events.quiet_for(path) == 0
    path.write_text("")
    os.utime(path, (time.time() - 100, time.time() - 100))
    assert events.quiet_for(path) == pytest.approx(100, abs=20)


@pytest.mark.parametrize("line", ["[1]", "[" * 100_000])
def test_what_is_no_file_of_events_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(FileError, match="is not an event"):
        events.read_from(path, 0)
    with pytest.raises(FileError, match=r"ending in \.jsonl"), events.written(tmp_path / "run.txt"):
        pass


# ---------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gone.fc"], "gone.fc: there is no such file"),
        (["a.jsonl", "b.jsonl"], "two of the same kind: a.jsonl and b.jsonl; give one of them"),
        (["run.jsonl", "--host", "256.1.1.1", "--port", "0"], "cannot serve at 256.1.1.1"),
    ],
)
def test_what_cannot_be_shown_is_one_line(words: list[str], error: str) -> None:
    found = RUNNER.invoke(cli.app, ["dashboard", *words])
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith("fedcircuits: ") and found.stderr.count("\n") == 1
    assert error in found.stderr


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        found = RUNNER.invoke(cli.app, ["dashboard", "run.jsonl", "--port", port])
    text = f"fedcircuits: cannot serve at 127.0.0.1, port {port}: Address already in use; "
    assert (found.exit_code, found.stderr) == (1, f"{text}give another --port, or --port 0\n")


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
def test_others_than_this_machine_need_the_token_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    words = [*COMMAND, "run.jsonl", "--host", "0.0.0.0", "--port", "0"]
    process = subprocess.Popen(
        words, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    url = urlsplit(process.stdout.readline().removeprefix("dashboard at ").strip())
    here = f"http://127.0.0.1:{url.port}/"
    assert answer(here, "/")[0] == 403 and answer(here, "/?token=wrong")[0] == 403
    assert answer(here, f"/?{url.query}")[0] == 303
    cookie = f"fedcircuits_token={url.query.removeprefix('token=')}"
    assert answer(here, "/api/start", Cookie=cookie)[0] == 200
    process.send_signal(2)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "fedcircuits: stopped\n")


def test_a_site_s_policy_and_audit(tmp_path: Path) -> None:
    file, kits = tmp_path / "consortium.toml", tmp_path / "kits"
    file.write_text('name = "trio"\nserver = "tls://localhost:4222"\nsites = ["north", "south"]\n')
    assert RUNNER.invoke(cli.app, ["provision", str(file), "-o", str(kits)]).exit_code == 0
    store = kits / "north" / "store"
    store.mkdir()
    line = {"time": "2026-01-02", "event": "asked", "what": "describe", "reveals": "its columns"}
    (store / "audit.jsonl").write_text(json.dumps(line) + "\n")
    with served(Shown(site=kits / "north")) as address:
        status, found = answer(address, "/api/site")
        assert answer(address, "/api/model")[0] == 400, "no model is shown here"
    assert status == 200 and isinstance(found, dict)
    assert (found["name"], found["consortium"]) == ("north", "trio")
    assert found["policy"]["collect"] == "no" and found["policy"]["least_count"] == "5"
    [row] = found["audit"]
    assert (row[0], row[1], row[-1]) == ("2026-01-02", "asked", "its columns")


@pytest.mark.parametrize("low, high", [(40, None), (None, 30), (61.23, 61.24), (90, None)])
def test_a_completed_row_lies_inside_the_ranges(
    federated: fc.FedPC, low: float | None, high: float | None
) -> None:
    """Also where none of the points of the column is inside."""
    desk = Desk(federated)
    answer = desk.completed({"weight": {"low": low, "high": high}})
    assert answer["inside"] == ["weight"] and answer["exact"] is False
    row = answer["row"]
    assert isinstance(row, dict)
    assert (-np.inf if low is None else low) <= float(row["weight"])
    assert float(row["weight"]) <= (np.inf if high is None else high)
    others = {n: v for n, v in row.items() if n != "weight"}
    completed = federated.mpe(pd.DataFrame({"weight": [float(row["weight"])]}))
    assert others["risk"] == str(completed["risk"].iloc[0])
