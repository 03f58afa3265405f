"""Keeps the standing job going: ``python -m fedcircuits.engines.nvflare.keeper KIT MEMBER…``.

NVFlare sends a job to the clients that are connected when it starts, and ends it everywhere when
one of its processes dies. The leader therefore checks repeatedly which members are connected and
which of them run the job. If there is no job, it is submitted as soon as all members are connected
or some have been missing for a while. If a member has been without it for a while, it is aborted
and submitted again. The programs of members survive that (link.py).

KIT is the kit of an NVFlare administrator who does nothing else, as NVFlare has one session for
each; MEMBER… are the names of its clients. The program ends with the one that has started it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

JOB = "job"  # the folder of the job's files in the kit
NAME = "fedcircuits"  # of the job and its application
LOOK = 2.0  # seconds between two looks
STUCK = 90  # seconds after which a look that does not end ends this program, which is started again
LATE = 10.0  # seconds that a member may be missing, or be without the job
SERVER_CLASS = "fedcircuits.engines.nvflare.job.StandingJob"
MEMBER_CLASS = "fedcircuits.engines.nvflare.job.PacketCarrier"


def job_files(members: Collection[str]) -> dict[str, dict[str, Any]]:
    """The job of these members: three files that name two classes of this library."""
    executor = {"tasks": ["none"], "executor": {"path": MEMBER_CLASS, "args": {}}}
    workflow = {"id": "standing", "path": SERVER_CLASS, "args": {}}
    return {
        "meta.json": {
            "name": NAME,
            "resource_spec": {},
            "min_clients": 1,
            "deploy_map": {NAME: ["server", *sorted(members)]},
        },
        f"{NAME}/config/config_fed_server.json": {
            "format_version": 2, "workflows": [workflow], "components": [],
        },
        f"{NAME}/config/config_fed_client.json": {
            "format_version": 2, "executors": [executor], "components": [],
        },
    }  # fmt: skip


def write_job(folder: Path, members: Collection[str]) -> None:
    for name, content in job_files(members).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2))


@dataclass(slots=True)
class JobWatch:
    """What to do about the job, from what is seen at one moment."""

    members: frozenset[str]  # all that there may be
    since: dict[str, float] = field(default_factory=dict)  # when a member was first seen missing

    def advise(
        self, jobs: Collection[str], there: Mapping[str, Collection[str]], now: float
    ) -> str:
        """ "submit", "renew" or "".

        jobs    that the server runs.
        there   members that answer, with the jobs that they run.
        """
        if jobs:
            without = {name for name, running in there.items() if not set(running) & set(jobs)}
            missing = self.members & without
        else:
            missing = self.members - there.keys()
        self.since = {name: self.since.get(name, now) for name in missing}
        late = any(now - since > LATE for since in self.since.values())
        if jobs:
            return "renew" if late or len(jobs) > 1 else ""
        return "submit" if there and (late or not missing) else ""


class _Keeper:
    def __init__(self, kit: Path, members: Collection[str]) -> None:
        self.kit, self.watch = kit, JobWatch(frozenset(members))
        about = json.loads((kit / "startup" / "fed_admin.json").read_text())
        self.user = str(about["admin"]["username"])
        self.session: Any = None
        self.submitted = ""  # a job that waits to be started

    def look(self) -> None:
        if self.session is None:
            from nvflare.fuel.flare_api.flare_api import new_secure_session

            self.session = new_secure_session(self.user, str(self.kit))
        info = self.session.get_system_info()
        jobs = {job.job_id for job in info.job_info if job.app_name == NAME}
        if self.submitted and not jobs and self._still_waits():
            return
        self.submitted = ""
        there = self._running() if jobs else {client.name: set() for client in info.client_info}
        match self.watch.advise(jobs, there, time.monotonic()):
            case "submit":
                self._submit(self.watch.members & there.keys())
            case "renew":
                self._abort(jobs)

    def _running(self) -> dict[str, set[str]]:
        """The jobs of every client that answers."""
        jobs_of: dict[str, set[str]] = {}
        for state in self.session.get_client_job_status() or ():
            match state:
                case {"client_name": name, "job_id": job}:
                    jobs_of.setdefault(name, set()).add(job)
                case {"client_name": name, "status": "no_jobs"}:
                    jobs_of.setdefault(name, set())
        return jobs_of

    def _still_waits(self) -> bool:
        status = str(self.session.get_job_meta(self.submitted).get("status"))
        return not status.startswith(("FINISHED", "FAILED", "ABORTED"))

    def _submit(self, members: Collection[str]) -> None:
        say(f"submits the job of {', '.join(sorted(members))}")
        self.watch.since.clear()
        write_job(self.kit / JOB, members)
        self.submitted = self.session.submit_job(str(self.kit / JOB))

    def _abort(self, jobs: Collection[str]) -> None:
        late = ", ".join(sorted(self.watch.since))
        say(f"aborts the job, as it lacks {late}" if late else "aborts jobs, as there are several")
        self.watch.since.clear()
        for job in jobs:
            self.session.abort_job(job)

    def forget_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def keep(kit: Path, members: Collection[str]) -> NoReturn:
    """Until this program is ended; one at a time for a kit."""
    with (kit / "keeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keeper = _Keeper(kit, members)
        while True:
            signal.alarm(STUCK)
            try:
                keeper.look()
            except Exception as error:  # the server is away, or just coming
                say(f"{type(error).__name__}: {error}")
                try:
                    keeper.forget_session()
                except Exception as again:
                    say(f"{type(again).__name__}: {again}")
            time.sleep(LOOK)


if __name__ == "__main__":
    about = (Path(sys.argv[1]).resolve(), sys.argv[2:])
    Thread(target=keep, args=about, daemon=True).start()
    sys.stdin.buffer.read()  # until the program that started this one ends
    os._exit(0)  # NVFlare leaves threads that would go on
