"""Parties as actors of Ray (the extra ``ray``): one owner, one machine or a cluster of them.

Every party has a worker, a process that Ray starts somewhere in the cluster (``Needs`` says where)
and that lives from run to run, or several share one (``workers``). Messages go from worker to
worker, large ones through Ray's object store; the caller receives steps, kept work and results.

All machines of a cluster belong to one owner: Ray itself runs whatever code its members send. What
this engine sends are recipes (federation/recipes.py) and bytes, in both directions, so a program
may only contain parts of this library; learners of other packages run in memory or in processes. A
large argument, such as a table or a learned model, is placed at its worker once, under a digest of
its bytes; later runs find it there.

A worker that dies is named with the step of its party, what others and it had computed is kept, and
the next run starts another. Local, a round of messages through a hub takes about 5 ms.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Generic, TypeVar

from fedcircuits.engines.outcome import Kept, Outcome, threads_each
from fedcircuits.engines.ray import cluster
from fedcircuits.engines.ray.cluster import Needs
from fedcircuits.engines.ray.worker import ROOMS
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR, LEAST_COUNT, Federation, Party
from fedcircuits.federation.flow import Program, Tell
from fedcircuits.federation.messages import Entry, decode_plain, encode_plain
from fedcircuits.federation.recipes import pack, unpack
from fedcircuits.tables.stored import StoredTable

T = TypeVar("T")
SMALL = 1 << 14  # bytes up to which an argument travels within its recipe
GRACE = 1.0  # seconds for messages of a worker that has died to arrive
HOMES: dict[tuple[str, int], dict[str, int]] = {}  # by session and number: workers of parties


@dataclass(frozen=True, slots=True)
class RayEngine:
    """``fit(federation, engine=RayEngine(workers=4))``, or ``engine="ray"`` for one per party.

    Parameters
    ----------
    address : str, optional
        Address of a cluster, as for ``ray.init``: "auto", or "host:port" on a machine of the
        cluster. By default ``RAY_ADDRESS``, or a cluster on this machine only.
    workers : int, optional
        Processes that the parties share; by default each has its own.
    needs : Needs, or mapping from party (or "worker 1", …) to Needs
        Resources that workers use.
    threads : int, optional
        Threads per party; by default as many as in memory, so that results are equal to the last
        bit.
    timeout : float, default=3600.0
        Seconds that a party waits for a message.
    patience : float, default=120.0
        Seconds that workers may take to start.

    >>> RayEngine(workers=2, needs=Needs(cpus=1)).workers
    2
    """

    address: str | None = None
    workers: int | None = None
    needs: Needs | Mapping[str, Needs] = field(default_factory=Needs)
    threads: int | None = None
    timeout: float = 3600.0
    patience: float = 120.0

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise FederationError(f"workers is a number from 1, or None, got {self.workers!r}")

    def __call__(self, programs: Mapping[str, Program[T]], kept: Kept | None = None) -> Outcome[T]:
        """Every party's result; ``kept`` is the work of an earlier run that failed."""
        outcome: Outcome[T] = Outcome(kept=dict(kept or {}))
        outcome.begin(programs)
        ray = cluster.connect(self.address)
        homes = self._homes(programs)
        try:
            workers = cluster.workers(
                {home: self._needs(home) for home in dict.fromkeys(homes.values())}, self.patience
            )
        except PartyLostError as lost:
            named = next(p for p, home in homes.items() if home == lost.party)
            outcome.lose(named, PartyLostError(named, str(lost)))
            return outcome
        run = _ClusterRun(ray, outcome, {p: workers[home] for p, home in homes.items()})
        threads = self.threads or threads_each(len(programs))
        try:
            run.begin(programs, threads, self.timeout)
            run.serve()
        finally:
            run.end()
        done = outcome.results
        outcome.results = {name: done[name] for name in programs if name in done}
        return outcome

    def federation(
        self,
        paths: Mapping[str, str | os.PathLike[str]],
        row_id: str | None = None,
        *,
        allow_collect: bool = False,
        least_count: int = LEAST_COUNT,
    ) -> Federation:
        """A federation whose tables lie on the cluster: files that the worker of each party reads.

        Arguments are those of ``Federation``; paths are those of the machine where a party runs.
        What is fitted to it runs in this engine.
        """
        ray = cluster.connect(self.address)
        homes = self._homes(paths)
        workers = cluster.workers(
            {home: self._needs(home) for home in dict.fromkeys(homes.values())}, self.patience
        )
        asked = {
            party: workers[homes[party]].describe.remote(os.fspath(path), row_id, least_count)
            for party, path in paths.items()
        }
        parties = {}
        for party, ref in asked.items():
            table = unpack(ray.get(ref), rooms=ROOMS)
            if not isinstance(table, StoredTable):
                raise FederationError(f"party {party!r}, where its worker is: {table}")
            parties[party] = Party(party, table, allow_collect, least_count)
        return Federation.of_sites(parties, self)

    def stop(self) -> None:
        """End all workers, and the cluster if it was started here."""
        cluster.stop()

    def _needs(self, home: str) -> Needs:
        return self.needs if isinstance(self.needs, Needs) else self.needs.get(home, Needs())

    def _homes(self, parties: Iterable[str]) -> dict[str, str]:
        """The worker of each party, by name: the same in every run, so that it finds its table."""
        if self.workers is None:
            return {party: party for party in parties}
        known = HOMES.setdefault((cluster.session(), self.workers), {COORDINATOR: 0})
        for party in parties:
            known.setdefault(party, (len(known) - 1) % self.workers)
        return {party: f"worker {known[party] + 1}" for party in parties}


