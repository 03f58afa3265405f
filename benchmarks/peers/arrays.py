"""What workers of arithmetic on secrets share: the numbers, and one summary of all parties."""

import numpy as np

BOUND = 14  # bits of a denominator


def inputs(kind, elements):
    """Two arrays and what is expected: whole numbers, numbers from −1 to 1, or 0 ≤ a ≤ b."""
    rng = np.random.default_rng(elements)
    if kind == "truncation":
        a, b = rng.uniform(-1, 1, (2, elements))
        return a, b, a * b
    if kind in ("product", "kernel"):
        a, b = rng.integers(-(2**15), 2**15, (2, elements))
        return a, b, a * b
    b = rng.integers(1, 2**BOUND, elements, endpoint=True)
    a = rng.integers(0, b, endpoint=True)
    return a.astype(float), b.astype(float), a / b


def summary(parties):
    """``parties``: CPU and wall seconds by repeat and the largest error, of each."""
    cpu = np.sum([own[0] for own in parties], axis=0)
    wall = np.max([own[1] for own in parties], axis=0)
    return {
        "cpu_seconds": cpu.tolist(),
        "wall_seconds": wall.tolist(),
        "off": max(own[2] for own in parties),
    }
