"""Kits whose private keys are made where they are used, and kits that cannot be used."""

from __future__ import annotations

import base64
import datetime
import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedcircuits.engines.sites.credentials import check_dates, ends_soon
from fedcircuits.engines.sites.files import ConsortiumFile, Kit
from fedcircuits.engines.sites.joining import REQUEST, JoinRequest, make_request, read_request
from fedcircuits.engines.sites.nats import Access, NatsLink
from fedcircuits.engines.sites.provision import Authority, provision
from fedcircuits.errors import FederationError
from fedcircuits.privacy.identity import Identity
from tests.engines.sites.relays import free_port, needs_server, served

RETURNED = ("ca.crt", "site.crt", "revoked.crl", "consortium.toml")


def consortium(port: int = 4222) -> ConsortiumFile:
    return ConsortiumFile("clinics", f"tls://127.0.0.1:{port}", ("north", "south"))


def joined(folder: Path, port: int = 4222) -> Path:
    """The kit of north, which has asked for it, beside the kits of the lead."""
    asked = make_request(folder / "north", "north")
    sent = read_request(folder / "north" / REQUEST)
    assert sent == asked and sent.fingerprint == asked.fingerprint
    provision(consortium(port), folder / "kits", requests=[sent])
    for name in RETURNED:
        shutil.copy(folder / "kits" / "north" / name, folder / "north" / name)
    return folder / "north"


def test_the_lead_never_has_a_private_key_of_who_asks(tmp_path: Path) -> None:
    kit = joined(tmp_path)
    lead = tmp_path / "kits"
    assert sorted(p.name for p in (lead / "north").iterdir()) == sorted((*RETURNED, REQUEST))
    private = [(kit / name).read_bytes() for name in ("site.key", "identity")]
    assert not [p for p in lead.rglob("*") if p.is_file() and p.read_bytes() in private]
    for name in ("site.key", "identity"):
        assert (kit / name).stat().st_mode & 0o777 == 0o600
        assert (kit / name).read_text().strip() not in (kit / REQUEST).read_text()
    assert Kit(kit).name == "north"
    assert Kit(lead / "south").consortium.known["north"] == Kit(kit).identity.public
    assert (lead / "south" / "site.key").exists()  # who has not asked gets a whole kit
    assert provision(consortium(), lead) == []