@dataclass(slots=True)
class _ClusterRun(Generic[T]):
    """One run, as its caller sees it."""

    ray: Any
    outcome: Outcome[T]
    actors: dict[str, Any]  # by party
    name: str = field(default_factory=lambda: token_hex(8))
    streams: dict[Any, str] = field(default_factory=dict)
    at: dict[str, str] = field(default_factory=dict)
    died: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------ beginning

    def begin(self, programs: Mapping[str, Program[T]], threads: int, timeout: float) -> None:
        """Every party has a seat, and its arguments, before any of them moves."""
        self.at = dict.fromkeys(programs, "being started")
        large, asked = {}, {}
        for party, program in programs.items():
            recipe, large[party] = self._recipe(party, program, threads, timeout)
            about = (self.name, party, recipe, list(self.actors.values()))
            asked[party] = self.actors[party].begin.remote(*about)
        placing: dict[str, list[Any]] = {}
        for party, ref in asked.items():
            lacking = self._answer(party, ref) or []
            place, data = self.actors[party].place, large.pop(party)
            placing[party] = [place.remote(self.name, party, n, data[n]) for n in lacking]
        for party, refs in placing.items():
            for ref in refs:
                self._answer(party, ref)
        for party in programs:
            if party not in self.outcome.lost:
                run = self.actors[party].run
                options = {"num_returns": "streaming", "concurrency_group": "flows"}
                self.streams[run.options(**options).remote(self.name, party)] = party
                self.at[party] = "its first step"
        for party in list(self.outcome.lost):
            self._leave(party, {})

    def _recipe(
        self, party: str, program: Program[T], threads: int, timeout: float
    ) -> tuple[bytes, dict[str, bytes]]:
        """The bytes of its program, and its large arguments."""
        kept = {step: value for (who, step), value in self.outcome.kept.items() if who == party}
        try:
            data = {name: pack(value) for name, value in program.arguments.items()}
            large = {name: content for name, content in data.items() if len(content) > SMALL}
            small = {n: value for n, value in program.arguments.items() if n not in large}
            recipe = pack((program.function, small, kept))
        except ProtocolError as error:
            raise ProtocolError(
                f"the program of {party} cannot be sent to a worker: {error}; run it with "
                "engine='process' or 'memory'"
            ) from error
        head = {
            "recipe": recipe,
            "marks": {
                n: blake2b(content, digest_size=16).hexdigest() for n, content in large.items()
            },
            "members": list(self.actors),
            "here": [p for p, a in self.actors.items() if a is self.actors[party]],
            "threads": threads,
            "timeout": timeout,
        }
        return encode_plain(head), large

    def _answer(self, party: str, ref: Any) -> Any:
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            self._dead(party, error)
            return None

    # ------------------------------------------------------------------ what workers report

    def serve(self) -> None:
        while self.streams:
            [stream], _ = self.ray.wait(list(self.streams), num_returns=1)
            party = self.streams[stream]
            try:
                reports: Any = decode_plain(self.ray.get(next(stream)))
            except (self.ray.exceptions.RayError, StopIteration) as error:
                self._dead(party, error)
                time.sleep(GRACE)
                reports = [["gone", [], {}]]
            for kind, entries, *about in reports:
                for entry in entries:
                    self.outcome.send(Entry(*entry))
                if self._last(party, kind, about):
                    del self.streams[stream]

    def _last(self, party: str, kind: str, about: list[Any]) -> bool:
        """Takes down one report; whether it was the last of its party."""
        match kind, *about:
            case "at", str(step):
                self.at[party] = step
                self.outcome.step(party, step)
                return False
            case "tell", str(phase), int(t), int(rounds), float(likelihood):
                self.outcome.tell(party, Tell(phase, t, rounds, likelihood))
                return False
            case "kept", str(name), bytes(data):
                self.outcome.kept[party, name] = unpack(data, rooms=ROOMS)
                return False
            case "result", dict(sent), bytes(data):
                self.outcome.end(party, unpack(data, rooms=ROOMS))
            case "failed", dict(sent), str(blamed), str(text), str(safe_text), list(places):
                lost = PartyLostError(blamed, text, safe_text)
                lost.add_note(f"in the worker of {party}, where these lines called each other")
                for place in places:
                    lost.add_note(f"  {place}")
                self.outcome.lose(party, lost)
            case "gone", dict(sent):
                pass
            case _:
                raise ProtocolError(f"{party} reports {kind!r}, which nobody says")
        self._leave(party, sent)
        return True

    def _dead(self, party: str, error: Exception) -> None:
        text = f"{party} died while {self.at[party]} ({type(error).__name__})"
        self.outcome.lose(party, PartyLostError(party, text))
        self.died.add(party)

    def _leave(self, party: str, sent: Mapping[str, int]) -> None:
        """Tell the others that nothing more will come after this many messages, and why."""
        lost = self.outcome.lost.get(party)
        reason = f"{party} has finished and will send nothing more"
        if lost is not None:
            reason = f"{party} is lost ({lost.safe_text})"
        for actor in set(self.actors.values()):
            actor.gone.remote(self.name, party, dict(sent), reason)

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """End everything in workers, whatever has happened; dead ones and those that still compute
        are not used again."""
        over = {a for p, a in self.actors.items() if p in self.died or p in self.streams.values()}
        heard = [a.end.remote(self.name) for a in set(self.actors.values()) - over]
        for actor in over:
            cluster.discard(actor)
        if self.died and not self.streams:
            self._complete(heard)

    def _complete(self, heard: list[Any]) -> None:
        """Messages that dead parties had not reported, as their receivers report them."""
        known = Counter(self.outcome.ledger)
        for entry in (Entry(*e) for ref in heard for e in self._entries(ref)):
            if entry.sender in self.died:
                known[entry] -= 1
                if known[entry] < 0:
                    self.outcome.ledger.add([entry])

    def _entries(self, ref: Any) -> list[list[Any]]:
        try:
            return list(self.ray.get(ref))
        except self.ray.exceptions.RayError:
            return []
