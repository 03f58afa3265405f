"""Evaluation speed and memory: tensorised circuits and learned trees, ours beside the peers'.

    python -m benchmarks.run evaluation

Every side evaluates the same circuit with the same parameters: ``check`` is the mean
log-likelihood it found. Ratios are of the least CPU time over the repeats, with one thread; with
two threads wall time counts. "of limit" is the share of the machine's own float32 matrix-product
rate, counting the products of leaves and sums only.
"""

from pathlib import Path

from benchmarks import machine, regions
from benchmarks.data import density_set
from benchmarks.environments import cache_folder
from benchmarks.runner import OURS, Cell, Json, best, print_table, run_peer

ROWS = 256
TENSORISED = {
    "rat 784, depth 4, 10 repetitions, K = 10": (
        "rat",
        10,
        ("libcirkit", "spflow_new", "deeprob_kit"),
    ),
    "rat 784, depth 4, 10 repetitions, K = 32": ("rat", 32, ()),
    "Poon–Domingos 28 × 28, step 7, K = 10": ("pd", 10, ("libcirkit",)),
    "Poon–Domingos 28 × 28, step 7, K = 32": ("pd", 32, ()),
}
PASSES = {"forward": ("forward",), "training step": ("em", "adam")}
TREES = ("nltcs", "plants", "baudio")


def run(repeats: int = 3) -> list[Json]:
    limits = {threads: machine.limit(threads) for threads in (1, 2)}
    print(f"matrix products: {limits[1].product:.0f} GFLOP/s, two threads {limits[2].product:.0f}")
    results: list[Json] = []
    for title, (kind, units, peers) in TENSORISED.items():
        results += _tensorised(title, kind, units, peers, limits, repeats)
    results += _trees(repeats)
    results += _large_tree()
    return results


def input_of(kind: str, units: int) -> Path:
    path = cache_folder() / "inputs" / f"{kind}-{units}.npz"
    if path.is_file():
        return path
    if kind == "rat":
        return regions.random_binary(
            path, variables=784, depth=4, repetitions=10, units=units, rows=ROWS, seed=0
        )
    return regions.poon_domingos(path, height=28, width=28, step=7, units=units, rows=ROWS, seed=0)


def _tensorised(
    title: str,
    kind: str,
    units: int,
    peers: tuple[str, ...],
    limits: dict[int, machine.Limit],
    repeats: int,
) -> list[Json]:
    path = input_of(kind, units)
    found: list[Json] = []
    for what, passes in PASSES.items():
        jobs = [(OURS, p, t) for p in passes for t in (1, 2)]
        jobs += [(peer, p, 1) for peer in peers for p in _passes_of(peer, passes)]
        rows = [
            _one(peer, kind, p, path, units, threads, repeats, limits) for peer, p, threads in jobs
        ]
        theirs = [r["cpu ms"] for r in rows if r["library"] != "fedcircuits" and r["cpu ms"]]
        for row in rows:
            if row["library"] == "fedcircuits" and row["threads"] == 1 and theirs and row["cpu ms"]:
                row["times faster"] = min(theirs) / row["cpu ms"]  # type: ignore[type-var, operator]
        print(f"\n{title}, batch {ROWS}: {what}")
        print_table(rows)
        found += [{"circuit": title, **row} for row in rows]
    return found


def _passes_of(peer: str, passes: tuple[str, ...]) -> tuple[str, ...]:
    if "forward" in passes:
        return passes
    return ("adam", "em") if peer == "spflow_new" else ("adam",)


def _one(
    peer: str,
    kind: str,
    what: str,
    path: Path,
    units: int,
    threads: int,
    repeats: int,
    limits: dict[int, machine.Limit],
) -> dict[str, Cell]:
    job: dict[str, Json] = {
        "kind": kind, "pass": what, "path": str(path), "units": units,
        "threads": threads, "repeats": repeats if peer != OURS else 10 * repeats,
    }  # fmt: skip
    result = run_peer(peer, job)
    cpu, wall = best(result), best(result, "wall_seconds")
    row: dict[str, Cell] = {
        "library": str(result["title"]),
        "pass": what,
        "threads": threads,
        "cpu ms": None if cpu is None else cpu * 1e3,
        "wall ms": None if wall is None else wall * 1e3,
        "added MB": result.get("added_mb"),  # type: ignore[dict-item]
        "parameters": result.get("parameters"),  # type: ignore[dict-item]
        "check": result.get("check"),  # type: ignore[dict-item]
        "of limit": "",
        "times faster": "",
    }
    if "error" in result:
        print(f"  {result['error']}")
    if peer == OURS and what == "forward" and wall:
        flops = 2 * ROWS * regions.products(path)
        row["of limit"] = flops / wall / 1e9 / limits[threads].product
    return row


# ---------------------------------------------------------------------- trees


def _trees(repeats: int) -> list[Json]:
    rows: list[dict[str, Cell]] = []
    for name in TREES:
        try:
            path = density_set(name)
        except FileNotFoundError as error:
            print(f"  {error}")
            continue
        base: dict[str, Json] = {"kind": "tree", "path": str(path), "repeats": repeats}
        settings: dict[str, Json] = {"min_rows": 200, "seed": 0}
        learned = run_peer("deeprob_kit", {**base, "settings": settings, "repeats": 3})
        if "error" in learned:
            print(f"  {learned['error']}")
            continue
        old = run_peer(
            "spflow_old", {**base, "settings": settings, "tree": learned["tree"], "repeats": 3}
        )
        ours = [
            (f"fedcircuits {t}", run_peer(OURS, {**base, "tree": learned["tree"], "dtype": t}))
            for t in ("float32", "float64")
        ]
        peers = {"deeprob-kit": learned, "SPFlow 0.0.48": old}
        rates = {n: _rate(r) for n, r in peers.items()}
        for title, result in [*peers.items(), *ours]:
            row: dict[str, Cell] = {"tree": name, "nodes": learned["nodes"], "library": title}  # type: ignore[dict-item]
            row["rows per cpu s"] = _rate(result)
            row["check"] = result.get("check")  # type: ignore[assignment]
            for peer, rate in rates.items():
                mine = _rate(result)
                ratio = mine / rate if mine and rate and title.startswith("fed") else ""
                row[f"times {peer}"] = ratio
            rows.append(row)
    print("\nLearned trees: log-likelihood of the test rows")
    print_table(rows)
    return [dict(row) for row in rows]


def _rate(result: dict[str, Json]) -> float | None:
    seconds, rows = best(result), result.get("rows")
    return rows / seconds if seconds and isinstance(rows, int) else None


def _large_tree() -> list[Json]:
    job: dict[str, Json] = {
        "kind": "synthetic", "nodes": 260_000, "variables": 100, "rows": 10_000, "repeats": 1,
    }  # fmt: skip
    result = run_peer(OURS, job)
    if "error" in result:
        print(f"  {result['error']}")
    row: dict[str, Cell] = {
        "nodes": result.get("nodes"),  # type: ignore[dict-item]
        "rows": result.get("rows"),  # type: ignore[dict-item]
        "cpu s": best(result),
        "added MB": result.get("added_mb"),  # type: ignore[dict-item]
    }
    print("\nA large irregular tree of mixed leaves, float64")
    print_table([row])
    return [dict(row)]
