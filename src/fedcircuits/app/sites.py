"""The commands for a consortium and its sites."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from fedcircuits.app import screen
from fedcircuits.app.report import TextTable
from fedcircuits.compiling import keep_compiled
from fedcircuits.engines.sites.credentials import ends_soon, valid_until
from fedcircuits.engines.sites.files import SITE, ConsortiumFile, Kit, read_toml
from fedcircuits.engines.sites.joining import REQUEST, JoinRequest, make_request, read_request
from fedcircuits.engines.sites.policy import ROLES, Policy
from fedcircuits.engines.sites.provision import provision as make_kits
from fedcircuits.engines.sites.provision import revoke as revoke_sites
from fedcircuits.engines.sites.run_folder import write
from fedcircuits.engines.sites.serving import ServedSite, lead_nvflare, party_of, process_of
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.federation import COORDINATOR, Party

# what goes to a member that has made its keys
RETURNED = ("ca.crt", "site.crt", "revoked.crl", "consortium.toml")
LISTED = re.compile(r"^sites\s*=\s*\[[^\]]*\]", re.MULTILINE)
TEMPLATE = """\
# A consortium: its members, and the server that relays their messages.

name = "consortium"
server = "tls://127.0.0.1:4222"   # the server's address, as all sites reach it
sites = ["north", "south"]        # lower case letters, digits, - and _

# [columns.weight]                # optional: agreed columns, against which sites check theirs
# kind = "real"                   # real, count, category, boolean, date
# unit = "kg"
# [columns.sex]
# kind = "category"
# categories = ["female", "male"]
# engine = "nvflare"              # if members run NVFlare (docs/nvflare.md); default: NATS
"""


def init(path: Path) -> None:
    """Write a consortium.toml to be filled in."""
    if path.exists():
        raise FederationError(f"{path} already exists and is not overwritten")
    write(path, TEMPLATE.encode())
    screen.say(f"wrote {path}: edit it, then run  fedcircuits provision {path}")


def request(name: str, output: Path) -> None:
    """Create a member's keys locally, and a request to the lead."""
    asked = make_request(output, name)
    screen.say(f"created the keys of {name} in {output}; they stay there")
    screen.say(
        f"send {output / REQUEST} to the lead of the consortium, who must see the fingerprint"
    )
    screen.say(f"  {asked.fingerprint}")
    screen.say(f"copy what comes back ({', '.join(RETURNED)}) into {output}")


def asked_by(paths: Sequence[Path]) -> list[JoinRequest]:
    """Requests of members, shown for the lead to compare before approving them."""
    asked = [read_request(path) for path in paths]
    for analyst in asked:
        screen.say(f"{analyst.name} asks with the fingerprint  {analyst.fingerprint}")
    return asked


def provision(
    path: Path, output: Path, renew: Sequence[str] = (), requests: Sequence[JoinRequest] = ()
) -> None:
    """Create the kits of a consortium; existing ones are kept unless they are renewed."""
    consortium = read_toml(path, ConsortiumFile)
    made = make_kits(consortium, output, renew, requests)
    screen.say(f"made {', '.join(str(kit) for kit in made) or 'nothing new'}")
    nvflare = consortium.engine == "nvflare"
    start = "startup/start.sh" if nvflare else "nats.conf"
    command = "bash" if nvflare else "nats-server -c"
    screen.say(f"the server:  {command} {output / 'server' / start}")
    for site in consortium.sites:
        kit = output / site
        if (kit / REQUEST).exists():
            screen.say(f"{site}:  has its keys; send it {', '.join(RETURNED)} of {kit}")
            continue
        screen.say(f"{site}:  edit {kit / SITE}, then  fedcircuits site start {kit}")


def revoke(path: Path, output: Path, names: Sequence[str]) -> None:
    """Remove sites from a consortium and its file, and revoke their certificates."""
    consortium = read_toml(path, ConsortiumFile)
    if not output.is_dir():
        raise FederationError(f"{output}: there are no kits here: give their folder with --output")
    text = path.read_text(encoding="utf-8")
    smaller = revoke_sites(consortium, output, names)
    listed = ", ".join(f'"{site}"' for site in smaller.sites)
    write(path, LISTED.sub(f"sites = [{listed}]", text, count=1).encode())
    if read_toml(path, ConsortiumFile).sites != smaller.sites:
        write(path, text.encode())
        raise FederationError(f"{path}: remove {', '.join(names)} from sites by hand")
    screen.say(f"{', '.join(names)}: removed from {path}, and refused from now on")
    new = "consortium.toml" + (" and revoked.crl" if consortium.engine == "sites" else "")
    screen.say(f"restart the server, and send the new {new} to the others:")
    for member in smaller.members:
        screen.say(f"  {output / member}")


