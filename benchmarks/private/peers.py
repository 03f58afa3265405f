"""Arithmetic on secrets among three parties beside MPyC, CrypTen and SecretFlow SPU, in one run.

    python -m benchmarks.private.peers --sizes 24 1000

    kernel       products in the field of 2^127 − 1 in one process, nothing shared
    product      of shared whole numbers, exact
    truncation   products of fixed-point numbers, cut to the fractional bits of their factors

Quotients have no row: private forests make them as differences of logarithms, so there is no
division to compare.

Figures are CPU seconds of all parties together, the least of the repeats; walls of a shared machine
say little. Inputs are shared before, results opened after. Every library's clock starts when its
parties are up and have waited for each other. Ours, with 40 fractional bits, are stepped in one
process, with messages encoded; masks are made anew for every repeat, and "prepared" is what is left
if they were made ahead. "off" is the largest error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.peers.arrays import inputs
from benchmarks.private.clock import Slept
from benchmarks.runner import Cell, Json, best, print_table, run_peer
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow, Program, broadcast, gather
from fedcircuits.federation.messages import Message
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import compile_kernels
from fedcircuits.privacy.operations.products import Cut, Masks, masks_made, reduced, truncated
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, reconstruct

KINDS = ("kernel", "product", "truncation")
SIZES = (24, 1_000, 100_000)
NAMES = ("north", "east", "south")
FRACTION = 40
CUT = Cut(2 * FRACTION + 2, FRACTION)
PEERS: dict[str, tuple[str, dict[str, Json]]] = {
    "SPU, 128 bits": ("spu_arrays", {"bits": 128, "fraction": FRACTION}),
    "SPU, 64 bits": ("spu_arrays", {"bits": 64, "fraction": 18}),
    "CrypTen, 64 bits": ("crypten_arrays", {}),
    "MPyC": ("mpyc_arrays", {}),
}
ALONE = {("MPyC", "truncation", 100_000)}  # minutes to hours
Shares = Mapping[str, Elements]
Stamps = tuple[float, float, float, float]  # preparing from and to, computing from and to
Line = dict[str, Cell]


# ---------------------------------------------------------------------- ours


def repeated(
    me: str, kind: str, a: Elements, b: Elements, key: bytes, repeats: int
) -> Flow[tuple[Elements, list[Stamps]]]:
    """Shares of the results, and when this party prepared and computed in every repeat.

    Parties wait for each other before the clock starts, as the other libraries' do.
    """
    group = Group.of(me, NAMES, key, "numbers")
    stamps: list[Stamps] = []
    found = a
    for i in range(repeats):
        yield from waiting(me, f"wait/prepare/{i}")
        begin = time.process_time()
        masks: list[Masks] = []
        if kind == "truncation":
            masks = yield from masks_made(group, f"masks/{i}", [(len(a), CUT)])
        ready = time.process_time()
        yield from waiting(me, f"wait/compute/{i}")
        start = time.process_time()
        found = yield from computed(group, kind, a, b, masks, f"{kind}/{i}")
        stamps.append((begin, ready, start, time.process_time()))
    return found, stamps


class Waiting(Message, frozen=True):
    """A party has come this far; the tag says how far."""


def waiting(me: str, tag: str) -> Flow[None]:
    others = [name for name in NAMES if name != me]
    yield from broadcast(others, Waiting(), tag)
    yield from gather(others, Waiting, tag)


def computed(
    group: Group, kind: str, a: Elements, b: Elements, masks: list[Masks], tag: str
) -> Flow[Elements]:
    if kind == "product":
        return (yield from reduced(group, tag, group.ring.multiply(a, b)))
    return (yield from truncated(group, tag, group.ring.multiply(a, b), masks[0]))


def dealt(kind: str, values: np.ndarray) -> Shares:
    if kind == "truncation":
        secret = FixedPoint(FRACTION, 1, FIELD).encode(values, "numbers")
    else:
        secret = FIELD.elements(values.astype(np.int64))
    return dict(zip(NAMES, deal(FIELD, secret, 1, 3, Stream(fresh_key(), "inputs")), strict=True))


def timed(
    kind: str, a: Shares, b: Shares, repeats: int, run: Any = memory.run
) -> tuple[Shares, list[tuple[float, float]]]:
    """Shares of the results; CPU seconds of preparing and of computing, of all, by repeat."""
    own = {"kind": kind, "repeats": repeats}
    programs = {
        me: Program(repeated, {"me": me, **own, "a": a[me], "b": b[me], "key": fresh_key()})
        for me in NAMES
    }
    outcome = run(programs)
    assert not outcome.lost, str(outcome.lost)
    every = [stamps for _, stamps in outcome.results.values()]
    spans = []
    for at in zip(*every, strict=True):  # stepped in one process, they have one clock
        begin, ready, start, end = zip(*at, strict=True)
        spans.append((max(ready) - min(begin), max(end) - min(start)))
    return {me: found for me, (found, _) in outcome.results.items()}, spans


def ours(kind: str, elements: int, repeats: int) -> Line:
    a, b, expected = inputs("product" if kind == "kernel" else kind, elements)
    if kind == "kernel":
        x, y = (FIELD.reduced(Stream(fresh_key(), "x").bits((elements,), 127)) for _ in "ab")
        return {"fedcircuits": min(_kernel(x, y) for _ in range(repeats + 1))}
    shares, spans = timed(kind, dealt(kind, a), dealt(kind, b), repeats + 1)
    found = np.stack([shares[me] for me in NAMES])
    digits = 0 if kind == "product" else FRACTION
    values = FIELD.signed(reconstruct(FIELD, found, 1, NAMES))
    off = float(np.abs(values.astype(float) / 2.0**digits - expected).max())
    assert off <= 2.0 ** (2 - FRACTION), off
    ahead = 0 if kind == "product" else 1  # of products nothing is prepared
    return {
        "fedcircuits": min(ahead * preparing + computing for preparing, computing in spans[1:]),
        "prepared": min(computing for _, computing in spans[1:]),
        "off": off,
    }


def _kernel(x: Elements, y: Elements) -> float:
    begin = time.process_time()
    FIELD.multiply(x, y)
    return time.process_time() - begin


def wall(kind: str, elements: int) -> float:
    """Seconds in processes of their own, preparation included, messages without delay."""
    a, b, _ = inputs(kind, elements)
    engine = Slept(latency=0.0)
    timed(kind, dealt(kind, a), dealt(kind, b), 1, engine)
    return engine.seconds


# ---------------------------------------------------------------------- theirs


def theirs(title: str, kind: str, elements: int, repeats: int) -> dict[str, Json]:
    peer, settings = PEERS[title]
    if (title, kind, elements) in ALONE:
        return {"error": f"{title} was not run for {elements:,} elements of {kind}: it takes long"}
    if kind == "kernel" and title != "MPyC":
        return {}
    job: dict[str, Json] = {"kind": kind, "elements": elements, "parties": 3, **settings}
    return run_peer(peer, {**job, "repeats": repeats, "memory_gb": 16}, timeout=600)


def compared(kind: str, elements: int) -> tuple[Line, list[Json]]:
    repeats = 5
    line: Line = {"kind": kind, "elements": elements, **ours(kind, elements, repeats)}
    results: list[Json] = []
    for title in PEERS:
        found = theirs(title, kind, elements, repeats)
        seconds, off = best(found), found.get("off")
        line[title] = seconds
        if isinstance(off, float) and off > 1e-3:
            line[f"{title}, off"] = off
        if "error" in found:
            print(found["error"])
        results.append({"title": title, "kind": kind, "elements": elements, **found})
    return line, [dict(line), *results]


def run(sizes: Sequence[int] = SIZES, kinds: Sequence[str] = KINDS) -> list[Json]:
    compile_kernels()
    lines, results = [], []
    for kind in kinds:
        for elements in sizes:
            line, found = compared(kind, elements)
            lines.append(line)
            results += found
    print("\nCPU seconds of all three parties, preparation included\n")
    print_table(lines)
    times: list[Line] = [
        {"kind": k, "elements": 1_000, "wall s": wall(k, 1_000)} for k in KINDS[1:]
    ]
    print("\nours in processes, wall seconds\n")
    print_table(times)
    return results + [dict(t) for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    chosen = parser.parse_args()
    run(chosen.sizes, chosen.kinds)


if __name__ == "__main__":
    main()
