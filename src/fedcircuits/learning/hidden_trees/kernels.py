"""Compiled loops of EM over a hidden tree: what lies between its matrix products.

Values of a node are u (batch, states), in linear space, divided by their largest; the logarithm of
what they were divided by is added up for every row. So nothing is exponentiated, and what is lost
is below 1e-8 of a node's largest state. A row in which a product of values comes near the end of
the type is marked by LOST, and takes no part.
"""

from __future__ import annotations

from math import log

import numba as nb
import numpy as np

LEAST = np.float32(1e-30)  # of the largest state, when one more factor has come in
LOST = -1e100  # compilers may take it that there are no infinities
ZERO, ONE = np.float32(0.0), np.float32(1.0)
FAST = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}
ALONE = 1 << 18  # numbers multiplied in a product of matrices that a BLAS leaves on one thread
compiled = nb.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@nb.njit(cache=True, nogil=True)
def codes_of(x, first, levels, out):  # type: ignore[no-untyped-def]
    """Rows of the table that values (batch, variables) look up, (variables, batch); −1 is none."""
    for b in range(x.shape[0]):
        for v in range(x.shape[1]):
            value = x[b, v]
            out[v, b] = first[v] + int(value) if 0 <= value < levels[v] else -1


@compiled
def _divided(u):  # type: ignore[no-untyped-def]
    """u by its largest, which is returned; zeros, and 0, where that is too small."""
    most = ZERO
    for k in range(u.shape[0]):
        most = max(most, u[k])
    factor = ONE / most if most >= LEAST else ZERO
    for k in range(u.shape[0]):
        u[k] *= factor
    return most if most >= LEAST else ZERO


@compiled
def values_of(a, b, rows, codes, variables, leaves, children, sums, values, logs):  # type: ignore[no-untyped-def]
    """u of nodes a to b: their leaves at the values of the rows, times the sums of their children.

    ``own`` and ``children`` are (pointers, indices). Leaves are tables, with
    probabilities (scale · table + flat + back · picture of its two ranges) · inverse.
    """
    table, scale, flat, back, range_of, next_one, pictures, inverse = leaves
    for n in range(a, b):
        for r in range(rows[0], rows[1]):
            u = values[n, r]
            u[:] = ONE
            total, factors = 0.0, 0
            for e in range(variables[0][n], variables[0][n + 1]):
                v = variables[1][e]
                at = codes[v, r]
                if at >= 0:
                    line, over, more, picked = table[at], inverse[v], flat[at], back[at]
                    if picked > ZERO:
                        before, behind = pictures[range_of[at]], pictures[range_of[at] + 1]
                        second = picked * next_one[at]
                        first = picked - second
                        for k in range(u.shape[0]):
                            ranges = first * before[k] + second * behind[k]
                            u[k] *= (scale * line[k] + more + ranges) * over[k]
                    else:
                        for k in range(u.shape[0]):
                            u[k] *= (scale * line[k] + more) * over[k]
                    factors += 1
                    if factors > 1:
                        most = _divided(u)
                        total += log(most) if most > ZERO else LOST
            for e in range(children[0][n], children[0][n + 1]):
                s = sums[children[1][e], r]
                for k in range(u.shape[0]):
                    u[k] *= s[k]
                factors += 1
                if factors > 1:
                    most = _divided(u)
                    total += log(most) if most > ZERO else LOST
            if factors == 1:
                most = _divided(u)
                total += log(most) if most > ZERO else LOST
            logs[r] += total


