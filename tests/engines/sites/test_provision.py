"""Kits: who can read them, keys that are renewed, members that are taken off, mistakes in files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

from fedcircuits.app.cli import app
from fedcircuits.engines.sites.credentials import REVOKED, certificate_of, valid_until
from fedcircuits.engines.sites.files import ConsortiumFile, Kit, SiteFile, read_toml
from fedcircuits.engines.sites.nats import Access, NatsLink
from fedcircuits.engines.sites.provision import provision
from fedcircuits.engines.sites.serving import party_of
from fedcircuits.errors import FederationError
from tests.commands import RUNNER
from tests.engines.sites.relays import free_port, needs_server, served


def consortium(*sites: str, port: int = 4222) -> ConsortiumFile:
    return ConsortiumFile("clinics", f"tls://127.0.0.1:{port}", sites)


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    provision(consortium("north", "south"), tmp_path)
    keys = [*tmp_path.rglob("*.key"), *tmp_path.rglob("identity")]
    assert len(keys) == 5 + 3  # authority, server and three members; identities of members
    assert not [path for path in keys if path.stat().st_mode & 0o777 != 0o600]
    assert valid_until(tmp_path / "north" / "site.crt").year > time.gmtime().tm_year


def test_kits_that_are_there_stay_and_renewed_ones_do_not(tmp_path: Path) -> None:
    members = consortium("north", "south")
    provision(members, tmp_path)
    files = {name: (tmp_path / name / "identity").read_bytes() for name in members.members}
    assert provision(members, tmp_path) == []
    assert provision(members, tmp_path, ["north"]) == [tmp_path / "north"]
    changed = {n for n, old in files.items() if (tmp_path / n / "identity").read_bytes() != old}
    assert changed == {"north"}
    assert (
        Kit(tmp_path / "south").consortium.known["north"] == Kit(tmp_path / "north").identity.public
    )
    with pytest.raises(FederationError, match="clinics has no member 'east'"):
        provision(members, tmp_path, ["east"])


def lets_in(kit: Path) -> bool:
    """Whether the server does."""
    link = NatsLink("north", Kit(kit).access, lambda *packet: None)
    try:
        link.connect(8)
    except FederationError as error:
        assert "cannot connect" in str(error)
        return False
    link.close()
    return True


@needs_server
def test_old_keys_and_former_members_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    port, kits, old = free_port(), tmp_path / "kits", tmp_path / "old"
    provision(consortium("north", "south", port=port), kits)
    shutil.copytree(kits / "north", old)
    with served(kits):
        assert lets_in(old) and lets_in(kits / "south")
    provision(consortium("north", "south", port=port), kits, ["north"])
    with served(kits):
        assert lets_in(kits / "north")
        assert not lets_in(old)
    provision(consortium("north", port=port), kits)
    with served(kits):
        assert lets_in(kits / "north")
        assert not lets_in(kits / "south")
    assert "south" not in Kit(kits / "north").consortium.known


@needs_server
def test_a_server_whose_certificate_was_taken_back_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="needs the extra sites")
    port, kits, old = free_port(), tmp_path / "kits", tmp_path / "old"
    members = consortium("north", port=port)
    provision(members, kits)
    shutil.copytree(kits, old)
    conf = old / "server" / "nats.conf"  # of whoever has the old key
    conf.write_text(conf.read_text().replace(str(kits), str(old)))
    assert provision(members, kits, ["server"]) == [kits / "server"]
    with served(kits):
        assert lets_in(kits / "north")
    with served(old):
        assert lets_in(old / "north")  # which does not know of it
        link = NatsLink("north", Kit(kits / "north").access, lambda *packet: None)
        with pytest.raises(FederationError, match="certificate revoked"):
            link.connect(8)


def test_a_list_says_which_certificates_were_taken_back(tmp_path: Path) -> None:
    kits, former = tmp_path / "kits", tmp_path / "former"
    provision(consortium("north", "south"), kits)
    shutil.copytree(kits / "north", former)
    path = kits / "south" / REVOKED
    assert len(x509.load_pem_x509_crl(path.read_bytes())) == 0
    provision(consortium("north", "south"), kits, ["north"])
    provision(consortium("north"), kits)  # south leaves
    gone = [certificate_of(kit / "site.crt").serial_number for kit in (former, kits / "south")]
    told = (kits / "north" / REVOKED).read_bytes()
    assert sorted(e.serial_number for e in x509.load_pem_x509_crl(told)) == sorted(gone)
    provision(consortium("north"), kits)
    assert (kits / "north" / REVOKED).read_bytes() == told  # nothing new
    Kit(kits / "north").check()
    shutil.copy(kits / "north" / REVOKED, former)
    with pytest.raises(FederationError, match=r"site\.crt was revoked by the lead"):
        Access("tls://h:1", *(former / n for n in ("ca.crt", "site.crt", "site.key"))).context()
    provision(consortium("north"), tmp_path / "others")
    shutil.copy(tmp_path / "others" / "north" / REVOKED, kits / "north")
    with pytest.raises(FederationError, match="is not signed by the authority"):
        Kit(kits / "north").check()
    (kits / "north" / REVOKED).write_text("nonsense")
    with pytest.raises(FederationError, match="cannot be read as a revocation list"):
        Kit(kits / "north").check()


def test_a_site_is_revoked_by_a_command_and_comes_back_with_new_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, kits = tmp_path / "consortium.toml", tmp_path / "kits"

    def said(*words: str, code: int = 0) -> str:
        found = RUNNER.invoke(app, ["provision", "consortium.toml", *words])
        assert found.exit_code == code, found.output
        return found.stderr if code else found.stdout

    def listed() -> list[int]:
        told = {(kits / n / REVOKED).read_bytes() for n in ("server", "coordinator", "north")}
        assert len(told) == 1
        return [e.serial_number for e in x509.load_pem_x509_crl(told.pop())]

    RUNNER.invoke(app, ["consortium", "init", str(path)])
    written = path.read_text()
    assert "there are no kits here" in said("--revoke", "south", code=1)
    said()
    old = kits / "south" / "site.crt"
    serial, identity = certificate_of(old).serial_number, (kits / "south" / "identity").read_text()
    for wrong, line in (("east", "there are north, south"), ("coordinator", "are renewed")):
        assert line in said("--revoke", wrong, code=1)
    assert "--revoke cannot be combined" in said("--revoke", "south", "--renew", "north", code=1)
    assert path.read_text() == written and listed() == []
    assert "south: removed from consortium.toml" in said("--revoke", "south")
    assert listed() == [serial] and "south" not in Kit(kits / "north").consortium.known
    assert "south" not in (kits / "server" / "nats.conf").read_text()
    now = path.read_text()
    assert now == written.replace('sites = ["north", "south"]', 'sites = ["north"]')
    assert "would have no site left" in said("--revoke", "north", code=1)
    path.write_text(written)
    said()
    assert certificate_of(old).serial_number != serial and listed() == [serial]
    assert (kits / "south" / "identity").read_text() != identity
    Kit(kits / "south").check()


WELL = 'name = "a"\nserver = "tls://h:1"\nsites = ["b"]\n'
POLICY = '[data]\npath = "d.csv"\n[policy]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "a"\nserver = "x"\nsites = ["b"]\n', r"line 2, server: "),
        ('name = "a"\nserver = "tls://h:1"\nsites = ["B"]\n', r"line 3, sites: "),
        (
            'name = "a"\nserver = "tls://h:1"\nsites = ["b", "b"]\n',
            r"line 3, sites: they must differ",
        ),
        ('name = "a"\nserver = "tls://h:99999"\nsites = ["b"]\n', r"line 2, server: Port"),
        (
            f'{WELL}[columns.age]\nkind = "real"\n[columns.w]\nkind = "reel"\n',
            r"line 7, columns\.w\.kind: ",
        ),
        (
            f'{WELL}[columns.age]\nkind = "real"\n[columns.w]\nunit = "kg"\n',
            r"line 6, columns\.w\.kind: Object missing",
        ),
        (
            f'{WELL}[columns."blood group"]\nkind = "category"\ncategories = "A"\n',
            r"line 6, columns\.blood group\.categories: ",
        ),
        (f'{WELL}[identities]\nb = "xx"\n', r"line 5, identities\.b: "),
        ('name = "a"\nserver = "tls://h:1"\nsites = ["b"]\ncolour = 1\n', r"line 4, colour: "),
        ('name = "a"\nserver = \n', r"this is no TOML: .* line 2"),
        ('server = "tls://h:1"\nsites = ["b"]\n', r"name: "),
    ],
)
def test_mistakes_in_a_consortium_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(text)
    with pytest.raises(FederationError, match=rf"consortium\.toml.*{told}"):
        read_toml(path, ConsortiumFile)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[data]\npath = "d.csv"\n[policy]\nleast_rows = "many"\n',
            r"line 4, policy\.least_rows: ",
        ),
        ('[data]\npath = "d.csv"\n[policy]\ncolect = true\n', r"line 4, .*colect: "),
        ("[data]\nscale = 3\n", r"line 2, data\.scale: "),
        ("[policy]\nleast_rows = 1\n", "data: "),
        (f"{POLICY}least_rows = -5\n", r"line 4, policy\.least_rows: expected a number from 0"),
        (f"{POLICY}least_count = 0\n", r"line 4, policy\.least_count: expected a number from 1"),
        (f'{POLICY}roles = ["fedpc.trainig:*"]\n', r"line 4, policy\.roles: .* is not a role; "),
        (f"{POLICY}# least_rows = 1\nleast_rows = 2.5\n", r"line 5, policy\.least_rows: "),
        ('[data]\npath = "d"\n[data.codes.sex]\nf = [1]\n', r"line 4, data\.codes\.sex\.f: "),
        ('[data]\npath = "d"\ndatabase = "sqlite:///d"\n', r"line 2, data\.path: .*, not both"),
        ('[data]\ndatabase = "sqlite:///d"\n', r"line 2, data\.database: expected a query"),
        ("[data" + ".a" * 50_000 + "]", "at most 32 levels"),
        (f"{POLICY}least_rows = {'9' * 10_000}\n", "this is no TOML: Exceeds the limit"),
    ],
)
def test_mistakes_in_a_site_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(FederationError, match=rf"site\.toml.*{told}"):
        read_toml(path, SiteFile)


COLUMNS = """
[columns.weight]
kind = "real"
unit = "kg"

