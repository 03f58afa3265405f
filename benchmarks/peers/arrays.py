"""What workers of arithmetic on secrets share: the numbers, and one summary of all parties."""

import numpy as np


def inputs(kind, elements):
    """Two arrays and their product: numbers from −1 to 1 for truncation, else whole numbers."""
    rng = np.random.default_rng(elements)
    if kind == "truncation":
        a, b = rng.uniform(-1, 1, (2, elements))
    else:
        a, b = rng.integers(-(2**15), 2**15, (2, elements))
    return a, b, a * b


def summary(parties):
    """``parties``: CPU and wall seconds by repeat and the largest error, of each."""
    cpu = np.sum([own[0] for own in parties], axis=0)
    wall = np.max([own[1] for own in parties], axis=0)
    return {
        "cpu_seconds": cpu.tolist(),
        "wall_seconds": wall.tolist(),
        "off": max(own[2] for own in parties),
    }
