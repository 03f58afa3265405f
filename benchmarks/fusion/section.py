"""Federated feature fusion: tables 2 and 3, missing owners, bytes, order, edges, cost, pictures.

python -m benchmarks.run fusion
python -m benchmarks.fusion.section --keep fusion.jsonl     # the same, can be taken up again
"""

import argparse
from pathlib import Path

from benchmarks.fusion import conflict, cost, edges, missing, order, tables
from benchmarks.fusion.kept import Kept
from benchmarks.fusion.sets import SPLITS, load
from benchmarks.runner import Json
from fedcircuits.errors import DatasetError

DOCS = Path(__file__).parents[2] / "docs"


def run(kept: Kept | None = None) -> list[Json]:
    kept = Kept() if kept is None else kept
    found = [*edges.run(), *cost.run()]
    for name in SPLITS:
        try:
            load(name)
        except DatasetError as error:
            print(f"{name}: {error}")
            continue
        for seed in tables.SEEDS:
            for how in SPLITS[name]:
                tables.run_one(kept, name, None, how, seed)
                if (name, how) == (missing.NAME, missing.HOW):  # the same encoders
                    missing.run_one(kept, seed)
                    conflict.run_one(kept, seed)
                if name in order.SETS and how == order.HOW:
                    order.run_one(kept, name, seed)
        tables.show(kept, name)
    missing.show(kept)
    order.show(kept)
    missing.picture(kept).savefig(DOCS / "fusion-missing.png")
    conflict.picture(kept).savefig(DOCS / "fusion-conflict.png")
    return found + kept.results()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a file of JSON lines to add to")
    run(Kept(parser.parse_args().keep))