def opened(folder: Path, data: Path | None) -> tuple[Kit, Party, Policy, str]:
    """A site's kit with its rows; ``data`` replaces the file named in site.toml."""
    kit = Kit(folder)
    site = kit.site_file()
    if data is not None:
        site = site.with_path(data.resolve())
    return kit, party_of(kit, site), site.policy, site.store


def check(folder: Path, data: Path | None) -> None:
    """Show what this site would reveal to others, and what it allows."""
    kit, party, policy, _ = opened(folder, data)
    kit.check()
    screen.say(f"{kit.name} of {kit.consortium.name}: {len(party.table):,} rows")
    rows = [[v.name, v.described()] for v in party.table.schema]
    screen.show(TextTable(("column", "what others learn about it"), rows, texts=2))
    roles = [[name, role.kind, role.tells] for name, role in ROLES.items() if policy.plays(name)]
    screen.show(TextTable(("role", "to", "what leaves the site"), roles, texts=3))
    lines = [[line, str(getattr(policy, line))] for line in Policy.__dataclass_fields__]
    screen.show(TextTable(("policy", "this site"), lines, texts=2))


def start(folder: Path, data: Path | None) -> None:
    """Serve until stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # what was started is ended on the way
    if (leading := Kit(folder)).name == COORDINATOR and leading.consortium.engine == "nvflare":
        screen.say(f"keeping NVFlare's job of {leading.consortium.name} running")
        lead_nvflare(leading)
        return
    keep_compiled(_store_of(leading) / "compiled")
    import_module("fedcircuits.circuits.questions.distribution")  # the first training waits less
    kit, party, policy, store = opened(folder, data)
    certificate = kit.folder / "site.crt"
    if certificate.is_file() and (soon := ends_soon(certificate)):
        screen.warn(soon)
    served = ServedSite(kit, policy, party, store)
    served.connect()
    screen.say(f"{kit.name} serves {len(party.table):,} rows to {kit.consortium.name}")
    served.serve()


def stop(folder: Path) -> None:
    kit = Kit(folder)
    if (process := process_of(_store_of(kit))) is None:
        raise FederationError(f"{kit.name} is not running here")
    try:
        os.kill(process, signal.SIGTERM)
    except PermissionError:
        raise FederationError(
            f"{kit.name} runs as another user (process {process}), and only that user may stop it"
        ) from None
    screen.say(f"{kit.name} stops")


def status(folder: Path, as_json: bool = False) -> None:
    """Show whether the site runs, what it keeps, and what it was asked."""
    kit = Kit(folder)
    store = Store(_store_of(kit))
    process = process_of(store.folder)
    runs = sorted(path.name for path in (store.folder / "runs").glob("*"))
    certificates = [kit.folder / name for name in ("site.crt", "nvflare/startup/client.crt")]
    certificates = [path for path in certificates if path.is_file()]
    events = Counter(line["event"] for line in store.audited())
    lines = [
        ["runs", "no" if process is None else f"yes, process {process}"],
        *[["certificate", f"until {valid_until(path):%Y-%m-%d}"] for path in certificates],
        ["models", ", ".join(store.models()) or "none"],
        ["runs that have not ended", ", ".join(runs) or "none"],
        ["questions today", _questions(store)],
        ["audit", ", ".join(f"{count:,} {event}" for event, count in sorted(events.items()))],
    ]
    if as_json:
        screen.data({"site": kit.name, **dict(lines)})
    else:
        screen.show(TextTable((kit.name, ""), lines, texts=2))


def _questions(store: Store) -> str:
    store.begin_counting()
    try:
        return f"{store.questions():,}"
    except SiteError as error:
        return str(error)


def answers(folder: Path, model: str, output: Path) -> None:
    """Write a private model's answers about this site's rows, which only the site holds."""
    kit, party, *_ = opened(folder, None)
    kept = Store(_store_of(kit)).model(model, kit.name)
    if not isinstance(kept, np.ndarray) or kept.shape != (len(party.table),):
        raise FederationError(
            f"{model!r} holds no answers about the {len(party.table):,} rows of {kit.name}: "
            f"fedcircuits site status {folder} lists what it keeps"
        )
    ids = party.table.row_ids
    column = {} if ids is None else {"row": ids}
    frame = pd.DataFrame({**column, "log_likelihood": kept})
    write(output, frame.to_csv(index=False).encode())
    screen.say(f"wrote {output}: {len(kept):,} answers, mean {kept.mean():.3f} nats")


def _store_of(kit: Kit) -> Path:
    return kit.folder / ("store" if kit.name == COORDINATOR else kit.site_file().store)
