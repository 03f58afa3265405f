"""The files of a consortium that people write: consortium.toml, and each site's site.toml.

An error names the file, the line and the full name of the key.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from fedcircuits.engines.sites.credentials import check_private, check_there
from fedcircuits.engines.sites.nats import Access
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.identity import Identity
from fedcircuits.tables.declared import DeclaredColumn, DeclaredReading
from fedcircuits.tables.toml_files import shortened, toml_text, toml_values

SiteName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}\Z")]
PublicKey = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
CONSORTIUM, SITE = "consortium.toml", "site.toml"
OTHERS = (COORDINATOR, "server", "authority", "admin")  # folders of other kits


class ConsortiumFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part, and where their messages meet."""

    name: SiteName
    server: Annotated[str, msgspec.Meta(pattern=r"^tls://[^/\s\"]+\Z")]
    sites: Annotated[tuple[SiteName, ...], msgspec.Meta(min_length=1)]
    engine: Literal["sites", "nvflare"] = "sites"  # what carries their messages
    columns: dict[str, DeclaredColumn] = {}  # what columns mean to all of them, if that is agreed
    identities: dict[str, PublicKey] = {}  # added when kits are made

    def __post_init__(self) -> None:
        if set(OTHERS) & set(self.sites) or len(set(self.sites)) < len(self.sites):
            names = ", ".join(map(repr, OTHERS))
            raise ValueError(f"sites: they must differ, and none is called {names}")
        try:
            urlsplit(self.server).port  # noqa: B018 - whether it is one
        except ValueError as error:
            raise ValueError(f"server: {error}") from None

    @property
    def members(self) -> tuple[str, ...]:
        return (COORDINATOR, *self.sites)

    @property
    def known(self) -> dict[str, bytes]:
        """The public identities of all members."""
        return {name: bytes.fromhex(key) for name, key in self.identities.items()}


class DataFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a site's rows are, and what their columns mean to the consortium."""

    path: str = ""  # of a csv or parquet file
    database: str = ""  # postgresql://… or sqlite:///…, with
    query: str = ""
    row_id: str | None = None
    columns: dict[str, str] = {}  # the consortium's name = the site's
    codes: dict[str, dict[str, str | int | float | bool]] = {}  # by column: its value = the site's
    scale: dict[str, float] = {}  # by column: what a value is multiplied by to get the unit
    reading: DeclaredReading = DeclaredReading()  # how a csv file is written, as in schema.toml

    def __post_init__(self) -> None:
        if self.path and self.database:
            raise ValueError("path: expected the path of a file or a database, not both")
        if self.database and not self.query:
            raise ValueError("database: expected a query as well, which selects what is read")


class SiteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site's operator decides."""

    data: DataFile
    policy: Policy = Policy()
    store: str = "store"

    def with_path(self, path: Path) -> SiteFile:
        """The same with the rows of another file."""
        data = msgspec.structs.replace(self.data, path=str(path), database="", query="")
        return msgspec.structs.replace(self, data=data)


F = TypeVar("F")


def read_toml(path: Path, kind: type[F]) -> F:
    """The file, or FederationError that names file, line and key."""
    try:
        text = toml_text(path)
        values = toml_values(text)
    except OSError as error:
        raise FederationError(f"{path}: cannot be read ({error})") from None
    except ValueError as error:
        raise FederationError(f"{path}: {error}") from None
    try:
        made = msgspec.convert(values, kind)
        _check_known(values, made)
        return made
    except (msgspec.ValidationError, ValueError, OverflowError, SystemError) as error:
        problem = shortened(error)
        place = place_of(problem, values, lambda some: msgspec.convert(some, kind))
        line, name = line_of(text, place), ".".join(place)
        what = re.sub(r" - at `.*", "", problem)
        what = what.removeprefix(f"{place[-1]}: ") if place else what
        raise FederationError(
            f"{path}{f', line {line}' if line else ''}{f', {name}' if name else ''}: {what}"
        ) from None


def _check_known(values: Mapping[str, object], made: object) -> None:
    """Misspelt keys are errors; they must not be ignored."""
    for name, value in values.items():
        part = getattr(made, name)
        if not dataclasses.is_dataclass(part) or not isinstance(value, Mapping):
            continue
        known = {field.name for field in dataclasses.fields(part)}
        if odd := [key for key in value if key not in known]:
            raise msgspec.ValidationError(
                f"Object contains unknown field `{odd[0]}` - at `$.{name}`"
            )


# ---------------------------------------------------------------------- kits


def coordinators_kit(path: Path) -> Kit:
    """The coordinator's kit, from its folder, from the consortium.toml in it, or from the one that
    kits were made from, if they are beside it in ``kits``."""
    folder = path
    if path.is_file():
        consortium, folder = read_toml(path, ConsortiumFile), path.parent
        beside = folder / "kits" / COORDINATOR
        if not consortium.identities and beside.is_dir():
            folder = beside
    elif not path.is_dir():
        raise FederationError(
            f"{path}: there is no such file or folder; expected the coordinator's kit, or its "
            f"{CONSORTIUM}"
        )
    kit = Kit(folder)
    if kit.name != COORDINATOR:
        raise FederationError(
            f"{folder} is the kit of {kit.name}: training and querying need the coordinator's kit"
        )
    return kit


def read_identity(path: Path) -> Identity:
    check_there(path)
    try:
        check_private(path)
        return Identity(bytes.fromhex(path.read_text().strip()))
    except (OSError, ValueError) as error:
        if isinstance(error, FederationError):
            raise
        raise FederationError(f"{path}: it cannot be read as an identity: {error}") from None


