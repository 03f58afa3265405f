"""Records that owners send each other or keep: recipes of runs, requests to join a consortium,
certificates, audit logs, events of a training, and schema.toml as ``train`` writes it."""

import base64
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import fedcircuits as fc
from benchmarks.fuzz.judging import mutated, pick, require
from benchmarks.fuzz.settings import CONSORTIUM
from fedcircuits.app.analyst import audit_lines, audit_row
from fedcircuits.app.events import read_from
from fedcircuits.engines.sites.credentials import certificate_of, check_dates, revoked_serials
from fedcircuits.engines.sites.joining import make_request, read_request
from fedcircuits.errors import FedcircuitsError
from fedcircuits.federation.recipes import pack, unpack
from fedcircuits.methods.fedpc import training
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.tables.declared import read_schema, schema_text
from fedcircuits.tables.reading import ColumnReading

Draw = np.random.Generator
LINES: tuple[bytes, ...] = (
    b"[" * 100_000, b"1" * 5000, b"null", b"[]", b'"x"', b"", b"\xff\xfe", b"{", b'{"a": NaN}',
    '{"kind": "a\u2028b\x85c"}'.encode(), b'{"time": {"a": [1]}, "bytes": "x", "event": 1e999}',
    b'{"kind": "\\ud800", "event": "\\u001b[31m"}', b'{"bytes": true, "event": []}', b"\0",
)  # fmt: skip
WORDS = (
    "a", "a b", "A.b", '"', "'", "\\", "\n", "\r\n", "\t", "#", "[x]", "\x00", "\x1b[31m", "\x7f",
    "\x85", "\u2028", "\u202e", "é", "\U0001f600", "", "kind", "nan", "1", "x" * 3000, "\ufeff",
)  # fmt: skip


def prepare(folder: Path) -> Callable[[Draw, int], None]:
    kit = folder / "kit"
    request = make_request(kit, "north")
    (kit / "site.toml").unlink()
    known = f'[identities]\nnorth = "{request.identity}"\n'
    (kit / "consortium.toml").write_text(f"{CONSORTIUM}\n{known}")
    (kit / "store").mkdir()
    kinds = [
        _recipes(),
        lambda rng: _audit(rng, kit),
        lambda rng: _events(rng, folder),
        _requests(folder, kit),
        _certificates(folder),
        lambda rng: _written(rng, folder),
    ]

    def attempt(rng: Draw, number: int) -> None:
        kinds[number % len(kinds)](rng)

    return attempt


def _recipes() -> Callable[[Draw], None]:
    plan = FedPCPlan(("north", "south")).for_party()
    data = pack((training.client, {"plan": plan, "learner": fc.LearnSPN()}, {}))
    return lambda rng: unpack(mutated(rng, data))


def _audit(rng: Draw, kit: Path) -> None:
    (kit / "store" / "audit.jsonl").write_bytes(_some_lines(rng))
    for line in audit_lines(kit):
        require(all(isinstance(cell, str) for cell in audit_row(line)), "no text")


def _events(rng: Draw, folder: Path) -> None:
    path = folder / "events.jsonl"
    path.write_bytes(_some_lines(rng))
    events, end = read_from(path, int(rng.integers(-2, 200)))
    require(0 <= end <= path.stat().st_size, "an offset beyond the file")
    require(all("kind" in event for event in events), "no event")


def _some_lines(rng: Draw) -> bytes:
    good = json.dumps({"kind": "step", "event": "sent", "time": "now", "bytes": 4}).encode()
    lines = [pick(rng, (good, pick(rng, LINES))) for _ in range(int(rng.integers(1, 6)))]
    return b"\n".join(lines) + pick(rng, (b"", b"\n", b"\r\n"))


def _requests(folder: Path, kit: Path) -> Callable[[Draw], None]:
    text = (kit / "request.toml").read_text()
    head, begin, rest = text.partition("-----BEGIN CERTIFICATE REQUEST-----\n")
    body, end, tail = rest.partition("-----END CERTIFICATE REQUEST-----")
    path, der = folder / "request.toml", base64.b64decode(body)

    def attempt(rng: Draw) -> None:
        spoiled = base64.encodebytes(_flipped(rng, der)).decode()
        path.write_text(head + begin + spoiled + end + tail)
        read_request(path)

    return attempt


def _certificates(folder: Path) -> Callable[[Draw], None]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "north")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=9))
    revoked = x509.CertificateRevocationListBuilder().issuer_name(name)
    revoked = revoked.last_update(now).next_update(now + datetime.timedelta(days=9))
    entry = x509.RevokedCertificateBuilder().serial_number(8).revocation_date(now).build()
    revoked = revoked.add_revoked_certificate(entry)
    der = serialization.Encoding.DER
    both: list[tuple[str, bytes, Callable[[Path], Any]]] = [
        ("CERTIFICATE", made.sign(key, hashes.SHA256()).public_bytes(der), check_dates),
        ("CERTIFICATE", made.sign(key, hashes.SHA256()).public_bytes(der), certificate_of),
        ("X509 CRL", revoked.sign(key, hashes.SHA256()).public_bytes(der), revoked_serials),
    ]
    path = folder / "certificate.pem"

    def attempt(rng: Draw) -> None:
        title, data, reader = pick(rng, both)
        body = base64.encodebytes(_flipped(rng, data)).decode()
        path.write_text(f"-----BEGIN {title}-----\n{body}-----END {title}-----\n")
        reader(path)

    return attempt


def _flipped(rng: Draw, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        found[int(rng.integers(len(found)))] = int(rng.integers(256))
    return bytes(found[: int(rng.integers(len(found)))] if rng.random() < 0.1 else found)


def _written(rng: Draw, folder: Path) -> None:
    """What is written by ``train`` is read back as it was."""
    size = int(rng.integers(1, 5))
    names = list(dict.fromkeys("".join(pick(rng, WORDS) for _ in range(2)) for _ in range(size)))
    columns = {name: _cells(rng) for name in names}
    table = fc.Table.of(columns)
    how = [ColumnReading(name, "x", pick(rng, WORDS)) for name in table.names]
    path = folder / "written.toml"
    path.write_bytes(schema_text(table.schema, how).encode())
    try:
        again = fc.Table.of(columns, **read_schema(path).options(columns)).schema.to_json()
    except FedcircuitsError as error:
        again = str(error)
    require(again == table.schema.to_json(), f"{table.schema.to_json()} is read as {again}")


def _cells(rng: Draw) -> list[Any]:
    match int(rng.integers(4)):
        case 0:
            values: list[Any] = rng.normal(size=30).tolist()
        case 1:
            values = rng.integers(40, size=30).tolist()
        case 2:
            values = (rng.random(30) < 0.5).tolist()
        case _:
            words = [pick(rng, WORDS) for _ in range(3)]
            values = [pick(rng, words) for _ in range(30)]
    return values