[columns."blood group"]
kind = "category"
categories = ["0", "A", "AB", "B"]
"""


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("weight,blood group\n70.5,A\n81.0,AB\n", ""),
        ("weight\n70.5\n81\n", ""),
        ("weight,blood group\n70.5,A\n81.0,C\n", "blood group"),
        ("weight,height\n70.5,1.8\n", "'height' is not a column of clinics"),
        ("weight\nheavy\nlight\n", "weight"),
    ],
)
def test_data_are_checked_against_what_the_consortium_has_declared(
    tmp_path: Path, data: str, told: str
) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text('name = "clinics"\nserver = "tls://h:1"\nsites = ["north"]\n' + COLUMNS)
    stated = read_toml(path, ConsortiumFile)
    provision(stated, tmp_path / "kits")
    kit = Kit(tmp_path / "kits" / "north")
    assert kit.consortium.columns == stated.columns  # everybody has them
    (kit.folder / "data.csv").write_text(data)
    if not told:
        schema = party_of(kit, kit.site_file()).table.schema
        assert schema["weight"].unit == "kg"
        assert "blood group" not in schema or len(schema["blood group"].categories) == 4
        return
    with pytest.raises(FederationError, match=rf"site\.toml, data: .*{told}"):
        party_of(kit, kit.site_file())


DECLARED = """\
[columns.town]
kind = "category"
[columns.diagnosis]
kind = "category"
categories = ["none", "asthma", "plague"]
"""


def test_rare_categories_are_pooled_unless_their_names_are_declared(tmp_path: Path) -> None:
    """A column that is declared without its categories has those of the site's rows."""
    path = tmp_path / "consortium.toml"
    path.write_text('name = "clinics"\nserver = "tls://h:1"\nsites = ["north"]\n' + DECLARED)
    provision(read_toml(path, ConsortiumFile), tmp_path / "kits")
    kit = Kit(tmp_path / "kits" / "north")
    rows = ["ash,none"] * 9 + ["oak,asthma"] * 6 + ["elm,plague"]
    (kit.folder / "data.csv").write_text("\n".join(["town,diagnosis", *rows]))
    schema = party_of(kit, kit.site_file()).table.schema
    assert schema["town"].categories == ("ash", "oak", "other")
    assert schema["diagnosis"].categories == ("none", "asthma", "plague")