class Kit:
    """A folder with a member's keys, certificate and consortium.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        if not (self.folder / CONSORTIUM).is_file():
            raise FederationError(
                f"{folder} is not a kit: it has no {CONSORTIUM}; create one with fedcircuits "
                "provision"
            )
        self.consortium = read_toml(self.folder / CONSORTIUM, ConsortiumFile)
        self.identity = read_identity(self.folder / "identity")
        public = self.identity.public
        names = [name for name, key in self.consortium.known.items() if key == public]
        if not names:
            raise FederationError(
                f"{folder}: no member in {CONSORTIUM} has the identity of this kit: was the "
                "consortium provisioned again?"
            )
        self.name = names[0]

    @property
    def access(self) -> Access:
        files = (self.folder / name for name in ("ca.crt", "site.crt", "site.key"))
        return Access(self.consortium.server, *files)

    def site_file(self) -> SiteFile:
        return read_toml(self.folder / SITE, SiteFile)

    def check(self) -> None:
        """FederationError unless the server can be asked in: files are there and of today."""
        if self.consortium.engine == "sites":
            self.access.context()


SITE_TEXT = """\
# The settings of this site. Nothing in this file is ever sent.

[data]
path = "data.csv"            # a csv or parquet file; or use a database instead:
# database = "postgresql://reader@localhost/clinic"
# query = "SELECT patient, age, sex FROM visits"
# row_id = "patient"         # the column by which rows of different sites are matched

# [data.columns]             # consortium's name = name at this site; columns not listed are dropped
# age = "alter"
# [data.codes.sex]           # consortium's value = value at this site
# female = "w"
# male = "m"
# [data.scale]               # factor that converts values to the consortium's unit
# weight = 0.45359237
# [data.reading]             # how to read a csv file; detected where not given
# delimiter = ";"
# decimal = ","
# dates = "dmy"              # 03/04/2024 is 3 April
# ids = "loose"              # 0017 equals 17; every site must use the same setting

[policy]
# roles = ["fedpc.*"]        # roles that this site accepts; fedcircuits site check lists them
least_rows = 50              # take part only with at least this many rows
least_count = 5              # no category, bin or count that leaves stands for fewer rows
never = []                   # columns that are never used
collect = false              # may learned parameters leave this site?
forget = true                # may the coordinator delete a model here?
share_target = false         # may other sites receive the target of shared rows?
share_clusters = false       # may other sites learn which shared rows are similar?
share_columns = false        # may whole columns move to another site?
share_representations = false  # may representations and labels of single rows be sent?
private_rows = false         # match rows by private set intersection only?
hidden_sums = false          # take part in a sum only if nobody sees this site's part?
# askers = ["coordinator"]   # who may query models
# questions_per_day = 100    # queries that are answered per day
# most_questions = 10000     # query rows that are answered per model
# least_rows_behind = 10     # answer only queries that at least this many rows support
"""


# ---------------------------------------------------------------------- where an error is

KeyPath = tuple[str, ...]
TOKEN = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]$]+")  # of a place such as $.columns[...].kind
HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")
KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def place_of(
    problem: str, values: Mapping[str, object], convert: Callable[[Mapping[str, object]], object]
) -> KeyPath:
    """The key that an error of msgspec is about. It does not name keys of tables with arbitrary
    keys, so each of these is tried alone."""
    at = re.search(r"at `(\$[^`]*)`", problem)
    names: KeyPath = ()
    for token in TOKEN.findall(at[1]) if at else ():
        if token == "[...]":
            inner = _within(values, names)
            odd = (k for k in inner if _fails(convert, _only(values, (*names, k))))
            token = next(odd, "")
        if not token or token.startswith("["):
            break
        names = (*names, token)
    named = re.search(r"field `([^`]*)`", problem) or re.match(r"(\w+): ", problem)
    return (*names, named[1]) if named else names


def line_of(text: str, place: KeyPath) -> int:
    """The line of the key, or of the table it belongs to; 0 for none."""
    line, depth = 0, 0
    for number, names in _keys(text):
        if depth < len(names) and place[: len(names)] == names:
            line, depth = number, len(names)
    return line


def _keys(text: str) -> Iterator[tuple[int, KeyPath]]:
    section: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            section = _names(header[1] + " = 0")
            yield number, section
        elif key := KEY.match(line):
            yield number, section + _names(key[1] + " = 0")


def _names(assignment: str) -> KeyPath:
    try:
        inner: object = tomllib.loads(assignment)
    except tomllib.TOMLDecodeError:
        return ()
    names: KeyPath = ()
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        names = (*names, name)
    return names


def _within(values: Mapping[str, object], names: KeyPath) -> Mapping[str, object]:
    for name in names:
        inner = values.get(name)
        values = inner if isinstance(inner, Mapping) else {}
    return values


def _only(values: Mapping[str, object], names: KeyPath) -> dict[str, object]:
    """The same with one key alone in the innermost table."""
    first, *rest = names
    inner = values[first]
    if not rest:
        return {first: inner}
    assert isinstance(inner, Mapping)
    inner_only = _only(inner, tuple(rest))
    return {**values, first: inner_only if len(rest) == 1 else {**inner, **inner_only}}


def _fails(convert: Callable[[Mapping[str, object]], object], values: Mapping[str, object]) -> bool:
    try:
        convert(values)
    except (msgspec.ValidationError, ValueError):
        return True
    return False
