"""Kits of a consortium that meets at NVFlare: NVFlare's own, narrowed."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedcircuits.engines.nvflare.programs import JobKeeper, NvflareClient
from fedcircuits.engines.sites.files import ConsortiumFile, Kit
from fedcircuits.engines.sites.provision import provision, revoke
from fedcircuits.errors import FederationError

CONSORTIUM = ConsortiumFile("big-clinics", "tls://127.0.0.1:8002", ("north", "south"), "nvflare")


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("nvflare", reason="needs the extra nvflare")
    folder = tmp_path_factory.mktemp("kits")
    provision(CONSORTIUM, folder)
    return folder


def local(kit: Path, name: str) -> dict[str, object]:
    found = json.loads((kit / "local" / f"{name}.json").read_text())
    assert isinstance(found, dict)
    return found


def test_members_have_nvflares_kit_beside_their_own_files(kits: Path) -> None:
    for name in ("coordinator", "north", "south"):
        assert Kit(kits / name).name == name
        client = kits / name / "nvflare" / "startup"
        assert json.loads((client / "fed_client.json").read_text())["client"]["fqsn"] == name
        for private in (kits / name / "identity", client / "client.key"):
            assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert stat.S_IMODE((kits / name).stat().st_mode) == 0o700
    assert (kits / "coordinator" / "lead" / "startup" / "fed_admin.json").is_file()
    assert (kits / "north" / "site.toml").is_file()
    assert 'engine = "nvflare"' in (kits / "north" / "consortium.toml").read_text()


def test_a_member_that_is_renewed_has_new_keys_and_the_others_theirs(tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="needs the extra nvflare")
    provision(CONSORTIUM, tmp_path)

    def keys() -> dict[str, bytes]:
        paths = [*tmp_path.glob("*/*/startup/*.key"), *tmp_path.glob("*/identity")]
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}

    before = keys()
    (tmp_path / "north" / "nvflare" / "local" / "notes").write_text("the owner's")
    assert provision(CONSORTIUM, tmp_path, ["north"]) == [tmp_path / "north" / "nvflare"]
    after = keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"north/nvflare/startup/client.key", "north/identity"}
    assert before.keys() == after.keys()
    assert (tmp_path / "north" / "nvflare" / "local" / "notes").exists()
    signed = tmp_path / "north" / "nvflare" / "startup"
    check = ["openssl", "verify", "-CAfile", str(signed / "rootCA.pem"), str(signed / "client.crt")]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    refused_until_renewed(tmp_path)


def refused_until_renewed(kits: Path) -> None:
    """A former member stands in the file by which NVFlare's server refuses clients."""
    from nvflare.private.fed.server.client_manager import ClientManager

    def refused() -> list[str]:
        server = ClientManager("big-clinics")
        server.set_disabled_clients_file(str(kits / "server" / "disabled_clients.json"))
        return [n for n in ("coordinator", "north", "south") if server.is_client_disabled(n)]

    assert refused() == []
    assert revoke(CONSORTIUM, kits, ["south"]).sites == ("north",) and refused() == ["south"]
    provision(CONSORTIUM, kits)
    assert refused() == ["south"]
    provision(CONSORTIUM, kits, ["south"])
    assert refused() == []


def test_jobs_may_carry_packets_and_nothing_else(kits: Path) -> None:
    for kit in (kits / "server", kits / "coordinator" / "nvflare", kits / "north" / "nvflare"):
        resources = local(kit, "resources")
        assert resources["class_allow_list"] == ["fedcircuits.engines.nvflare.job."]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert "log" not in json.dumps(resources["components"])  # streamers and receivers of logs
        rights = local(kit, "authorization")["permissions"]
        assert isinstance(rights, dict) and list(rights) == ["project_admin"]
        assert (
            rights["project_admin"]["byoc"] == rights["project_admin"]["shell_commands"] == "none"
        )
    assert local(kits / "north" / "nvflare", "resources")["allow_log_streaming"] is False
    assert str(kits / "server" / "jobs") in json.dumps(local(kits / "server", "resources"))


def test_a_site_that_comes_later_gets_a_kit_and_the_others_keep_theirs(kits: Path) -> None:
    before = (kits / "north" / "nvflare" / "startup" / "client.crt").read_bytes()
    grown = ConsortiumFile("big-clinics", CONSORTIUM.server, ("north", "south", "west"), "nvflare")
    assert provision(grown, kits) == [kits / "west" / "nvflare"]
    assert provision(grown, kits) == []
    assert (kits / "north" / "nvflare" / "startup" / "client.crt").read_bytes() == before
    roots = {
        (kits / n / "nvflare" / "startup" / "rootCA.pem").read_bytes() for n in ("north", "west")
    }
    assert len(roots) == 1
    assert Kit(kits / "north").consortium.known.keys() == {"coordinator", *grown.sites}


def test_folders_that_are_no_kits_are_named(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="not a startup kit of an NVFlare client"):
        NvflareClient(tmp_path)
    with pytest.raises(FederationError, match="not a kit of an NVFlare administrator"):
        JobKeeper(tmp_path, ())


def test_without_nvflare_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "consortium.toml").write_text(
        'name = "c"\nserver = "tls://127.0.0.1:8002"\nsites = ["north"]\nengine = "nvflare"\n'
    )
    script = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'nvflare' else find(name, *a)\n"
        "from fedcircuits.app.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "provision", "consortium.toml", "-o", "kits"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "install fedcircuits[nvflare]" in " ".join(done.stderr.split())
    assert not (tmp_path / "kits").exists()
