"""Attacks one by one: what is not attacked again stays in the file of results, as do figures of an
earlier checkout that is not given again.

python -m benchmarks.attacks [naming columns …] [--before FOLDER] [--only TEXT] [--page]
"""

import argparse
import json
from pathlib import Path

from benchmarks.attacks import measuring, page, section
from benchmarks.runner import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(section.ATTACKS)}; all if none")
    parser.add_argument("--before", type=Path, help="folder of an earlier checkout")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/attacks.json"))
    parser.add_argument("--page", action="store_true", help="write docs/results/attacks.md anew")
    parser.add_argument("--only", default="", help="of each attack what has this in its row")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(section.as_json(section.measured(chosen.one))))
        return
    if unknown := set(chosen.attacks) - set(section.ATTACKS):
        parser.error(f"unknown attack {min(unknown)!r}: expected {', '.join(section.ATTACKS)}")
    measuring.ONLY[0] = chosen.only
    before = None if chosen.before is None else chosen.before.resolve()
    found = section.run(chosen.attacks, before)
    measured = {one["attack"]: one for one in measuring.kept(chosen.output)}
    for one in found:
        earlier = measured.get(one["attack"], {})
        if chosen.only and earlier:
            one = section.added(earlier, one, chosen.only)
        measured[one["attack"]] = {**one, "before": one["before"] or earlier.get("before")}
    results = [measured[name] for name in section.ATTACKS if name in measured]
    write_json(chosen.output, {"section": "attacks", "results": results})
    print(f"\nwritten: {chosen.output}")
    if chosen.page:
        page.write(results, measuring.kept(chosen.output.with_name("utility.json")))


if __name__ == "__main__":
    main()
