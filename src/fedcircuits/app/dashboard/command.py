"""``fedcircuits dashboard``: what is to be shown is opened, then served until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcircuits.app.ending import clear
from fedcircuits.app.options import Consortium

if TYPE_CHECKING:
    import socket

    from fedcircuits.app.dashboard.server import Shown

LOCAL = ("127.0.0.1", "localhost", "::1")


def dashboard(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL.fc|RUN.jsonl|KIT…",
            help="A model, the events of a training run (train --watch), a kit or consortium.toml.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines need the token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 8350,
    consortium: Consortium = None,
) -> None:
    """Query a model, watch a training run or inspect a site in the browser.

    `fedcircuits dashboard model.fc`

    `fedcircuits dashboard model.fc run.jsonl kits/north --port 9000`
    """
    with clear():
        serve(paths, host, port, consortium)


def serve(paths: Sequence[Path], host: str, port: int, consortium: Path | None) -> None:
    from importlib.util import find_spec

    from fedcircuits.app import screen
    from fedcircuits.errors import FederationError

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise FederationError("the dashboard needs an extra: pip install 'fedcircuits[dashboard]'")
    import secrets

    import uvicorn

    from fedcircuits.app.dashboard.server import application

    with shown(paths, consortium) as what:
        line = bound(host, port)
        at = line.getsockname()[1]
        token = "" if host in LOCAL else secrets.token_urlsafe(16)
        hosts = ["localhost", "127.0.0.1", "[::1]"] if host in LOCAL else ["*"]
        site = f"[{host}]" if ":" in host else host
        address = f"http://{site}:{at}/" + (f"?token={token}" if token else "")
        screen.say(f"dashboard at {address}\nCtrl-C ends it")
        config = uvicorn.Config(application(what, hosts, token), log_level="warning")
        uvicorn.Server(config).run(sockets=[line])


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to that address, or a one-line error."""
    import socket

    from fedcircuits.errors import FederationError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # by its protocol asyncio knows that answers must not wait for the reader's acknowledgement
    line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        line.bind((host, port))
        line.listen()
    except OSError as error:
        line.close()
        advice = "give another --port, or --port 0" if error.errno == 98 else "check --host"
        raise FederationError(
            f"cannot serve at {host}, port {port}: {error.strerror}; {advice}"
        ) from None
    return line


@contextmanager
def shown(paths: Sequence[Path], consortium: Path | None) -> Iterator[Shown]:
    """What the paths name: at most one model, one training and one kit."""
    from contextlib import ExitStack

    from fedcircuits.app.dashboard.server import Shown
    from fedcircuits.app.events import ENDING
    from fedcircuits.errors import FederationError, FileError

    models: dict[str, Path] = {}
    for path in paths:
        toml = path.suffix == ".toml" or path.is_dir()
        kind = "site" if toml else "events" if path.suffix == ENDING else "model"
        if kind in models:
            raise FederationError(
                f"two of the same kind: {models[kind]} and {path}; give one of them"
            )
        if kind != "events" and not path.exists():
            raise FileError(f"{path}: there is no such file")
        models[kind] = path
    with ExitStack() as stack:
        desk = None
        if "model" in models:
            from fedcircuits.app.dashboard.desk import Desk
            from fedcircuits.app.loading import opened

            desk = Desk(stack.enter_context(opened(models["model"], consortium)))
        site = models.get("site")
        if site is not None:
            from fedcircuits.engines.sites.files import Kit, coordinators_kit

            site = (Kit(site) if site.is_dir() else coordinators_kit(site)).folder
        yield Shown(models.get("model"), desk, models.get("events"), site)
