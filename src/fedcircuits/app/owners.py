"""Commands of data owners and founders of a consortium: ``consortium``, ``provision``, ``site``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcircuits.app.ending import clear
from fedcircuits.app.options import AsJson, DataFile, KitFolder

consortium_app = typer.Typer(help="Set up a federation between owners.")
site_app = typer.Typer(help="Run one owner's site in a federation between owners.")


@consortium_app.command("init")
def consortium_init(
    path: Annotated[Path, typer.Argument(metavar="FILE")] = Path("consortium.toml"),
) -> None:
    """Write a commented consortium.toml for you to fill in."""
    with clear():
        from fedcircuits.app import sites

        sites.init(path)


def provision(
    consortium: Annotated[Path, typer.Argument(metavar="CONSORTIUM.toml")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for the kits.")
    ] = Path("kits"),
    renew: Annotated[
        list[str] | None,
        typer.Option(help="Give a member new keys and revoke its old ones; may be repeated."),
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(help="Remove a site and revoke its certificate; may be repeated."),
    ] = None,
    request: Annotated[
        list[Path] | None,
        typer.Option(help="The request of a member that created its own keys (site request)."),
    ] = None,
) -> None:
    """Create keys, certificates and a kit for every member of a consortium.

    Members whose requests you pass have created their own keys, and keep them.

    Existing kits are not changed. A site that is revoked, or removed from the file, is refused from
    then on: send the new consortium.toml to the others, and restart the server.

    `fedcircuits provision consortium.toml -o kits`

    `fedcircuits provision consortium.toml --revoke north`
    """
    with clear():
        from fedcircuits.app import sites
        from fedcircuits.errors import FederationError

        if revoke:
            if renew or request:
                raise FederationError(
                    "--revoke cannot be combined with other changes: renew or "
                    "admit members afterwards"
                )
            sites.revoke(consortium, output, revoke)
            return
        asked = sites.asked_by(request or ())
        if asked and sys.stdin.isatty():
            typer.confirm("Does the member see the same fingerprint?", abort=True)
        sites.provision(consortium, output, renew or (), asked)


@site_app.command("request")
def site_request(
    name: Annotated[str, typer.Argument(help="The member's name in the consortium.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output folder for its kit.")],
) -> None:
    """Create a member's private keys on its own machine, and a request for the lead to sign.

    The lead then runs  fedcircuits provision consortium.toml --request request.toml
    """
    with clear():
        from fedcircuits.app import sites

        sites.request(name, output)


@site_app.command("check")
def site_check(kit: KitFolder, data: DataFile = None) -> None:
    """Show what a site would reveal about its rows, and what it allows."""
    with clear():
        from fedcircuits.app import sites

        sites.check(kit, data)


@site_app.command("start")
def site_start(
    kit: KitFolder,
    data: DataFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Run a site next to its data until it is stopped."""
    with clear():
        from fedcircuits.app import sites

        if not yes and sys.stdin.isatty():
            sites.check(kit, data)
            typer.confirm("Serve this?", abort=True)
        sites.start(kit, data)


@site_app.command("status")
def site_status(kit: KitFolder, json: AsJson = False) -> None:
    """Show whether a site runs on this machine, what it stores, and what it was asked today."""
    with clear():
        from fedcircuits.app import sites

        sites.status(kit, json)


@site_app.command("answers")
def site_answers(
    kit: KitFolder,
    model: Annotated[str, typer.Argument(help="The name under which the site stores the answers.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The csv file to write.")],
) -> None:
    """Write a private model's answers about a site's own rows to a file.

    Nobody else has these answers: they were reconstructed at the site by a query such as

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