@compiled
def sums_of(a, b, rows, values, weight, sums):  # type: ignore[no-untyped-def]
    """Sums above nodes a to b, values · weightᵀ, by pieces of the rows."""
    step = max(1, ALONE // weight[0].size)
    for n in range(a, b):
        u, s = values[n], sums[n]
        for first in range(rows[0], rows[1], step):
            last = min(first + step, rows[1])
            np.dot(u[first:last], weight[n].T, s[first:last])


@compiled
def draw(table, inverse, first, sizes, back, range_of, next_one, pictures):  # type: ignore[no-untyped-def]
    """Add the shares of levels to their two ranges; inverse (variables, K) is of the counts."""
    for v in range(len(first)):
        over = inverse[v]
        for at in range(first[v], first[v] + sizes[v]):
            if back[at] > ZERO:
                line, share = table[at], next_one[at]
                before, behind = pictures[range_of[at]], pictures[range_of[at] + 1]
                for k in range(line.shape[0]):
                    part = line[k] * over[k]
                    before[k] += (ONE - share) * part
                    behind[k] += share * part


@compiled
def root_of(weight, row_weight, u, logs, counts):  # type: ignore[no-untyped-def]
    """The root's sum: ends ``logs``, turns u into flows and adds the weights' expected counts."""
    for r in range(len(row_weight)):
        total = ZERO
        for k in range(len(weight)):
            u[r, k] *= weight[k]
            total += u[r, k]
        sound = total > ZERO and logs[r] > LOST / 2
        logs[r] = logs[r] + log(total) if sound else LOST
        factor = row_weight[r] / total if sound else ZERO
        for k in range(len(weight)):
            u[r, k] *= factor
            counts[k] += u[r, k]


@compiled
def pulls_of(a, b, rows, parent, flows, sums):  # type: ignore[no-untyped-def]
    """In place of the sums of nodes a to b: the flow of each unit by its value."""
    for n in range(a, b):
        above = flows[parent[n]]
        for r in range(rows[0], rows[1]):
            for k in range(sums.shape[2]):
                s = sums[n, r, k]
                sums[n, r, k] = above[r, k] / s if s > ZERO else ZERO


@compiled
def flows_of(a, b, rows, pulled, values):  # type: ignore[no-untyped-def]
    """In place of the values of nodes a to b: their flows, by what was pulled (b − a, batch, K)."""
    for n in range(a, b):
        for r in range(rows[0], rows[1]):
            for k in range(values.shape[2]):
                values[n, r, k] *= pulled[n - a, r - rows[0], k]


@compiled
def down_to(a, b, rows, parent, weight, values, sums, shares):  # type: ignore[no-untyped-def]
    """All three steps down for nodes a to b: pulls, the derivative by the weights, and flows. By
    pieces of the rows that stay in the cache."""
    units = weight.shape[1]
    step = max(1, ALONE // weight[0].size)
    more = np.empty((units, units), np.float32)
    pulled = np.empty((step, units), np.float32)
    for n in range(a, b):
        for first in range(rows[0], rows[1], step):
            last = min(first + step, rows[1])
            pulls_of(n, n + 1, (first, last), parent, values, sums)
            pull, u = sums[n][first:last], values[n][first:last]
            if first == rows[0]:
                np.dot(pull.T, u, shares[n])
            else:
                np.dot(pull.T, u, more)
                shares[n] += more
            np.dot(pull, weight[n], pulled[: last - first])
            for r in range(last - first):
                for k in range(units):
                    u[r, k] *= pulled[r, k]


@compiled
def count_leaves(a, b, codes, variables, flows, factor, table, total):  # type: ignore[no-untyped-def]
    """Flows of nodes a to b at the levels of the rows, times a factor; their sums, without it."""
    for n in range(a, b):
        for e in range(variables[0][n], variables[0][n + 1]):
            v = variables[1][e]
            for r in range(codes.shape[1]):
                at = codes[v, r]
                if at >= 0:
                    f, line, whole = flows[n, r], table[at], total[v]
                    for k in range(f.shape[0]):
                        line[k] += factor * f[k]
                        whole[k] += f[k]


@compiled
def move_weights(a, b, average, counted, rate, rows, smoothing, least, weight):  # type: ignore[no-untyped-def]
    """Nodes a to b: the running average of the expected counts of weights, and the weights.

    ``counted`` (threads, nodes, K, K) are derivatives by the weights, each of some of the rows;
    every unit is given ``smoothing`` pseudo-rows for each state, spread as all units together read
    the states.
    """
    units, states = weight.shape[1], weight.shape[2]
    share = np.empty(states, np.float32)
    kept = ONE - rate
    for n in range(a, b):
        share[:] = ZERO
        for i in range(units):
            for t in range(1, counted.shape[0]):
                for j in range(states):
                    counted[0, n, i, j] += counted[t, n, i, j]
            for j in range(states):
                new = kept * average[n, i, j] + rate * rows * counted[0, n, i, j] * weight[n, i, j]
                average[n, i, j] = new
                share[j] += new
        whole = ZERO
        for j in range(states):
            whole += share[j]
        factor = smoothing * states / max(whole, LEAST)
        for j in range(states):
            share[j] = share[j] * factor
        for i in range(units):
            total = ZERO
            for j in range(states):
                total += average[n, i, j] + share[j]
            over = ONE / max(total, LEAST)
            for j in range(states):
                weight[n, i, j] = max((average[n, i, j] + share[j]) * over, least)
