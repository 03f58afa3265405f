"""Parties' forests averaged on shares: parameters that nobody sees, those who learned them neither.

Every party has learned the same forest from the same start. A unit is averaged by how often parties
use it, which under uneven splits is far better than a plain mean: with u_i the expected count of a
unit at party i (learning/forests.py) and p_i a probability of it,

    p = Σ_i u_i p_i / Σ_i u_i,    log2 p = log2 Σ_i u_i p_i − log2 Σ_i u_i

Both sums are added up on shares, their logarithms are taken once (secure_log.py), and quotients are
differences: there is no division. Weights of deeper forests come back from their logarithms by one
power (secure_power.py). Weights of structures are in the counts: a party's root has them.

    average/counts       party → party: shares of u_i p_i and u_i, all numbers in one message
    average/log/k/…      party → party: shares of logarithms of 8,192 numbers, under masks
    average/weights/…    party → party: the same for powers, in deeper forests alone

Nothing is opened but under masks: any t parties learn nothing. Sums are scaled by the number of all
rows where that is public, else by 2^24, and u_i is at least 2^−13 of a party's rows, so that they
lie in a public range. A party that has fewer or more is noticed before it shares anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.dealing import bounded, table
from fedcircuits.methods.private_forest.forests import usage
from fedcircuits.methods.private_forest.model import LEAST_WEIGHT, WEIGHT_FRACTION, Forest, Shares
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.secure_log import Logarithm, logs_of
from fedcircuits.privacy.operations.secure_power import Power, powers_of
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.sharing import summed

USED = 13  # bits below 1: the least use of a unit
LEAF = 12  # bits below 1: the least probability of a code
ROWS = 24  # bits: rows of all parties together, where their number is secret
BATCH = 1 << 13  # numbers whose logarithms are taken at once
Pair = tuple[Array, Array]  # numerators (units, …) and denominators (units,)


def averaged(
    group: Group, forest: Forest, run: str, parameters: Parameters, rows: int, total: int | None
) -> Flow[Shares]:
    """A party's shares of the mean of all forests; ``total``: of all rows, if it is public."""
    rule = logarithm(forest, len(group.members), total)
    pairs = pairs_of(forest, bounded(forest, parameters, 2.0**-LEAF))
    flat = np.concatenate([a.reshape(-1) for pair in pairs.values() for a in pair])
    secret = _scaled(group, rule, flat, rows, total)
    wide = group.over(rule.ring)
    sums = yield from summed(wide, "average/counts", secret)
    logs = []
    for k, start in enumerate(range(0, len(sums), BATCH)):
        part = sums[start : start + BATCH]
        logs.append((yield from logs_of(wide, f"average/log/{k}", part, rule)))
    arrays = quotients(pairs, np.concatenate(logs))
    if not forest.flat:
        arrays.update((yield from _weights(group, forest, arrays)))
    return Shares(run, group.me, group.members, arrays)


def logarithm(forest: Forest, members: int, total: int | None) -> Logarithm:
    """How logarithms are taken of what a forest adds up to."""
    least = USED + (LEAF if forest.flat else LEAST_WEIGHT) + 1  # a bit for rounding
    return Logarithm(members, least if total is not None else least + ROWS)


def pairs_of(forest: Forest, parameters: Parameters) -> dict[str, Pair]:
    """What one party's row adds, of every leaf and sum by name."""
    uses = usage(forest.circuit, parameters)
    found: dict[str, Pair] = {}
    for node in forest.circuit.nodes:
        used = np.maximum(uses[node.name], 2.0**-USED)
        if isinstance(node, Leaf):
            found[node.name] = (used[:, None, None] * table(node, parameters), used)
        elif isinstance(node, Sum):
            found[node.name] = (used[:, None] * parameters[node.name][WEIGHT], used)
    return {name: (np.minimum(a, 1.0), np.minimum(b, 1.0)) for name, (a, b) in found.items()}


def _scaled(group: Group, rule: Logarithm, each: Array, rows: int, total: int | None) -> Elements:
    """A party's numbers as elements: of all its rows, as a part of all rows."""
    most = (1 << ROWS) // len(group.members)
    if total is None and rows > most:
        raise ParameterError(
            f"a secret number of rows needs at most {most:,} at each of {len(group.members)} "
            f"parties, {group.me} has more: take public_total=True, or fewer rows"
        )
    rule.check(each if total is not None else each * 2.0**-ROWS)
    share = rows / (1 << ROWS) if total is None else rows / total
    return FixedPoint(rule.precision, 1, rule.ring).encode(each * share, "expected counts")


def quotients(pairs: Mapping[str, Pair], logs: Elements) -> dict[str, Elements]:
    """Shares of log2 of every parameter, from those of all sums end to end."""
    found: dict[str, Elements] = {}
    start = 0
    for name, (above, below) in pairs.items():
        middle, stop = start + above.size, start + above.size + below.size
        numerators = logs[start:middle].reshape(*above.shape, FIELD.limbs)
        each = (len(below), *[1] * (above.ndim - 1), FIELD.limbs)
        found[name] = FIELD.subtract(numerators, logs[middle:stop].reshape(each))
        start = stop
    return found


def _weights(
    group: Group, forest: Forest, logs: Mapping[str, Elements]
) -> Flow[dict[str, Elements]]:
    """Weights of all sums, over the ring of the circuit, from their logarithms."""
    names = [n.name for n in forest.circuit.nodes if isinstance(n, Sum)]
    rule = Power(len(group.members), LEAST_WEIGHT, WEIGHT_FRACTION, forest.ring(len(group.members)))
    flat = np.concatenate([logs[n].reshape(-1, FIELD.limbs) for n in names])
    values = yield from powers_of(group, "average/weights", flat, rule)
    found, start = {}, 0
    for name in names:
        shape = logs[name].shape[:-1]
        stop = start + int(np.prod(shape))
        found[name] = values[start:stop].reshape(*shape, rule.landing.limbs)
        start = stop
    return found
