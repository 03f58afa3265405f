"""Commands of whoever owns data or founds a consortium: ``consortium``, ``provision``, ``site``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, DataFile, KitFolder

consortium_app = typer.Typer(help="Who takes part in a federation between owners.")
site_app = typer.Typer(help="One owner's end of a federation between owners.")


@consortium_app.command("init")
def consortium_init(
    path: Annotated[Path, typer.Argument(metavar="FILE")] = Path("consortium.toml"),
) -> None:
    """Write a consortium.toml with comments, to be filled in."""
    with clear():
        from fedcircuits.app import sites

        sites.init(path)


def provision(
    consortium: Annotated[Path, typer.Argument(metavar="CONSORTIUM.toml")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of kits.")] = Path("kits"),
    renew: Annotated[
        list[str] | None, typer.Option(help="A member that gets new keys; its old ones end.")
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(help="A site that is taken off the consortium, with its certificate."),
    ] = None,
    request: Annotated[
        list[Path] | None,
        typer.Option(help="What a member that made its own keys asks for (site request)."),
    ] = None,
) -> None:
    """Make keys, certificates and a kit for every member of a consortium.

    Members whose requests are given have made their keys themselves, and keep them.

    Kits that are there stay. A site that is revoked, or taken off the file, is refused from then
    on: hand the new consortium.toml to the others, and start the server again.

    `fedcircuits provision consortium.toml -o kits`

    `fedcircuits provision consortium.toml --revoke north`
    """
    with clear():
        from fedcircuits.app import sites
        from fedcircuits.errors import FederationError

        if revoke:
            if renew or request:
                raise FederationError("--revoke stands alone: renew or admit others after it")
            sites.revoke(consortium, output, revoke)
            return
        asked = sites.asked_by(request or ())
        if asked and sys.stdin.isatty():
            typer.confirm("Is this what they see?", abort=True)
        sites.provision(consortium, output, renew or (), asked)


@site_app.command("request")
def site_request(
    name: Annotated[str, typer.Argument(help="This member's name in the consortium.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for its kit.")],
) -> None:
    """Make a member's private keys on its own machine, and a request for the lead's signature.

    The lead runs  fedcircuits provision consortium.toml --request request.toml
    """
    with clear():
        from fedcircuits.app import sites

        sites.request(name, output)


@site_app.command("check")
def site_check(kit: KitFolder, data: DataFile = None) -> None:
    """Show what a site would tell the others of its rows, and what it allows."""
    with clear():
        from fedcircuits.app import sites

        sites.check(kit, data)


@site_app.command("start")
def site_start(
    kit: KitFolder,
    data: DataFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing before it serves.")] = False,
) -> None:
    """Serve a site's rows to its consortium, until it is stopped."""
    with clear():
        from fedcircuits.app import sites

        if not yes and sys.stdin.isatty():
            sites.check(kit, data)
            typer.confirm("Serve this?", abort=True)
        sites.start(kit, data)


@site_app.command("status")
def site_status(kit: KitFolder, json: AsJson = False) -> None:
    """Show whether a site runs on this machine, what it keeps, and what it was asked today."""
    with clear():
        from fedcircuits.app import sites

        sites.status(kit, json)


@site_app.command("answers")
def site_answers(
    kit: KitFolder,
    model: Annotated[str, typer.Argument(help="The name under which the site keeps them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The csv file to write.")],
) -> None:
    """Write what a private model has answered about a site's own rows.

    Nobody else has these answers: they were put together at the site, by a question like

      model.score_party(federation["clinic"])
    """
    with clear():
        from fedcircuits.app import sites

        sites.answers(kit, model, output)


@site_app.command("stop")
def site_stop(kit: KitFolder) -> None:
    """Stop a site that was started on this machine."""
    with clear():
        from fedcircuits.app import sites

        sites.stop(kit)
