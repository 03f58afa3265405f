"""Roles that sites play: what each of them is for, and what it tells others of a site's rows.

A recipe names a function of the methods. Functions that are not listed here are parts of a role,
and no site runs them alone, whatever its policy says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

METHODS = "fedcircuits.methods."


@dataclass(frozen=True, slots=True)
class SiteRole:
    """``needs`` is the line of a policy that must allow it, ``counts_rows`` whether an answer can
    be refused that few rows are behind."""

    kind: Literal["learn", "ask", "collect"]
    tells: str
    needs: str = ""
    counts_rows: bool = False


COLUMNS = "names, kinds and categories of columns, number of rows"
ROLES = {
    "fedpc.training:client": SiteRole(
        "learn", f"{COLUMNS}; tokens of rows; rows of every cluster and of those that meet"
    ),
    "fedpc.query:respond": SiteRole(
        "ask", "how likely each of its leaves finds the evidence", counts_rows=True
    ),
    "fedpc.root_answers:respond": SiteRole(
        "ask", "its part of a likelihood, on shares", counts_rows=True
    ),
    "trees.training:client": SiteRole(
        "learn", f"{COLUMNS}; tokens of rows; class counts; what its trees say of rows"
    ),
    "trees.ensemble:respond": SiteRole("ask", "votes of its trees on rows asked about"),
    "chow_liu.training:member": SiteRole(
        "learn", f"{COLUMNS}; counts of pairs of values, added up over all sites"
    ),
    "vertical.training:member": SiteRole(
        "learn", f"{COLUMNS}; tokens of rows; terms of components, added up over all sites"
    ),
    "vertical.kmeans:member": SiteRole(
        "learn", f"{COLUMNS}; tokens of rows; distances to centres, added up over all sites"
    ),
    "vertical.answers:member": SiteRole("ask", "terms of components for rows asked about"),
    "vertical.answers:answerer": SiteRole("ask", "terms of components for rows asked about"),
    "private_forest.training:client": SiteRole(
        "learn", f"{COLUMNS} (of all together); shares of parameters, which nobody can read"
    ),
    "private_forest.masks:prepare": SiteRole("ask", "shares of random numbers"),
    "private_forest.query:respond": SiteRole("ask", "shares of a likelihood that the asker opens"),
    "private_forest.query:ask": SiteRole("ask", "shares of its rows, which nobody can read"),
    "private_forest.parameters:opening": SiteRole(
        "collect", "its shares of all parameters, which the coordinator then knows", "collect"
    ),
    "fusion.training:owner": SiteRole(
        "learn", f"{COLUMNS}; tokens of rows; representations of rows, masked or added up if asked"
    ),
    "fusion.query:respond": SiteRole(
        "ask", "representations of rows asked about and their order; the target's values if asked"
    ),
    "meeting.collecting:hand_over": SiteRole(
        "collect", "everything that it has learned of a model", "collect"
    ),
    "meeting.alignment:member": SiteRole(
        "learn", "tokens of rows; or number of rows and which it shares, by private intersection"
    ),
}


def name_of(function: Callable[..., object]) -> str:
    """As policies and audits name it: ``fedpc.training:client``."""
    home, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return f"{home}:{name}".removeprefix(METHODS)
