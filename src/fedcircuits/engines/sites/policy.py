"""What a site allows, whatever others ask: checked before a role starts and before a message
leaves.

``ROLES`` lists the roles that sites play, what each of them is for, and what it reveals about the
rows of a site. A recipe names a function of the methods. Functions that are not listed are parts of
a role, and no site runs them alone, whatever its policy says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal

import msgspec

from fedcircuits.errors import SiteError
from fedcircuits.federation.federation import LEAST_COUNT, Party
from fedcircuits.federation.flow import Program, Send
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.tables.table import Table

METHODS = "fedcircuits.methods."
COLUMNS = "names, kinds and categories of columns; number of rows"
EVERY = ("*",)
ALLOWED = ("collect", "share_target", "share_clusters", "share_columns")
LIMITS = ("least_rows", "questions_per_day", "most_questions", "least_rows_behind")
DEEPEST = 50  # parts within parts of a plan
SHARED = (bool, int, float, str, type(None))  # equal ones may be one object, whoever made them


@dataclass(frozen=True, slots=True)
class SiteRole:
    """``needs`` is the line of a policy that must allow it, ``counts_rows`` whether it counts the
    rows of queries, and an answer can be refused that few rows are behind. ``own``: arguments that
    only the site itself fills in."""

    kind: Literal["learn", "ask", "collect"]
    tells: str
    needs: str = ""
    counts_rows: bool = False
    own: tuple[str, ...] = ()


ROLES = {
    "fedpc.training:client": SiteRole(
        "learn",
        f"{COLUMNS}; per row token, the cluster of the row or the bins of some columns; cluster "
        "sizes",
        own=("given",),
    ),
    "fedpc.query:respond": SiteRole(
        "ask", "the likelihood of the evidence under each of its leaves", counts_rows=True
    ),
    "fedpc.root_answers:respond": SiteRole(
        "ask", "shares of its part of a likelihood", counts_rows=True
    ),
    "trees.training:client": SiteRole(
        "learn", f"{COLUMNS}; row tokens; class counts; the output of its trees per row token"
    ),
    "trees.ensemble:respond": SiteRole("ask", "the output of its trees for the query rows"),
    "chow_liu.training:member": SiteRole(
        "learn", f"{COLUMNS}; counts of pairs of values, summed over all sites"
    ),
    "vertical.training:member": SiteRole(
        "learn",
        f"{COLUMNS}; row tokens; log-densities per row and component, summed over all sites",
    ),
    "vertical.kmeans:member": SiteRole(
        "learn", f"{COLUMNS}; row tokens; distances per row and centre, summed over all sites"
    ),
    "vertical.answers:member": SiteRole(
        "ask", "log-densities or distances per query row and component", own=("learned",)
    ),
    "vertical.answers:answerer": SiteRole(
        "ask", "log-densities or distances per query row and component", own=("learned",)
    ),
    "private_forest.training:client": SiteRole(
        "learn",
        f"{COLUMNS} (total over all sites); shares of parameters, which reveal nothing "
        "on their own",
    ),
    "private_forest.masks:prepare": SiteRole("ask", "shares of random numbers"),
    "private_forest.query:respond": SiteRole(
        "ask", "shares of a likelihood that only the querying party opens"
    ),
    "private_forest.query:ask": SiteRole(
        "ask", "shares of its rows, which reveal nothing on their own"
    ),
    "private_forest.parameters:opening": SiteRole(
        "collect",
        "its shares of all parameters; the coordinator then knows the parameters",
        "collect",
    ),
    "fusion.training:owner": SiteRole(
        "learn", f"{COLUMNS}; row tokens; a representation of each row, masked or summed on request"
    ),
    "fusion.query:respond": SiteRole(
        "ask",
        "representations and order of the query rows; values of the target on request",
        own=("view",),
    ),
    "meeting.collecting:hand_over": SiteRole(
        "collect", "all parameters that it learned for a model", "collect"
    ),
    "meeting.alignment:member": SiteRole(
        "learn",
        "row tokens; or, by private set intersection, its number of rows and which of "
        "them others hold",
    ),
}


def name_of(function: Callable[..., object]) -> str:
    """As policies and audits name it: ``fedpc.training:client``."""
    home, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return f"{home}:{name}".removeprefix(METHODS)


# ---------------------------------------------------------------------- policies


class PolicyError(SiteError):
    """Something that a site does not allow; it names the line of its policy."""

    def __init__(self, line: str, problem: str) -> None:
        super().__init__(f"{problem} (policy: {line})")


@dataclass(frozen=True, slots=True)
class Policy:
    """One site's rules.

    Parameters
    ----------
    roles : tuple of str
        Roles that it plays, as patterns of their names (``ROLES``), such as ``fedpc.*``.
    withheld : tuple of str
        Tags of messages that never leave it, as patterns.
    least_rows : int
        It takes part only with at least this many rows.
    never : tuple of str
        Columns that are never used: its party has none of them.
    collect : bool
        Whether what it has learned may leave it.
    forget : bool
        Whether it deletes a model when the coordinator asks for that.
    share_target, share_clusters : bool
        Whether classes, and groups of rows, may be sent to other parties.
    share_columns : bool
        Whether columns may move to another party that works for both (a hub).
    share_representations : bool
        Whether the coordinator may receive representations and labels of single rows, which it
        cannot identify (``FeatureFusion``, thresholds of ``FedTrees`` over different columns). It
        chooses the encoder and the label: representations may be columns, and any column may be the
        label.
    private_rows : bool
        Whether rows are matched by private set intersection only.
    hidden_sums : bool
        Whether it takes part only in sums that hide its numbers: on shares or under masks,
        ``Secret()`` and ``Masked()``.
    least_count : int
        The least number of its rows behind anything counted.
    askers : tuple of str
        Who may query what it has learned, as patterns: members, or "coordinator" for everybody
        who asks from there, whatever they call themselves.
    questions_per_day : int, optional
        How many questions it answers a day, from midnight UTC.
    most_questions : int, optional
        How many query rows it answers about one model.
    least_rows_behind : int
        It answers only if at least this many of its rows agree with the evidence; exact values of
        real numbers are ignored in that comparison.
    results : bool
        Whether results go to the caller: only for tests of an engine.
    """

    roles: tuple[str, ...] = EVERY
    withheld: tuple[str, ...] = ()
    least_rows: int = 0
    never: tuple[str, ...] = ()
    collect: bool = False
    forget: bool = True
    share_target: bool = False
    share_clusters: bool = False
    share_columns: bool = False
    share_representations: bool = False
    private_rows: bool = False
    hidden_sums: bool = False
    least_count: int = LEAST_COUNT
    askers: tuple[str, ...] = EVERY
    questions_per_day: int | None = None
    most_questions: int | None = None
    least_rows_behind: int = 0
    results: bool = False

    def __post_init__(self) -> None:
        least = {"least_count": 1}
        for line in (*LIMITS, "least_count"):
            value, from_ = getattr(self, line), least.get(line, 0)
            if value is not None and value < from_:
                raise ValueError(f"{line}: expected a number from {from_}, got {value}")
        for pattern in () if self.results else self.roles:
            if not any(_matches(name, pattern) for name in ROLES):
                raise ValueError(
                    f"roles: {pattern!r} is not a role; fedcircuits site check lists all roles"
                )

    @property
    def rooms(self) -> tuple[str, ...]:
        """Packages of the library that recipes may name in addition to the usual ones."""
        return ("testing",) if self.results else ()

    # ------------------------------------------------------------------ before a role begins

    def check_program(
        self, program: Program[Any], places: Collection[object] = (), rows: int | None = None
    ) -> SiteRole:
        """PolicyError unless the role and its plan are allowed here, else what the role is for.
        ``own``: what the site itself has filled in; ``rows``: how many it has."""
        if self.results:  # of trials
            return SiteRole("learn", "")
        role = self._role(program)
        if role.needs and not getattr(self, role.needs):
            raise self._refused(role.needs)
        if role.kind == "learn" and rows is not None and rows < self.least_rows:
            line = f"least_rows = {self.least_rows}"
            raise PolicyError(line, "this site has too few rows to take part")
        for name, value in parts("", program, places):
            if isinstance(value, Party | Table):
                raise SiteError("the request contains rows: roles use the site's own rows")
            if isinstance(value, bytes) and value:  # with which others would read what they hide
                raise SiteError("the request contains a key: roles use keys that the site draws")
            if getattr(value, "drawn", False):
                raise SiteError("the request contains masks: roles use masks that the site has")
            self._check_part(name, value)
        for name in role.own:
            value = program.arguments.get(name)
            if value is not None and not any(value is known for known in places):
                raise SiteError(f"the request contains {name!r}: a role uses what the site has")
        return role

    def _role(self, program: Program[Any]) -> SiteRole:
        name = name_of(program.function)
        inner = program.arguments.get("program")
        if name not in ROLES or isinstance(inner, Program):
            raise PolicyError("roles", f"{name} is not a role that sites play")
        if not self.plays(name):
            raise PolicyError("roles", f"this site does not play {name}")
        return ROLES[name]

    def plays(self, name: str) -> bool:
        """Whether it is among its roles, by its short or its whole name."""
        return any(_matches(name, pattern) for pattern in self.roles)

    def _check_part(self, name: str, value: object) -> None:
        if name in ALLOWED and not _off(value) and not getattr(self, name):
            raise self._refused(name)
        if self.private_rows and name in ("rows", "rule") and value == "tokens":
            problem = "this site matches rows by private set intersection only"
            raise PolicyError("private_rows = true", problem)
        if self.hidden_sums and isinstance(value, Summation) and not value.hides:
            problem = (
                f"this site takes part in no sum by {type(value).__name__}, which would show its "
                "part"
            )
            raise PolicyError("hidden_sums = true", problem)
        if name == "least" and not (isinstance(value, int) and value >= self.least_count):
            line = f"least_count = {self.least_count}"
            raise PolicyError(line, f"this site releases no count of {value!r:.40} rows")

    def _refused(self, line: str) -> PolicyError:
        return PolicyError(f"{line} = false", f"this site does not allow {line}")

    def check_question(self, role: SiteRole, asker: str, asked: int) -> None:
        """PolicyError unless this asker may query it, after this many questions today."""
        if not any(fnmatchcase(asker, pattern) for pattern in self.askers):
            raise PolicyError("askers", f"this site does not answer {asker}")
        if self.questions_per_day is not None and asked >= self.questions_per_day:
            line = f"questions_per_day = {self.questions_per_day}"
            raise PolicyError(line, "this site answers no more queries today")
        if self.least_rows_behind and not role.counts_rows:
            line = f"least_rows_behind = {self.least_rows_behind}"
            raise PolicyError(
                line, "it is unknown how many rows support the answer to such a query"
            )
        if self.most_questions is not None and not role.counts_rows:
            line = f"most_questions = {self.most_questions}"
            raise PolicyError(line, "the rows of such a query are not counted")

    # ------------------------------------------------------------------ before mail leaves

    def check_message(self, effect: Send) -> None:
        if any(fnmatchcase(effect.tag, pattern) for pattern in self.withheld):
            raise PolicyError("withheld", f"this site does not let {effect.tag!r} leave it")
        if effect.needs and not self.results and not getattr(self, effect.needs):
            raise self._refused(effect.needs)


def _off(value: object) -> bool:
    """Whether a flag of a plan is off: whatever else it may be, a role may take it for on."""
    return value is None or value is False


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(METHODS + name, pattern)


def parts(
    name: str, value: object, places: Collection[object] = (), depth: int = 0
) -> Iterator[tuple[str, object]]:
    """Everything within a value, by the name of the field, key or argument that it stands under,
    but for what is the site's ``own``."""
    if depth > DEEPEST:
        raise SiteError("the request is nested without end")
    if not isinstance(value, SHARED) and any(value is known for known in places):
        return
    yield name, value
    if not isinstance(value, Party | Table | str | bytes):
        for inner, part in _inner(name, value):
            yield from parts(inner, part, places, depth + 1)


def _inner(name: str, value: object) -> Iterator[tuple[str, object]]:
    match value:
        case Program():
            defaults = {
                n: p.default
                for n, p in signature(value.function).parameters.items()
                if p.default is not Parameter.empty
            }
            yield from {**defaults, **value.arguments}.items()
        case partial():
            yield from ((name, part) for part in value.args)
            yield from value.keywords.items()
        case Mapping():
            for key, part in value.items():
                yield str(key), part
        case list() | tuple() | set() | frozenset():
            yield from ((name, part) for part in value)
        case msgspec.Struct():
            yield from ((n, getattr(value, n)) for n in value.__struct_fields__)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        case _ if type(value).__module__.startswith("fedcircuits.") and hasattr(value, "__dict__"):
            yield from vars(value).items()
