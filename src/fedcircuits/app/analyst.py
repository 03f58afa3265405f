"""What an analyst does with sites: train, resume, list, forget, read an audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from fedcircuits.app import screen
from fedcircuits.app.report import TextTable
from fedcircuits.engines.sites.files import SITE, Kit
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.serving import connect
from fedcircuits.engines.sites.store import AUDIT as LOG
from fedcircuits.engines.sites.store import audit_entries
from fedcircuits.errors import FederationError, FileError, PartyLostError
from fedcircuits.federation import described
from fedcircuits.federation.federation import Federation

if TYPE_CHECKING:
    from fedcircuits.app.methods import MethodOptions
    from fedcircuits.estimators.federated import FederatedEstimator

AUDIT = ("time", "event", "run", "who", "what", "bytes", "reveals")


# ---------------------------------------------------------------------- train


def train(
    place: str,
    output: Path,
    words: MethodOptions,
    name: str | None,
    resume: str | None,
    watch: Path | None = None,
) -> dict[str, object]:
    """Train at the sites of a consortium; ``resume`` names an interrupted training to continue."""
    from fedcircuits.app import methods, training  # what only training needs takes long to load

    methods.check_output(output, words.name, sites=True)
    model = words.estimator()
    with Federation.connect(place) as federation:
        run = resume or name or f"{words.name}-{token_hex(4)}"
        if resume is not None:
            model, federation = _begun(federation, resume, words)
        training.describe(federation)
        how = f"fedcircuits train {place} --resume {run} -o {output}"
        screen.say(f"training {run}; if it is interrupted, {how} resumes it\n")
        try:
            settings = {"name": run} if resume is None else {"resume": run}
            training.fit(model, federation, watch, **settings)
        except PartyLostError as error:
            raise PartyLostError(error.party, f"{error}; {how} resumes the run") from error
        model.save(output)
        training.show_ledger(model)
        screen.say(
            f"\nwrote {output}: the coordinator's part of {run}, the others are at the sites"
        )
        parts = {"model": str(output), "name": run, "sites": list(federation.names)}
        return parts | training.summary(model, None, how)


def _begun(
    federation: Federation, name: str, words: MethodOptions
) -> tuple[FederatedEstimator[object], Federation]:
    """The interrupted training of that name, and its participants."""
    from fedcircuits.estimators.federated import FederatedEstimator
    from fedcircuits.estimators.parts import recall

    if words.method or words.said or words.settings:
        raise FederationError(
            "--resume continues an interrupted run with its own options: leave other options out"
        )
    begun = recall(federation.engine, name)
    if not isinstance(begun.estimator, FederatedEstimator):
        raise FederationError(
            f"the training {name!r} has arguments of other libraries: resume it in Python, "
            f"fit(federation, resume={name!r})"
        )
    return begun.estimator, federation.select(begun.parties)


# ---------------------------------------------------------------------- what sites keep


@contextmanager
def _connected(place: Path) -> Iterator[Remote]:
    remote = connect(place)
    try:
        yield remote
    finally:
        remote.close()


def status(place: Path, timeout: float, as_json: bool) -> list[str]:
    """Show which sites are reachable; the names of those that are not."""
    with _connected(place) as remote:
        frame = described.status(remote, remote.sites, timeout)
    if as_json:
        screen.say(frame.reset_index().to_json(orient="records", force_ascii=False, indent=2))
    else:
        rows = []
        for site, there, count, kept, version in frame.itertuples():
            facts = [f"{count:,}", version, ", ".join(kept)] if there else ["", "", ""]
            rows.append([str(site), "there" if there else "away", *facts])
        screen.show(TextTable(("site", "is", "rows", "version", "models"), rows, texts=5))
    return [str(site) for site, there in frame["there"].items() if not there]


def models(place: Path, timeout: float, as_json: bool) -> None:
    """Show models by the sites that keep a part of them, and interrupted trainings."""
    with _connected(place) as remote:
        kept = described.models(remote, remote.sites, timeout)
        broken = remote.kept_here.trainings()
    if as_json:
        screen.data({"models": kept, "broken off": broken})
        return
    rows = [[name, ", ".join(sites)] for name, sites in kept.items() if name not in broken]
    rows += [[name, f"interrupted: train --resume {name} resumes it"] for name in broken]
    if rows:
        screen.show(TextTable(("model", "kept by"), rows, texts=2))
    else:
        screen.say("no models")


def forget(place: Path, model: str, timeout: float, as_json: bool = False) -> list[str]:
    """Have all sites delete a model; the names of those that have not."""
    with _connected(place) as remote:
        answers = described.forget(remote, remote.sites, model, timeout)
    if as_json:
        screen.data(answers)
    else:
        rows = [list(a) for a in answers.items()]
        screen.show(TextTable(("site", f"model {model}"), rows, texts=2))
    return [site for site, answer in answers.items() if answer not in described.GONE]


# ---------------------------------------------------------------------- audit


def audit(folder: Path, run: str | None, last: int | None, as_json: bool) -> None:
    """Show what was asked of a site, what it refused and what it sent."""
    lines = audit_lines(folder)
    chosen = [line for line in lines if run is None or run in (line.get("run"), line.get("model"))]
    chosen = chosen[-last:] if last else chosen
    if as_json:
        screen.data(chosen)
        return
    screen.show(TextTable(AUDIT, [audit_row(line) for line in chosen], texts=5))


def audit_lines(folder: Path) -> list[dict[str, object]]:
    kit = Kit(folder)
    store = kit.site_file().store if (kit.folder / SITE).is_file() else "store"
    path = kit.folder / store / LOG
    if not path.is_file():
        raise FileError(f"{path}: there is no such file; {kit.name} has not been started yet")
    return [
        {"event": "damaged", "why": f"line {number} is not a JSON object"} if line is None else line
        for number, line in enumerate(audit_entries(path), 1)
    ]


def audit_row(line: dict[str, object]) -> list[str]:
    def first(*names: str) -> str:
        return next((str(line[name]) for name in names if line.get(name) not in (None, "")), "")

    size = line.get("bytes")
    return [
        first("time"),
        first("event"),
        first("run", "model", "forget"),
        first("to", "party", "site"),
        first("tag", "role", "why", "frame"),
        f"{size:,}" if isinstance(size, int) else "",
        first("reveals"),
    ]
