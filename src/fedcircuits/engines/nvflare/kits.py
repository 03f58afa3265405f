"""NVFlare's startup kits of a consortium, made by NVFlare's own tool and then narrowed.

    authority/              project.yml, and the root's key in NVFlare's state; stays with the lead
    server/                 NVFlare's kit of the server
    <member>/nvflare/       NVFlare's kit of a client, one for every site and for the coordinator
    coordinator/lead/       NVFlare's kit of the administrator who submits the standing job
    admin/                  the same for people who want to look: nvflare system status

Restrictions are in ``local/`` of every kit, in NVFlare's own files: jobs may name only the two
classes of job.py, ship no code and run no shell commands; logs are not sent; the server keeps jobs
in its kit.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedcircuits.engines.nvflare.programs import check_extra
from fedcircuits.errors import FederationError

WORKSPACE, LEAD, SERVER = "nvflare", "lead", "server"
ALLOWED = "fedcircuits.engines.nvflare.job."
RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")
REFUSED = "disabled_clients.json"  # in the server's folder, from NVFlare 2.9
SILENT = 120  # seconds after which the server takes a client for gone
LOGGING = ("site_log_streamer", "log_receiver")  # components that carry logs to the server


@dataclass(frozen=True, slots=True)
class NvflareProject:
    """Who takes part, ``members`` with the coordinator first, and the server's address."""

    name: str
    address: str
    members: Sequence[str]

    @property
    def leader(self) -> str:
        return f"lead@{self.name}.org"

    @property
    def admin(self) -> str:
        return f"admin@{self.name}.org"

    def described(self) -> dict[str, Any]:
        """NVFlare's project.yml, of which JSON is a part."""
        place = urlsplit(self.address)
        host, port = place.hostname or "localhost", place.port or 8002
        server = {
            "name": SERVER, "type": "server", "org": _organisation(self.name),
            "fed_learn_port": port, "admin_port": port, "default_host": host, "host_names": [host],
        }  # fmt: skip
        clients = [{"name": m, "type": "client", "org": _organisation(m)} for m in self.members]
        admins = [
            {
                "name": name,
                "type": "admin",
                "org": _organisation(self.name),
                "role": "project_admin",
            }
            for name in (self.leader, self.admin)
        ]
        builders = [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
            {
                "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "tcp"},
            },
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ]
        return {
            "api_version": 3,
            "name": self.name,
            "description": "fedcircuits",
            "participants": [server, *clients, *admins],
            "builders": builders,
        }


def make_nvflare_kits(
    project: NvflareProject, folder: Path, renew: Collection[str] = ()
) -> list[Path]:
    """Make kits for the server and all members that have none yet; returns what was made. Members
    to ``renew`` get new keys. NVFlare refuses clients by name: former members are refused, but the
    old certificate of a renewed member is accepted until it expires. Other members, who identify
    each other by their identities, accept nothing from it."""
    places = {SERVER: folder / SERVER, project.admin: folder / "admin"}
    places[project.leader] = folder / project.members[0] / LEAD
    places |= {member: folder / member / WORKSPACE for member in project.members}
    again = {*renew, *([project.leader] if project.members[0] in renew else [])}
    missing = {n: place for n, place in places.items() if n in again or not place.exists()}
    if not missing:
        _refuse_former(project, folder, ())
        return []
    _forget_keys(folder / "authority" / project.name / "state" / "cert.json", again)
    made = _provisioned(project, folder / "authority")
    for name, place in missing.items():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.exists():
            shutil.rmtree(place / "startup")
        shutil.copytree(made / name, place, dirs_exist_ok=True)
        for private in (place, *place.glob("startup/*.key")):
            private.chmod(0o700 if private is place else 0o600)
        if name not in (project.leader, project.admin):
            narrow(place)
    shutil.rmtree(made)  # private keys lie in one place
    _refuse_former(project, folder, missing)
    return list(missing.values())


def _refuse_former(project: NvflareProject, folder: Path, made: Collection[str]) -> None:
    """NVFlare's own file of clients that its server lets in no more, read when that is started: who
    stands there already, unless new keys were ``made``, and who was a member."""
    path = folder / SERVER / REFUSED
    old = json.loads(path.read_text())["disabled_clients"] if path.exists() else []
    former = {p.parent.name for p in folder.glob(f"*/{WORKSPACE}")} - {*project.members}
    names = sorted(({*old} - {*made}) | former)
    if names != old:
        path.write_text(json.dumps({"disabled_clients": names}, indent=2))


def _forget_keys(state: Path, names: Collection[str]) -> None:
    """Delete keys that NVFlare's tool should make again; it reuses those that it finds."""
    if names and state.exists():
        known = json.loads(state.read_text())
        state.write_text(json.dumps({n: v for n, v in known.items() if n not in names}))


def _provisioned(project: NvflareProject, authority: Path) -> Path:
    """The folder of kits that NVFlare's tool has made last."""
    check_extra()
    authority.mkdir(mode=0o700, parents=True, exist_ok=True)
    (authority / "project.yml").write_text(json.dumps(project.described(), indent=2))
    tool = (sys.executable, "-m", "nvflare.cli", "provision")
    command = [*tool, "-p", "project.yml", "-w", ".", "--force"]
    done = subprocess.run(command, cwd=authority, capture_output=True, text=True, check=False)
    kits = sorted((authority / project.name).glob("prod_*"))
    if done.returncode or not kits:
        last = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise FederationError(f"NVFlare's provisioning failed: {' '.join(last)}")
    return kits[-1]


def narrow(kit: Path) -> None:
    """Write NVFlare's own files of what this kit's owner allows."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    (local / "resources.json").write_text(
        json.dumps(_resources(resources, kit.resolve()), indent=2)
    )
    rights = dict.fromkeys(RIGHTS, "any") | {"shell_commands": "none", "byoc": "none"}
    allowed = {"format_version": "1.0", "permissions": {"project_admin": rights}}
    (local / "authorization.json").write_text(json.dumps(allowed, indent=2))


def _resources(given: Mapping[str, Any], kit: Path) -> dict[str, Any]:
    made = dict(given) | {"class_list_enforcement_mode": "enforce", "class_allow_list": [ALLOWED]}
    made["components"] = [c for c in given["components"] if c["id"] not in LOGGING]
    if "servers" not in given:
        return made | {"allow_log_streaming": False}
    made["servers"] = [dict(s) | {"heart_beat_timeout": SILENT} for s in given["servers"]]
    made["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit / "snapshots")
    for component in made["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit / "jobs")
        if component["id"] == "job_scheduler":
            component["args"]["min_schedule_interval"] = 1.0
    return made


def _organisation(name: str) -> str:
    return name.replace("-", "_")
