"""Region graphs with parameters as one npz file that every side of a comparison reads.

Regions 0 .. L-1 are leaves, inner regions follow with children before parents, the root is apart.
A leaf region holds K fully factorised Gaussians; an inner partition of a region joins two regions
by the outer product (unit i of the left, j of the right at i K + j) and maps it by a K x K² matrix
of weights; a region with several partitions mixes them unit by unit. Because parameters are given,
equal structure shows as an equal mean log-likelihood, not only as an equal count.

    x (rows, variables)          leaf_scope (L, S)     mean, variance (L, K, S)
    part (P, 3) region left right    weight (P, K, K²)   mix (P, K)
    root_part (Q, 2) left right      root_weight (Q, K²)  root_mix (Q,)
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedcircuits as fc

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def random_binary(
    path: Path, *, variables: int, depth: int, repetitions: int, units: int, rows: int, seed: int
) -> Path:
    """Write ``repetitions`` random binary trees of the given depth; leaf r 2^depth + l."""
    rng = np.random.default_rng(seed)
    leaves = 2**depth
    if variables % leaves:
        raise ValueError(f"{variables} variables do not split into {leaves} equal leaf regions")
    orders = [rng.permutation(variables) for _ in range(repetitions)]
    leaf_scope = np.concatenate([order.reshape(leaves, -1) for order in orders])
    part, below, first = [], 0, len(leaf_scope)
    for level in range(depth - 1, 0, -1):
        count = repetitions * 2**level
        part += [(first + i, below + 2 * i, below + 2 * i + 1) for i in range(count)]
        below, first = first, first + count
    root_part = [(below + 2 * r, below + 2 * r + 1) for r in range(repetitions)]
    return _write(path, rng, leaf_scope, np.array(part), np.array(root_part), units, rows)


def poon_domingos(
    path: Path, *, height: int, width: int, step: int, units: int, rows: int, seed: int
) -> Path:
    """Write the Poon-Domingos graph of an image: every rectangle on the grid, every cut."""
    down, across = height // step, width // step
    rectangles = [
        (top, bottom, left, right)
        for bottom_minus_top in range(1, down + 1)
        for right_minus_left in range(1, across + 1)
        for top in range(down - bottom_minus_top + 1)
        for left in range(across - right_minus_left + 1)
        for bottom, right in [(top + bottom_minus_top, left + right_minus_left)]
    ]
    rectangles.sort(key=lambda r: (r[1] - r[0]) * (r[3] - r[2]))
    number = {rectangle: i for i, rectangle in enumerate(rectangles)}
    part = []
    for (top, bottom, left, right), region in number.items():
        cuts = [((top, y, left, right), (y, bottom, left, right)) for y in range(top + 1, bottom)]
        cuts += [((top, bottom, left, x), (top, bottom, x, right)) for x in range(left + 1, right)]
        for one, other in cuts:
            part.append((region, number[one], number[other]))
    root_part = [(left, right) for region, left, right in part if region == len(number) - 1]
    inner = [row for row in part if row[0] != len(number) - 1]
    pixels = np.arange(height * width).reshape(down, step, across, step)
    blocks = [pixels[top, :, left].ravel() for top, _, left, _ in rectangles[: down * across]]
    rng = np.random.default_rng(seed)
    return _write(path, rng, np.array(blocks), np.array(inner), np.array(root_part), units, rows)


def quad_graph(path: Path, *, side: int, levels: int, units: int, rows: int, seed: int) -> Path:
    """Write the quad graph of an image of grey levels: categorical leaves (L, K, levels), and
    elementwise products, mapped by K x K matrices of weights. Most pixels have the level that most
    of their mass is at: libcirkit takes no log-value below −708."""
    schema = fc.Table.of(np.full((1, side, side), 9, np.uint8)).schema
    circuit = fc.structures.quad_graph(schema, height=side, width=side, units=units)
    leaves = sorted(circuit.leaves(), key=lambda leaf: schema.index(leaf.scope[0]))
    number = {leaf.name: i for i, leaf in enumerate(leaves)}
    part, root_part = [], []
    for node in (n for n in circuit.nodes if isinstance(n, fc.Sum)):
        pairs = [tuple(number[c] for c in circuit[p].children) for p in node.children]
        if node.name == circuit.root.name:
            root_part = pairs
            break
        number[node.name] = len(number)
        part += [(number[node.name], *pair) for pair in pairs]
    rng = np.random.default_rng(seed)
    region = np.array(part)[:, 0]
    common = rng.integers(0, levels, side * side)
    peak = np.eye(levels)[common][:, None]
    values = {
        "x": np.where(rng.random((rows, side * side)) < 0.98, common, levels - 1 - common),
        "probability": 0.1 * rng.dirichlet(np.ones(levels), (len(leaves), units)) + 0.9 * peak,
        "weight": rng.dirichlet(np.ones(units), (len(part), units)),
        "mix": _per_region(rng.gamma(1.0, size=(len(part), units)) + 0.1, region),
        "root_weight": rng.dirichlet(np.ones(units), len(root_part)),
        "root_mix": rng.dirichlet(np.ones(len(root_part))),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        leaf_scope=np.arange(side * side)[:, None],
        part=np.array(part),
        root_part=np.array(root_part),
        **{name: value.astype(np.float32) for name, value in values.items()},  # type: ignore[arg-type]
    )
    return path


def _write(
    path: Path,
    rng: np.random.Generator,
    leaf_scope: Indices,
    part: Indices,
    root_part: Indices,
    units: int,
    rows: int,
) -> Path:
    leaves, size = leaf_scope.shape
    values = {
        "x": rng.normal(0.5, 0.5, (rows, int(leaf_scope.max()) + 1)),
        "mean": rng.normal(0.5, 0.3, (leaves, units, size)),
        "variance": rng.uniform(0.1, 0.5, (leaves, units, size)),
        "weight": rng.dirichlet(np.ones(units**2), (len(part), units)),
        "mix": _per_region(rng.gamma(1.0, size=(len(part), units)) + 0.1, part[:, 0]),
        "root_weight": rng.dirichlet(np.ones(units**2), len(root_part)),
        "root_mix": rng.dirichlet(np.ones(len(root_part))),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        leaf_scope=leaf_scope.astype(np.int64),
        part=part.astype(np.int64),
        root_part=root_part.astype(np.int64),
        **{name: value.astype(np.float32) for name, value in values.items()},  # type: ignore[arg-type]
    )
    return path


def _per_region(values: Array, region: Indices) -> Array:
    """Normalise over the partitions of each region."""
    total = np.zeros((int(region.max()) + 1, values.shape[1]))
    np.add.at(total, region, values)
    return values / total[region]


def products(path: Path) -> int:
    """Multiplications of one row: statistics [x, x²] of the leaves, and the weights."""
    with np.load(path) as data:
        return int(2 * data["mean"].size + data["weight"].size + data["root_weight"].size)


def mean_log_likelihood(path: Path) -> float:
    """The mean log-likelihood of the file's rows in float64, region by region: the check value."""
    data = np.load(path)
    x = data["x"].astype(np.float64)
    value: dict[int, Array] = {}  # region -> (rows, units)
    for leaf, scope in enumerate(data["leaf_scope"]):
        mean, variance = (data[name][leaf].astype(np.float64) for name in ("mean", "variance"))
        square = (x[:, None, scope] - mean) ** 2 / variance + np.log(2 * np.pi * variance)
        value[leaf] = -0.5 * square.sum(-1)
    for (region, left, right), weight, mix in zip(
        data["part"], data["weight"], data["mix"], strict=True
    ):
        term = _join(value[left], value[right], weight) + np.log(mix)
        value[region] = np.logaddexp(value[region], term) if region in value else term
    terms = [
        _join(value[left], value[right], weight[None])[:, 0] + np.log(mix)
        for (left, right), weight, mix in zip(
            data["root_part"], data["root_weight"], data["root_mix"], strict=True
        )
    ]
    return float(np.logaddexp.reduce(terms, axis=0).mean())


def _join(left: Array, right: Array, weight: Array) -> Array:
    high_left, high_right = left.max(1, keepdims=True), right.max(1, keepdims=True)
    outer = np.exp(left - high_left)[:, :, None] * np.exp(right - high_right)[:, None, :]
    total: Array = np.log(outer.reshape(len(left), -1) @ weight.T.astype(np.float64))
    joined: Array = total + high_left + high_right  # (rows, units)
    return joined