@needs_server
def test_who_has_asked_is_let_in_until_its_certificate_is_renewed(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    port = free_port()
    kit, lead = joined(tmp_path, port), tmp_path / "kits"

    def let_in() -> bool:
        link = NatsLink("north", Kit(kit).access, lambda *packet: None)
        try:
            link.connect(8)
        except FederationError as error:
            assert "Authorization Violation" in str(error)
            return False
        link.close()
        return True

    with served(lead):
        assert let_in()
    assert provision(consortium(port), lead, ["north"]) == [lead / "north"]
    with served(lead):
        assert not let_in()
        shutil.copy(lead / "north" / "site.crt", kit / "site.crt")  # of the same key
        assert let_in()


def test_a_member_that_is_there_is_replaced_only_if_the_lead_says_so(tmp_path: Path) -> None:
    lead = tmp_path / "kits"
    provision(consortium(), lead)
    asked = make_request(tmp_path / "north", "north")
    with pytest.raises(FederationError, match=r"north already has a kit: .* add --renew north"):
        provision(consortium(), lead, requests=[asked])
    provision(consortium(), lead, ["north"], [asked])
    assert not (lead / "north" / "site.key").exists() and not (lead / "north" / "identity").exists()
    stranger = make_request(tmp_path / "east", "east")
    with pytest.raises(FederationError, match="clinics has no member 'east'"):
        provision(consortium(), lead, requests=[stranger])


def test_requests_that_are_none_are_named(tmp_path: Path) -> None:
    make_request(tmp_path / "north", "north")
    other = make_request(tmp_path / "other", "north")
    path = tmp_path / "north" / REQUEST
    text = path.read_text()
    changed = {
        "it is not signed by the identity": re.sub(
            'identity = ".*"', f'identity = "{other.identity}"', text
        ),
        "not signed by": text.replace('name = "north"', 'name = "south"'),
        "line 6, identity": re.sub('identity = ".*"', 'identity = "7"', text),
        "this is not a request of a member": re.sub('"""(.|\n)*"""', '"""\nnone\n"""', text),
        "this is no TOML": text[: len(text) // 2],
    }
    for told, spoiled in changed.items():
        path.write_text(spoiled)
        with pytest.raises(FederationError, match=rf"request\.toml.*{told}"):
            read_request(path)
    key, identity = ec.generate_private_key(ec.SECP256R1()), Identity.fresh()
    honest = JoinRequest.of("north", key, identity)
    more = msgspec.structs.replace(honest, certificate=honest.certificate + '"""\nodd = 1\n"""')
    more = msgspec.structs.replace(more, proof=identity.sign(more._said).hex())
    path.write_text(text.partition("name")[0] + f'''name = "north"
identity = "{more.identity}"
proof = "{more.proof}"
certificate = {json.dumps(more.certificate)}''')  # fmt: skip
    with pytest.raises(FederationError, match="contains more than a signing request"):
        read_request(path)
    with pytest.raises(FederationError, match="is not a valid name of a member"):
        make_request(tmp_path / "line", "north\n")
    with pytest.raises(FederationError, match=r"site\.key already exists"):
        make_request(tmp_path / "north", "north")
    with pytest.raises(FederationError, match="'North' is not a valid name of a member"):
        make_request(tmp_path / "new", "North")
    assert isinstance(other, JoinRequest) and not (tmp_path / "new").exists()


# ---------------------------------------------------------------------- kits that cannot be used


@pytest.mark.parametrize("name", ["ca.crt", "site.crt", "site.key", "identity", "consortium.toml"])
def test_a_file_that_is_missing_or_nonsense_is_named(tmp_path: Path, name: str) -> None:
    provision(consortium(), tmp_path)
    path = tmp_path / "north" / name
    path.write_bytes(b"\x00nonsense\xff")
    told = name if name != "ca.crt" else "site.crt cannot be used"
    with pytest.raises(FederationError, match=re.escape(told)):
        Kit(tmp_path / "north").check()
    path.unlink()
    with pytest.raises(FederationError, match=rf"{re.escape(name)}.*(no such file|provision)"):
        Kit(tmp_path / "north").check()


def test_keys_of_another_member_and_keys_that_all_may_read_are_refused(tmp_path: Path) -> None:
    provision(consortium(), tmp_path)
    north, key = tmp_path / "north", tmp_path / "north" / "site.key"
    Kit(north).check()
    for name in ("site.key", "identity"):
        (north / name).chmod(0o644)
        with pytest.raises(
            FederationError, match=rf"{name} may be read by other users .*chmod 600"
        ):
            Kit(north).check()
        (north / name).chmod(0o600)
    shutil.copy(tmp_path / "south" / "site.key", key)
    with pytest.raises(FederationError, match=r"site\.crt cannot be used .*its own key"):
        Kit(north).check()


def test_a_certificate_that_has_ended_or_a_clock_that_is_wrong_is_named(tmp_path: Path) -> None:
    authority, now = Authority.fresh("clinics"), datetime.datetime.now(datetime.UTC)
    authority.kit(tmp_path, "north", lifetime=datetime.timedelta(days=20))
    path, day = tmp_path / "site.crt", datetime.timedelta(days=1)
    check_dates(path)
    with pytest.raises(FederationError, match=r"expired on .* ask the lead"):
        check_dates(path, now + 21 * day)
    with pytest.raises(FederationError, match=r"is valid from .* is its clock right\?"):
        check_dates(path, now - day)
    assert "expires on" in ends_soon(path)
    authority.kit(tmp_path, "north")
    assert ends_soon(path) == ""
    authority.kit(tmp_path, "north", lifetime=datetime.timedelta(minutes=1))
    with pytest.raises(FederationError, match="expired on"):
        Access("tls://127.0.0.1:1", tmp_path / "ca.crt", path, tmp_path / "site.key").context()


@needs_server
def test_two_programs_with_copies_of_one_kit_are_told_apart(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    kits = tmp_path / "kits"
    provision(consortium(free_port()), kits)
    shutil.copytree(kits / "north", tmp_path / "copy")
    with served(kits):
        first, second = (
            NatsLink("north", Kit(kit).access, lambda *packet: None)
            for kit in (kits / "north", tmp_path / "copy")
        )
        first.connect()
        first.claim()
        second.connect()
        with pytest.raises(
            FederationError, match="north is already connected from another program"
        ):
            second.claim()
        first.close()
        third = NatsLink("north", Kit(tmp_path / "copy").access, lambda *packet: None)
        third.connect()
        third.claim()
        third.close()


CURVE = b"\x2a\x86\x48\xce\x3d\x03\x01"


@pytest.mark.parametrize(
    "change", [(CURVE + b"\x07", CURVE + b"\x7f"), (b"\x02\x01\x00", b"\x02\x01\x4c")]
)
def test_a_curve_or_version_that_nobody_knows_is_refused(
    tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    make_request(tmp_path / "north", "north")
    path = tmp_path / "north" / REQUEST
    begin, end = (f"-----{w} CERTIFICATE REQUEST-----" for w in ("BEGIN", "END"))
    head, _, rest = path.read_text().partition(f"{begin}\n")
    body, _, tail = rest.partition(end)
    der = base64.b64decode(body)
    assert change[0] in der
    other = base64.encodebytes(der.replace(*change, 1)).decode()
    path.write_text(f"{head}{begin}\n{other}{end}{tail}")
    with pytest.raises(FederationError, match="not a request of a member"):
        read_request(path)
