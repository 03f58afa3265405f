"""Feeds hostile inputs to whatever reads from outside, and counts what goes wrong.

    python -m benchmarks.fuzz [--inputs 100000] [--seconds 1500] [--seed 0] [--only questions]
    python -m benchmarks.fuzz --only files --number 4711     # one input again

    messages   of every method, spoiled on their way: field by field and byte by byte
    frames     of the process engine
    files      of models, also with right digests, of tables, also those that unpack to
               gigabytes, and of settings (schema.toml, site.toml, consortium.toml)
    tables     from objects of Python, numpy, pandas and pyarrow
    questions  and evidence, as text and as objects
    requests   to the dashboard, over HTTP
    records    recipes of runs, requests to join a consortium, certificates, audit logs, events of
               a training, and schema.toml as it is written

An input must be answered sensibly or refused by an error of ours. It fails if its process dies,
hangs, takes too much memory or time, raises any other error, or answers NaN or what is no
probability. Processes try inputs one after another (worker.py) and are started anew when they die.
Exits with 1 if an input failed.
"""

import argparse
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.fuzz.worker import KINDS
from benchmarks.runner import THREAD_LIMITS, Cell, print_table

SHARES = {"messages": 30, "frames": 10, "files": 14, "tables": 16, "questions": 30, "requests": 4,
          "records": 6}  # fmt: skip
PREPARING, PATIENCE = 600.0, 180.0  # seconds without a word; a machine may have other work
Part = tuple[str, int, int]  # kind, first and last number


@dataclass
class Tally:
    tried: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)

    def fail(self, kind: str, number: int, text: str) -> None:
        known = {_what(failure) for failure in self.failures}
        self.failures.append((kind, number, text))
        if _what(self.failures[-1]) not in known:
            print(f"{kind} {number}: {text}", flush=True)

    def rows(self) -> list[dict[str, Cell]]:
        failed = Counter(kind for kind, _, _ in self.failures)
        rows: list[dict[str, Cell]] = [
            {"kind": kind, "inputs": self.tried[kind], "answered": self.answered[kind],
             "refused": self.refused[kind], "failures": failed[kind]}
            for kind in self.tried
        ]  # fmt: skip
        return [*rows, {"kind": "all", "inputs": self.tried.total(),
                        "answered": self.answered.total(), "refused": self.refused.total(),
                        "failures": len(self.failures)}]  # fmt: skip


class Worker:
    """A process that tries parts of the inputs, and one after it if it dies."""

    def __init__(self, seed: int, parts: list[Part], tally: Tally) -> None:
        self.seed, self.parts, self.tally = seed, parts, tally
        self.number, self.text, self.heard = -1, b"", time.monotonic()
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.prepared = False
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.worker", str(self.seed)]
        command += [":".join(map(str, part)) for part in self.parts]
        limits = dict.fromkeys(THREAD_LIMITS, "1")
        return subprocess.Popen(command, env={**os.environ, **limits}, stdout=subprocess.PIPE)

    def listen(self) -> bool:
        """Reads what there is; whether the process goes on."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            self._take(line.decode())
        self.heard = time.monotonic()
        return bool(data)

    def _take(self, line: str) -> None:
        mark, kind = line[:1], self.parts[0][0]
        if mark == "=":
            self.prepared = True
            while self.parts[0][0] != line[2:]:
                self.parts.pop(0)
        elif mark == ">":
            self.number = int(line[2:])
        else:
            self.parts[0] = (kind, self.number + 1, self.parts[0][2])
            self.tally.tried[kind] += 1
            self.tally.answered[kind] += mark == "+"
            self.tally.refused[kind] += mark == "-"
            if mark == "!":
                self.tally.fail(kind, self.number, line[2:])

    def hangs(self) -> bool:
        return time.monotonic() - self.heard > (PATIENCE if self.prepared else PREPARING)

    def over(self, hung: bool) -> bool:
        """After its process has ended: whether there is nothing left to try."""
        if hung:
            self.process.kill()
        code = self._ended()
        while self.parts and self.parts[0][1] >= self.parts[0][2]:
            self.parts.pop(0)
        if not self.parts:
            return True
        kind, _, last = self.parts[0]
        if not self.prepared:
            self.tally.fail(kind, -1, f"its worker could not be prepared (exit code {code})")
            return True
        self.tally.fail(kind, self.number, "hangs" if hung else f"ends its process ({code})")
        self.tally.tried[kind] += 1
        self.parts[0] = (kind, self.number + 1, last)
        self.heard, self.text, self.process = time.monotonic(), b"", self._start()
        return False

    def stop(self) -> None:
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


def run(parts: list[list[Part]], seed: int = 0, seconds: float | None = None) -> Tally:
    """Tries the parts, one list a process."""
    tally, begin = Tally(), time.monotonic()
    with selectors.DefaultSelector() as waiting:
        for own in parts:
            worker = Worker(seed, own, tally)
            waiting.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        while waiting.get_map():
            ready = {key.data for key, _ in waiting.select(5.0)}
            late = seconds is not None and time.monotonic() - begin > seconds
            for key in list(waiting.get_map().values()):
                worker = key.data
                hung = worker.hangs()
                if late:
                    waiting.unregister(key.fileobj)
                    worker.stop()
                elif hung or (worker in ready and not worker.listen()):
                    waiting.unregister(key.fileobj)
                    if not worker.over(hung):
                        waiting.register(worker.process.stdout, selectors.EVENT_READ, worker)
    return tally


def divided(inputs: int, kinds: tuple[str, ...], processes: int = 2) -> list[list[Part]]:
    """Numbers of every kind, as equally over processes as they can be."""
    whole = sum(SHARES[kind] for kind in kinds)
    found: list[list[Part]] = [[] for _ in range(processes)]
    for kind in kinds:
        each = -(-inputs * SHARES[kind] // (whole * processes))
        for i, own in enumerate(found):
            own.append((kind, i * each, (i + 1) * each))
    return found


def _what(failure: tuple[str, int, str]) -> tuple[str, str]:
    """What failed and where, without the details."""
    return failure[0], failure[2].partition(": ")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--number", type=int, help="try this input of one kind alone")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.number is not None and chosen.only is None:
        parser.error("--number needs --only")
    kinds = KINDS if chosen.only is None else (chosen.only,)
    parts = divided(chosen.inputs, kinds, chosen.processes)
    if chosen.number is not None:
        parts = [[(chosen.only, chosen.number, chosen.number + 1)]]
    begin = time.monotonic()
    tally = run(parts, chosen.seed, chosen.seconds)
    print_table(tally.rows())
    print(f"seed {chosen.seed}, {time.monotonic() - begin:.0f} seconds")
    for what, times in Counter(_what(f) for f in tally.failures).most_common():
        kind, number, text = next(f for f in tally.failures if _what(f) == what)
        print(f"{times} × {text}\n    again: --only {kind} --number {number} --seed {chosen.seed}")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