READING = """\
[data]
path = "data.csv"
row_id = "pid"
scale = { weight = 0.5 }
[data.reading]
dates = "mdy"
decimal = ","
ids = "loose"
[policy]
least_rows = 1
least_count = 1
"""


def test_a_site_says_how_its_file_is_written(tmp_path: Path) -> None:
    provision(consortium("north"), tmp_path)
    kit = Kit(tmp_path / "north")
    (kit.folder / "site.toml").write_text(READING)
    rows = ["0017;1.234,5;03/04/2020;1,250", "AB-3;80,0;03/05/2020;2,500", "5;n/a;04/05/2020;3,125"]
    (kit.folder / "data.csv").write_text("\n".join(["pid;weight;visit;dose", *rows]))
    table = party_of(kit, kit.site_file()).table
    assert table.row_ids is not None and table.row_ids.tolist() == ["17", "ab3", "5"]
    weight, dose = (table.values[:, table.names.index(n)] for n in ("weight", "dose"))
    np.testing.assert_allclose(weight, [617.25, 40.0, np.nan])
    np.testing.assert_allclose(dose, [1.25, 2.5, 3.125])
    assert str(table.column("visit")[0]).startswith("2020-03-04")


def test_a_column_that_is_never_used_must_be_there(tmp_path: Path) -> None:
    """One that is misspelt would be used."""
    provision(consortium("north"), tmp_path)
    kit = Kit(tmp_path / "north")
    (kit.folder / "data.csv").write_text("age,income\n31,2\n47,3\n")
    path = kit.folder / "site.toml"
    path.write_text('[data]\npath = "data.csv"\n[policy]\nnever = ["incom"]\n')
    with pytest.raises(FederationError, match=r"policy\.never has 'incom', .* age, income"):
        party_of(kit, kit.site_file())
    path.write_text(path.read_text().replace("incom", "income"))
    assert party_of(kit, kit.site_file()).table.schema.names == ("age",)
