"""What a caller asks of sites beside runs: who is there, what they keep, to forget it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.described import Whereabouts

FORGOTTEN, NOTHING = GONE = ("forgotten", "keeps no such model")  # when asked to forget


class KeptHere(Protocol):
    """What the caller itself keeps."""

    def forget(self, model: str) -> bool: ...


class Connection(Protocol):
    """An engine whose parties are sites."""

    @property
    def where(self) -> Whereabouts | None: ...

    @property
    def kept_here(self) -> KeptHere: ...

    def describe_there(
        self, sites: Sequence[str], timeout: float
    ) -> Mapping[str, Mapping[str, Any] | PartyLostError]: ...

    def forget_there(
        self, sites: Sequence[str], model: str, timeout: float
    ) -> Mapping[str, tuple[bool, str]]: ...

    def close(self) -> None: ...


def connection_of(engine: object) -> Connection:
    """FederationError unless parties are sites."""
    if getattr(engine, "where", None) is None:
        raise FederationError(
            "this federation lives in this process: Federation.connect(…) is one of sites"
        )
    return engine  # type: ignore[return-value]


def status(connection: Connection, sites: Sequence[str], timeout: float) -> pd.DataFrame:
    """One line per site; of one that is away nothing else is known."""
    lines = {}
    for site, facts in connection.describe_there(sites, timeout).items():
        if isinstance(facts, PartyLostError):
            lines[site] = [False, None, None, None]
            continue
        lines[site] = [True, facts.get("rows"), facts.get("models", []), facts.get("version")]
    columns = ["there", "rows", "models", "version"]
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return frame.astype({"rows": "Int64"}).rename_axis("site")


def models(connection: Connection, sites: Sequence[str], timeout: float) -> dict[str, list[str]]:
    """By model the sites that keep a part of it; PartyLostError for a site that is away."""
    kept: dict[str, list[str]] = {}
    for site, facts in connection.describe_there(sites, timeout).items():
        if isinstance(facts, PartyLostError):
            raise facts
        for model in facts.get("models", []):
            kept.setdefault(str(model), []).append(site)
    return dict(sorted(kept.items()))


def forget(
    connection: Connection, sites: Sequence[str], model: str, timeout: float
) -> dict[str, str]:
    """By site what came of it. What the caller itself keeps stays if no site agrees."""
    answers = connection.forget_there(sites, model, timeout)
    if any(gone or not why for gone, why in answers.values()):
        connection.kept_here.forget(model)
    return {site: FORGOTTEN if gone else why or NOTHING for site, (gone, why) in answers.items()}
