"""A quad graph of 28 × 28 grey levels, elementwise products, beside libcirkit in the same run.

Both evaluate the same circuit with the same parameters: ``check`` is the mean log-likelihood.
"""

from pathlib import Path

from benchmarks import regions
from benchmarks.environments import cache_folder
from benchmarks.runner import OURS, Cell, Json, best, print_table, run_peer

SIDE, LEVELS, ROWS = 28, 256, 256
PASSES = {"forward": ("forward",), "training step": ("em", "adam")}


def run(units: tuple[int, ...] = (16, 32), repeats: int = 3) -> list[Json]:
    results: list[Json] = []
    for k in units:
        path = cache_folder() / "inputs" / f"quad-{k}.npz"
        if not path.is_file():
            regions.quad_graph(path, side=SIDE, levels=LEVELS, units=k, rows=ROWS, seed=0)
        for what, passes in PASSES.items():
            theirs = "forward" if what == "forward" else "adam"
            rows = [_one(OURS, p, path, k, repeats) for p in passes]
            rows.append(_one("libcirkit", theirs, path, k, repeats))
            slow = rows[-1]["cpu ms"]
            for row in rows[:-1]:
                if isinstance(slow, float) and isinstance(row["cpu ms"], float):
                    row["times faster"] = slow / row["cpu ms"]
            print(f"\nQuad graph 28 × 28, 256 levels, K = {k}, batch {ROWS}: {what}")
            print_table(rows)
            results += [{"part": "peers", "units": k, **row} for row in rows]
    return results


def _one(peer: str, what: str, path: Path, units: int, repeats: int) -> dict[str, Cell]:
    job: dict[str, Json] = {
        "kind": "quad", "path": str(path), "units": units, "pass": what, "repeats": repeats,
    }  # fmt: skip
    found = run_peer(peer, job)
    if "error" in found:
        print(f"  {found['error']}")
    took, check, memory = best(found), found.get("check"), found.get("added_mb")
    milliseconds = None if took is None else 1e3 * took
    return {
        "library": str(found["title"]), "pass": what, "cpu ms": milliseconds,
        "added MB": memory if isinstance(memory, float | int) else None,
        "check": check if isinstance(check, float) else None,
    }  # fmt: skip
