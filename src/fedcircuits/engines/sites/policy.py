"""What a site allows, whatever others ask: checked before a role begins and before mail leaves."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from fedcircuits.errors import SiteError
from fedcircuits.federation.federation import LEAST_COUNT, Party
from fedcircuits.federation.flow import Program

LEARNING = ("fedcircuits.methods.*",)
COLLECTING, PART = "fedcircuits.methods.meeting.collecting:hand_over", "collect/part"


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
        Roles that it plays, as patterns of ``module:function``.
    withheld : tuple of str
        Tags of messages that never leave it, as patterns.
    least_rows : int
        It takes part only with at least so many rows.
    never : tuple of str
        Columns that are never used: its party has none of them.
    collect : bool
        Whether what it has learned may leave it.
    forget : bool
        Whether it deletes a model when the coordinator asks for that.
    share_target, share_clusters : bool
        Whether classes, and groups of rows, are told to other parties.
    private_rows : bool
        Whether rows are matched by private set intersection only.
    least_count : int
        The least number of its rows behind anything counted.
    results : bool
        Whether results go to the caller: for trials of an engine alone.
    """

    roles: tuple[str, ...] = LEARNING
    withheld: tuple[str, ...] = ()
    least_rows: int = 0
    never: tuple[str, ...] = ()
    collect: bool = False
    forget: bool = True
    share_target: bool = False
    share_clusters: bool = False
    private_rows: bool = False
    least_count: int = LEAST_COUNT
    results: bool = False

    @property
    def rooms(self) -> tuple[str, ...]:
        """Of the library that recipes may name beside those of every site."""
        return ("testing",) if self.results else ()

    def check_program(self, program: Program[Any]) -> None:
        """PolicyError unless the role, its rows and its plan are allowed here."""
        name = f"{program.function.__module__}:{program.function.__qualname__}"
        if not any(fnmatchcase(name, pattern) for pattern in self.roles):
            raise PolicyError("roles", f"this site does not play {name}")
        if name == COLLECTING:
            self._check_collect()
        for value in program.arguments.values():
            if isinstance(value, Party) and len(value.table) < self.least_rows:
                line = f"least_rows = {self.least_rows}"
                raise PolicyError(line, "this site has too few rows to take part")
            if isinstance(value, Program):
                self.check_program(value)
            self._check_plan(value)

    def _check_plan(self, plan: object) -> None:
        for line in ("share_target", "share_clusters"):
            if getattr(plan, line, False) is True and not getattr(self, line):
                raise PolicyError(f"{line} = false", f"this site does not allow {line}")
        if self.private_rows and getattr(plan, "rows", "private") != "private":
            problem = "this site matches rows by private set intersection only"
            raise PolicyError("private_rows = true", problem)

    def _check_collect(self) -> None:
        """In trials the caller has everything already."""
        if not self.collect and not self.results:
            problem = "this site does not let what it has learned leave it"
            raise PolicyError("collect = false", problem)

    def check_message(self, tag: str) -> None:
        if tag == PART:
            self._check_collect()
        if any(fnmatchcase(tag, pattern) for pattern in self.withheld):
            raise PolicyError("withheld", f"this site does not let {tag!r} leave it")
