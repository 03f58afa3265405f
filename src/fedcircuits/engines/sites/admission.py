"""How a site admits a recipe: open places are filled in, and its policy checks the whole.

Nothing in a recipe is trusted: the site inserts its own party, its own limits on queries, and what
it has learned with its owner's current permissions. It runs only roles that sites play (``ROLES``
in policy.py), and takes part only if every party lives at its own site.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.run_folder import RunFolder
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import SiteError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program, digest
from fedcircuits.federation.placement import View
from fedcircuits.federation.recipes import Held, Here, Once, Open, Own, UsedOnce, pack, unpack

Opened = tuple[Program[Any], MutableMapping[str, object]]
CALLER = COORDINATOR  # the site of the caller


class Admission:
    """``party`` and ``store`` are the site's own, ``members`` the sites of the consortium."""

    def __init__(
        self,
        me: str,
        policy: Policy,
        party: Party | None,
        store: Store | None,
        members: Collection[str],
    ) -> None:
        self.me, self.policy, self.party, self.store = me, policy, party, store
        self.members = frozenset(members)
        self._model = lru_cache(maxsize=32)(self._stored)
        if party is not None and store is not None:
            store.begin_counting()

    @cached_property
    def rows_mark(self) -> str:
        """A digest of the site's table."""
        if self.party is None:
            return ""
        table = self.party.table
        ids = "" if table.row_ids is None else "\n".join(map(str, table.row_ids.tolist()))
        series = [part for name in sorted(table.series) for part in (name, table.series[name])]
        return digest(pack(table.schema.variables), table.values, ids, *series)

    def _stored(self, model: str, party: str) -> object:
        assert self.store is not None
        return self.store.model(model, party)

    def forget(self) -> None:
        """What was read of models, some of which have been deleted."""
        self._model.cache_clear()

    def check_places(self, party: str, places: Mapping[str, str]) -> None:
        """Between owners a party lives at the site of its name, and one at most at the caller:
        nobody else reads what is for a member, or makes up members."""
        if self.policy.results:
            return
        at_caller = [name for name, site in places.items() if site == CALLER]
        placed = all(name == site for name, site in places.items() if site != CALLER)
        strange = any(name in self.members for name in at_caller if name != CALLER)
        if party != self.me or not placed or strange or len(at_caller) > 1:
            raise SiteError(
                "the run places parties at sites other than their own, or several at the caller"
            )

    def opened(self, party: str, folder: RunFolder | None, body: bytes) -> Opened:
        """The program and kept work; SiteError unless the site's policy allows it."""
        places: list[object] = []
        used: list[Once] = []  # rows that no recipe gets twice

        def filled_in(place: Open) -> object:
            places.append(value := fill(place))
            return value

        def fill(place: Open) -> object:
            match place:
                case Here("party", runs) if self.party is not None:
                    return self._with_rows(self.party, runs)
                case Here("collect"):
                    return self.policy.collect
                case Held(model, holder, part) if self.store is not None and holder == party:
                    return self._under_policy(model, holder, part)
                case Own(what) if folder is not None:
                    return folder.own_key(what)
                case Once(Held(model, holder), start, stop) if holder == party:
                    if folder is not None and self.store is not None and place not in used:
                        used.append(place)
                        return folder.once(self.store.hand_out, model, holder, start, stop)
            raise SiteError(f"this site has nothing for {place}")

        program, kept = unpack(body, filled_in, self.policy.rooms)
        if not isinstance(program, Program) or not isinstance(kept, dict):
            raise SiteError("the request is not a recipe of a role")
        if kept and not self.policy.results:
            raise SiteError("the request contains results: a site computes its own")
        self._check(program, places, folder)
        if folder is not None and any(isinstance(value, Party) for value in places):
            folder.check_rows(self.rows_mark)
        return program, kept if kept or folder is None else folder.kept()

    def _check(
        self, program: Program[Any], places: Collection[object], folder: RunFolder | None
    ) -> None:
        """``places``: what was filled in here. A question is counted once, when it is admitted."""
        taking = [value for value in (*places, self.party) if isinstance(value, Party)]
        rows = min((len(party.table) for party in taking), default=None)
        role = self.policy.check_program(program, places, rows)
        if role.kind == "ask" and self.store is not None and not (folder and folder.counted):
            check = partial(self.policy.check_question, role, self._asker(program))
            self.store.count_question(check, self.policy.questions_per_day is not None)
            if folder is not None:
                folder.mark_counted()

    def _asker(self, program: Program[Any]) -> str:
        """Who gets the answer: a member, whose site makes sure of it, or else the caller, which may
        call itself whatever it likes."""
        asker = program.arguments.get("asker", CALLER)
        return asker if isinstance(asker, str) and asker in self.members else CALLER

    def _with_rows(self, party: Party, runs: tuple[str, ...]) -> Party:
        """With all its rows, or with those selected by runs of these names, one after the other."""
        for run in runs:
            where = self._model(run, party.name)
            if not isinstance(where, np.ndarray) or where.dtype != np.int64 or where.ndim != 1:
                raise SiteError(f"{run!r} did not select any rows of {party.name}")
            party = replace(party, table=party.table.rows(where))
        return party

    def _under_policy(self, model: str, holder: str, part: str) -> object:
        """What is kept under that name, or a part of it, with what its owner allows today."""
        assert self.store is not None
        kept = self._model(model, holder)
        if isinstance(kept, UsedOnce):
            raise SiteError(
                "data that may be used only once are handed out by rows, not as a whole"
            )
        value = _part(kept, part)
        if isinstance(value, View) and self.party is not None and not self.policy.results:
            budget, rules = value.budget, self.policy
            budget.most, budget.least = rules.most_questions, rules.least_rows_behind
            table = self.party.table  # without the model's columns no row is behind an answer
            budget.table = table if all(n in table.schema for n in value.schema.names) else None
            budget.spend = partial(self.store.spend, model, holder)
        if is_dataclass(value) and hasattr(value, "allow_collect") and not self.policy.results:
            value = replace(value, allow_collect=self.policy.collect)  # type: ignore[type-var]
        return value


def _part(kept: object, name: str) -> object:
    """What is kept, or one of its fields; not of what says itself how it may be used."""
    if not name:
        return kept
    if getattr(kept, "whole", False):
        raise SiteError(f"what is kept is handed to roles as a whole, without {name!r} alone")
    if not is_dataclass(kept) or name not in {f.name for f in fields(kept)}:
        raise SiteError(f"what is kept has no part {name!r}")
    return getattr(kept, name)
