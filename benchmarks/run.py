"""Benchmarks against the peers, in one run: tables on the screen, figures in a JSON file.

python -m benchmarks.run [evaluation …] [--output benchmarks/results] [--page]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import dependence, evaluation, growth, images, learners, mixed, pages, sites
from benchmarks.attacks import section as attacks
from benchmarks.densities import section as densities
from benchmarks.federated import images as federated_images
from benchmarks.federated import many as federated_many
from benchmarks.federated import on_ray
from benchmarks.federated import peers as federated_peers
from benchmarks.federated import scale as federated_scale
from benchmarks.federated import table as federated
from benchmarks.fusion import section as fusion
from benchmarks.private import section as private
from benchmarks.runner import PRINTED, Json, machine_facts, write_json
from benchmarks.vertical import section as vertical
from benchmarks.vertical import trajectories

SECTIONS: dict[str, Callable[[], list[Json]]] = {
    "attacks": lambda: attacks.run(),
    "densities": densities.run,
    "dependence": dependence.run,
    "evaluation": evaluation.run,
    "federated": federated.run,
    "federated_images": federated_images.run,
    "federated_many": federated_many.run,
    "federated_peers": federated_peers.run,
    "federated_scale": federated_scale.run,
    "fusion": fusion.run,
    "growth": growth.run,
    "images": images.run,
    "learners": learners.run,
    "mixed": mixed.run,
    "private": private.run,
    "ray": on_ray.run,
    "sites": sites.run,
    "vertical": vertical.run,
    "vertical_trajectories": trajectories.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--page", action="store_true", help="keep the tables in docs/results")
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - set(SECTIONS):
        parser.error(f"unknown section {min(unknown)!r}: expected {', '.join(SECTIONS)}")
    for name in chosen.sections or SECTIONS:
        path = chosen.output / f"{name}.json"
        PRINTED.clear()
        write_json(path, {"section": name, "results": SECTIONS[name]()})
        print(f"\nwritten: {path}")
        if chosen.page:
            page = pages.of_run(name, machine_facts(), PRINTED)
            pages.write(pages.RESULTS / f"last-{name}.md", page)


if __name__ == "__main__":
    main()
