"""Learned trees as JSON, kept by the content of data and settings.

{"root": id, "nodes": [{"id", "t": "s" sum | "p" product | "b" Bernoulli,
                        "c": children, "w": weights, "v": variable, "p": probability of 1}]}
"""

import hashlib
import json
import os
from pathlib import Path


def kept_at(folder, path, settings):
    """The file of the tree that these settings learn from this data file."""
    key = hashlib.sha256(Path(path).read_bytes())
    key.update(json.dumps(settings, sort_keys=True).encode())
    return Path(folder) / f"{Path(path).stem}-{key.hexdigest()[:16]}.json"


def write(path, tree):
    """Write whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(tree), encoding="utf-8")
    part.replace(path)


def read(path):
    """The tree of the file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def bottom_up(tree):
    """The nodes, children before parents, without recursion."""
    by_id = {node["id"]: node for node in tree["nodes"]}
    order, stack, seen = [], [tree["root"]], set()
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            order.append(by_id[number])
            stack.extend(by_id[number].get("c", ()))
    return order[::-1]


def parameter_count(tree):
    """Weights and leaf probabilities."""
    return sum(len(node["w"]) if node["t"] == "s" else node["t"] == "b" for node in tree["nodes"])
