"""Requests to the dashboard: paths, heads, questions and bodies that no page of it would send.

They go to the application itself, without a socket. One in four goes to a dashboard with a token:
whoever has it not is told nothing. Nothing but the page's own files is served from the disk, hosts
of elsewhere and pages of elsewhere are refused, and answers are JSON without NaN.
"""

import asyncio
import gzip
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from benchmarks.fuzz.judging import Attempt, pick, require
from benchmarks.fuzz.questions import hostile_mapping, question_text, small_model
from fedcircuits.app.dashboard.desk import Desk
from fedcircuits.app.dashboard.server import ASSETS, COOKIE, Shown, application
from fedcircuits.errors import QueryError

TOKEN = "a-token-that-nobody-guesses"
ASKED = ("marginals", "within", "event", "completed")
PATHS = (
    "/", "/api/start", "/api/model", "/api/circuit.svg", "/api/events", "/api/site", "/api", "//",
    "/api/samples.csv", "/assets/", "/assets", "/assets/../server.py", "/assets/%2e%2e/server.py",
    "/assets/..%2fserver.py", "/assets//etc/passwd", "/assets/%00", "/assets/../../../etc/passwd",
    "/..", "/%ff", "/assets/" + "a" * 3000, "/assets/..\\server.py", "/api/start/", "*", "",
)  # fmt: skip
HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "",
    "127.0.0.1.nip.io",
    "[::1",
    "\xff",
    "a" * 300,
)
ORIGINS = ("http://evil.example", "null", "http://localhost:1", "http://[", "\xff", "file://")
NUMBERS = ("0", "-1", "1", "3", "1e3", "9" * 5000, "100001", "nan", "", "٣", "2" * 40)
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2**63, 10**400, 0.5, float("nan"), float("inf"), 1e308, "", "x", [], {},
    [0], [[]], [10**30], {"codes": [0]}, {"codes": [True]}, {"codes": [-1]}, {"codes": []},
    {"value": 1e308}, {"value": float("nan")}, {"value": True}, {"low": 0, "high": None},
    {"low": 1, "high": 0}, {"low": float("inf"), "high": None}, {"low": None, "high": None},
    {"low": -1e308, "high": 1e308}, {"value": 10**400}, {"low": 10**400, "high": None},
)  # fmt: skip
COLUMNS = (
    "x",
    "n",
    "colour",
    "größe",
    "ok",
    "and",
    "`",
    "1.5",
    "age (years)",
    "none",
    "",
    "\ud800",
)
Answer = tuple[int, dict[str, str], bytes]


def prepare(folder: Path) -> Attempt:
    desk = Desk(small_model())
    run = folder / "run.jsonl"
    run.write_text('{"kind": "step"}\nnot json\n{"kind": "message", "bytes": 1e999}\n')
    shown = Shown(folder / "model.fc", desk, run)
    hosts = ["localhost", "127.0.0.1", "[::1]"]
    plain, sealed = application(shown, hosts), application(shown, ["*"], TOKEN)
    served = {f"/assets/{p.name}" for p in ASSETS.iterdir()}
    loop = asyncio.new_event_loop()

    def attempt(rng: np.random.Generator, number: int) -> None:
        method, path, query, body = _request(rng)
        heads, strange, known = _heads(rng, number % 4 == 0)
        application_ = sealed if number % 4 == 0 else plain
        status, said, answer = loop.run_until_complete(
            _call(application_, method, path, query, heads, body)
        )
        if number % 4 == 0 and not known:
            require(status in (303, 403), f"{path} without the token: {status}")
        if strange:
            require(status in (400, 403), f"{path} from elsewhere: {status}")
        if path.startswith("/assets") and status == 200:
            require(unquote(path) in served, f"{path} was served")
        require(status < 500, f"{method} {path}: {status}")
        if said.get("content-type", "").startswith("application/json") and answer:
            answer = gzip.decompress(answer) if "content-encoding" in said else answer
            json.loads(answer, parse_constant=_refuse)
        if status >= 400:
            raise QueryError(f"status {status}")

    return attempt


def _refuse(name: str) -> None:
    require(False, f"an answer with {name}")


def _request(rng: np.random.Generator) -> tuple[str, str, str, bytes]:
    match int(rng.integers(8)):
        case 0:
            method = pick(rng, ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "X" * 50))
            return method, pick(rng, PATHS), "", b"{}"
        case 1:
            place = quote(pick(rng, NUMBERS))
            return "GET", "/api/events", f"from={place}", b""
        case 2:
            known = quote(_json(_known(rng)))
            few = [n for n in NUMBERS if n != "100001"]
            return "GET", "/api/samples.csv", (
                f"number={quote(pick(rng, few))}&seed={quote(pick(rng, few))}&known={known}"
            ), b""  # fmt: skip
    said: Any = {"known": _known(rng), "event": _event(rng)}
    if rng.random() < 0.1:
        said = pick(rng, VALUES)
    body = _json(said).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        body = _spoiled(rng, body)
    return "POST", f"/api/{pick(rng, ASKED)}", "", body


def _event(rng: np.random.Generator) -> Any:
    return question_text(rng) if rng.random() < 0.7 else pick(rng, VALUES)


def _known(rng: np.random.Generator) -> Any:
    if rng.random() < 0.1:
        return pick(rng, VALUES)
    if rng.random() < 0.1:
        return hostile_mapping(rng)
    return {pick(rng, COLUMNS): pick(rng, VALUES) for _ in range(int(rng.integers(4)))}


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):  # keys that JSON has not
        return "{}"


def _spoiled(rng: np.random.Generator, body: bytes) -> bytes:
    match int(rng.integers(5)):
        case 0:
            return body[: int(rng.integers(len(body) + 1))]
        case 1:
            return b"[" * int(rng.choice([10, 100_000]))
        case 2:
            return b" " * (1 << 20) + body
        case 3:
            return rng.bytes(int(rng.integers(200)))
    return body.replace(b"1", b"9" * 5000)


def _heads(rng: np.random.Generator, sealed: bool) -> tuple[list[tuple[bytes, bytes]], bool, bool]:
    """Heads, whether they are from elsewhere, and whether they have the token."""
    strange, known = rng.random() < 0.1, False
    host = "localhost:8350"
    heads = [("content-type", pick(rng, ("application/json", "text/plain", "x" * 2000)))]
    if strange and not sealed and rng.random() < 0.5:
        host = pick(rng, HOSTS)
    elif strange:
        heads.append(("origin", pick(rng, ORIGINS)))
    if sealed:
        known = rng.random() < 0.5
        given = TOKEN if known else pick(rng, ("", "x", TOKEN[:-1], TOKEN + "x", "\xff", '"'))
        heads.append(("cookie", f"{COOKIE}={given}"))
    if rng.random() < 0.1:
        heads.append((pick(rng, ("accept-encoding", "content-length", "range")), "gzip, 9"))
    heads.append(("host", host))
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in heads]
    return encoded, strange, known


async def _call(
    application_: Any,
    method: str,
    path: str,
    query: str,
    heads: list[tuple[bytes, bytes]],
    body: bytes,
) -> Answer:
    scope: MutableMapping[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": unquote(path), "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode(), "root_path": "", "headers": heads,
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8350),
    }  # fmt: skip
    parts = [body[i : i + (1 << 16)] for i in range(0, len(body), 1 << 16)] or [b""]
    sent: list[MutableMapping[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if not parts:
            await gone.wait()
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application_(scope, receive, send)
    gone.set()
    head = next(m for m in sent if m["type"] == "http.response.start")
    found = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    return head["status"], {n.decode(): v.decode("latin-1") for n, v in head["headers"]}, found
