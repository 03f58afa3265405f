"""The page of the attacks, docs/results/attacks.md, from the figures of a run."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.attacks import section, utility
from benchmarks.attacks.measuring import PAGE, kept
from benchmarks.runner import machine_facts

COMMANDS = """\
python -m benchmarks.attacks --before ../before
python -m benchmarks.attacks.utility
python -m benchmarks.attacks.page                       # the page of what was measured"""
INTRODUCTION = """\
Each attack is actually run, on what a role holds and receives during a run, on small tables:
membership and columns with two seeds, thresholds of trees with three, others with one. "Before"
is commit c28143b, for counts read from answers with an earlier version of the attack; – means
that this version lacks the setting. The [threat model](../threat-model.md) explains what these
figures mean for each method."""

HEADINGS = {
    "read_back": "Reading counts from answers",
    "membership": "Membership inference",
    "naming": "Identifying rows by their tokens",
    "known": "Identifying rows by what is known about people",
    "linking": "Linking views of the same row",
    "reconstruct": "Reconstructing rows from tables of pairs",
    "columns": "Inferring a column of another party",
    "edges": "Thresholds of trees",
    "liar": "A party that lies on shares",
}


def blocks(results: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, Any]]) -> list[Any]:
    facts = machine_facts()
    where = f"{facts['cores']} shared cores, one thread, Python {facts['python']}."
    found: list[Any] = [
        {"code": COMMANDS},
        {"text": f"{INTRODUCTION}\n{where}"},
    ]
    for result in results:
        name = result["attack"]
        rows = section.table(_measures(result["now"]), _measures(result["before"]))
        found += [
            {"heading": HEADINGS[name]},
            {"text": _paragraphs(section.ATTACKS[name].__doc__)},
            _table(rows),
            {"text": f"Now: commit {result['at']}."},
        ]
    if costs:
        found += [
            {"heading": "What protections cost"},
            {"text": _paragraphs(utility.__doc__)},
            _table([{k: v for k, v in row.items() if k != "commit"} for row in costs]),
            {"text": f"Measured at {_commits(costs)}."},
        ]
    return found


def write(results: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, Any]]) -> None:
    page = {"title": "Attacks: what they find", "blocks": blocks(results, costs)}
    pages.write(PAGE, {**page, "measured": {"attacks": results, "utility": costs}})


def _commits(costs: Sequence[Mapping[str, Any]]) -> str:
    """Which of the methods were measured at which commit, on which sets."""
    sets: dict[tuple[str, str], list[str]] = {}
    for row in costs:
        of_method = sets.setdefault((str(row["commit"]), str(row["method"])), [])
        of_method += [] if row["set"] in of_method else [row["set"]]
    lines: dict[str, list[str]] = {}
    for (commit, method), names in sets.items():
        lines.setdefault(commit, []).append(f"“{method}” ({', '.join(names)})")
    return "; ".join(f"commit {commit}: {', '.join(names)}" for commit, names in lines.items())


def _measures(found: Any) -> Any:
    return None if found is None else [section.Measure(**one) for one in found]


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": names, "rows": [[_text(row.get(name)) for name in names] for row in rows]}


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _paragraphs(text: str | None) -> str:
    """A docstring without its first line; what stands indented in it becomes a list."""
    body = str(text).partition("\n\n")[2].strip()
    named = re.sub(r"^    (\w+(?: \w+)*)   +(.*(?:\n     +.*)*)", _item, body, flags=re.MULTILINE)
    return named


def _item(found: re.Match[str]) -> str:
    return f"- **{found[1]}**: " + re.sub(r"\n +", "\n  ", found[2])


def main() -> None:
    results = Path("benchmarks/results")
    write(kept(results / "attacks.json"), kept(results / "utility.json"))


if __name__ == "__main__":
    main()
