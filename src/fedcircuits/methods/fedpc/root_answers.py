"""Likelihoods of which the coordinator learns the root alone: leaves are added up on shares.

Every child c of the root is a product of one leaf, or mixture of leaves, per party, so its log2 is
a sum over parties: L(c) = log2 w_c + Σ_p v_p(c). Parties raise 2 to it on shares (powers.py), add
up over c, and open the sum to the coordinator. All parties of the model take part, so that nobody
sees whose columns are asked about.

    query/evidence       coordinator → party: values and regions of its columns, for all rows
    query/combinations   coordinator → party: which of its leaves are below which child
    root/masks/k         first t + 1 parties → party: shares of masks, their powers, and noise
    root/products/k/…    party → party: shares of products of these powers, ⌈log2(t + 1)⌉ rounds
    root/weights/k       coordinator → party: shares of log2 w
    root/values/k        party → party: shares of its v(c) less its bound, and of the bound
    root/exponents/k     party → party: L(c) under masks
    root/noise/k         party → party: shares of the sum times a random factor
    root/bound/k         party → coordinator: a share of the sum of bounds
    root/answer/k        party → coordinator: a share of the sum over c, under noise
    query/again          coordinator → party: which rows are asked once more

**Range.** A party's bound is its highest v(c), rounded up to a multiple of STEP bits; what it deals
is 0 or less, and nothing below ``clip`` bits. A sum within ``depth`` bits of the bounds is found to
an error below 1e-6 nats. Rows that lie deeper are asked again with the next of DEPTHS, and what is
below the last is returned as −∞.

**Noise.** Σ_c 2^L(c) would tell its terms in its last bits. So V·(2^shift + ρ) + φ is opened, of
which t + 1 parties draw parts: ρ moves V by up to 2^−PRECISION of it, and φ covers the steps that ρ
makes up to a distance of 2^−40.

The coordinator learns the answer and the bound, parties the evidence on their columns and which
rows lie deep; any t parties, and the coordinator with them, learn nothing else. This holds if all
follow the protocol: a coordinator that makes up combinations could have one leaf answer alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, log1p, log2
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.queryable import Index
from fedcircuits.errors import ProtocolError, QueryError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, compute, receive, send
from fedcircuits.federation.messages import (
    Booleans,
    Count,
    FiniteMatrix,
    Message,
    require,
    require_shape,
)
from fedcircuits.federation.placement import View
from fedcircuits.methods.fedpc.query import Asker, evidence_for, leaf_values, told_question
from fedcircuits.methods.fedpc.question import QueryEvidence, Question, check_rows_behind
from fedcircuits.methods.refinement.roles import checked_weights
from fedcircuits.methods.refinement.sums import combinations_of
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import (
    FRACTION,
    contributed,
    contributors,
    mantissas,
    multiplied,
    power_masks,
    weighted_powers,
)
from fedcircuits.privacy.operations.products import HIDING, MASKED, reduced
from fedcircuits.privacy.sharing.group import Group, Lot, opened, opened_to, shared, summed
from fedcircuits.privacy.sharing.shares import threshold

DEPTHS = (64, 512, 4096)  # bits below the bounds
STEP = 16  # bits: bounds are multiples
PRECISION = 22  # bits of an answer that noise leaves
LOWEST = -(2.0**40)  # log2 of a value below which it is impossible
ROOM = 1 << 24  # bytes of masks that are dealt at once
POINT = FixedPoint(FRACTION, 44)
BOUND = f"per row, an upper bound of the likelihood, in steps of {STEP} bits"
ANSWER = "the likelihood of each row"


class OwnCombinations(Message, frozen=True):
    """Coordinator → party: children of the root, and what it has below each of them."""

    tag: ClassVar[str] = "query/combinations"
    reveals: ClassVar[str] = "which combinations contain each of the reader's clusters"

    rows: Count  # of the evidence
    children: Count
    below: list[list[str]]  # its leaves and mixtures below every child
    mixtures: dict[str, list[str]]  # leaves of every mixture
    weights: dict[str, FiniteMatrix]  # (1, leaves) of every mixture

    def check(self, rows: int, leaves: set[str]) -> None:
        """That it speaks of these leaves, and of as many rows as the evidence."""
        kind, wrong = OwnCombinations, f"expected {rows} rows, as {QueryEvidence.tag!r} has"
        require(self.rows == rows, COORDINATOR, kind, "rows", wrong)
        fits = self.children == len(self.below) > 0
        require(fits, COORDINATOR, kind, "children", "expected as many as there is something below")
        shapes = {name: (1, len(weights)) for name, weights in self.mixtures.items()}
        checked_weights(self.weights, shapes, COORDINATOR, kind, "weights")
        problem = f"expected leaves and mixtures of {', '.join(sorted(leaves))}"
        mixed = {name for weights in self.mixtures.values() for name in weights}
        apart = mixed <= leaves and not leaves & self.mixtures.keys()
        require(apart, COORDINATOR, kind, "mixtures", problem)
        below = {name for names in self.below for name in names}
        known = below <= leaves | self.mixtures.keys()
        require(known, COORDINATOR, kind, "below", problem)


class RowsAgain(Message, frozen=True):
    """Coordinator → party: of the rows just answered, those to ask again."""

    tag: ClassVar[str] = "query/again"
    reveals: ClassVar[str] = (
        "which rows are much less likely than the bounds of all parties suggest"
    )

    again: Booleans


@dataclass(frozen=True, slots=True)
class RootScale:
    """The numbers of a run among so many members, in bits."""

    members: int
    children: int
    depth: int

    @property
    def clip(self) -> int:
        """What one party may take off: with more, all children together are below the noise."""
        return self.depth + PRECISION + self.children.bit_length()

    @property
    def guard(self) -> int:
        """Added to exponents, of which the weights are one more part, so that none wraps round."""
        return (self.members + 1) * self.clip + threshold(self.members) + 2

    @property
    def unit(self) -> int:
        """V is 2^unit where the sum is 1."""
        return self.guard + mantissas(threshold(self.members))

    @property
    def shift(self) -> int:
        return self.depth + PRECISION + HIDING + 1

    @property
    def noise(self) -> tuple[int, int]:
        """Of one contributor's part of ρ and of φ."""
        parts = ceil(log2(threshold(self.members) + 1))
        return self.shift - PRECISION - parts, self.unit + 1 + HIDING - parts

    @property
    def ring(self) -> Ring:
        return Ring(next_prime(self.unit + self.shift + 3))

    @property
    def batch(self) -> int:
        """Rows at a time."""
        return max(1, ROOM // (8 * self.ring.limbs * self.children * self.members))

    def pieces(self, rows: int) -> list[slice]:
        return [slice(at, min(at + self.batch, rows)) for at in range(0, rows, self.batch)]

    def log2_of(self, values: Elements, members: Sequence[str]) -> Array:
        """log2 of the sums (rows,), without the mean of the noise; −∞ where they lie too deep."""
        parts = threshold(self.members) + 1
        factor, addend = (parts << (bits - 1) for bits in self.noise)
        least, logs = 1 << (self.unit - self.depth + self.shift), np.full(len(values), -np.inf)
        for i, whole in enumerate(self.ring.integers(values)):
            value = int(whole) - addend
            if not -addend <= value < 1 << (self.unit + self.shift + 2):
                raise ProtocolError(
                    f"the answer for row {i} is not a likelihood: one of {', '.join(members)} "
                    "dealt a wrong share; nothing is returned: ask again"
                )
            if value >= least:
                centre = log1p(factor / (1 << self.shift)) / log(2)
                logs[i] = log2(value) - self.unit - self.shift - centre
        return logs


# ---------------------------------------------------------------------- parties


def respond(view: View, members: tuple[str, ...], key: bytes) -> Flow[int | None]:
    """Answer one question together; returns as ``query.respond`` does."""
    question = told_question(view.schema, (yield from receive(COORDINATOR, QueryEvidence)))
    plain = question.kind == "values"
    require(
        plain,
        COORDINATOR,
        QueryEvidence,
        "kind",
        "expected 'values': answers of leaves are not sent",
    )
    graph = yield from receive(COORDINATOR, OwnCombinations)
    graph.check(len(question.x), {leaf.name for leaf in view.leaves})
    check_rows_behind(view, question)
    answered = view.budget.after(len(question.x), view.me)
    values = yield from compute("evaluating its leaves", lambda: _values(view, question, graph))
    if np.isnan(values).any():
        raise QueryError(f"leaves of {view.me} give the evidence no finite likelihood")
    group, done = Group.of(view.me, members, key, "root"), 0
    for depth in DEPTHS:
        if depth > DEPTHS[0]:
            again = (yield from receive(COORDINATOR, RowsAgain)).again
            require_shape(again, (len(values),), COORDINATOR, RowsAgain, "again")
            values = values[again]
        scale = RootScale(len(members), graph.children, depth)
        for piece in scale.pieces(len(values)):
            yield from _added(group, str(done), scale, values[piece])
            done += 1
    return answered


def _values(view: View, question: Question, graph: OwnCombinations) -> Array:
    """log2 of what it has below every child, (rows, children)."""
    asked = question.leaves_asked(view.leaves, view.schema)
    logs = {leaf.name: np.zeros(len(question.x)) for leaf in view.leaves}
    logs |= {leaf.name: leaf_values(view, leaf, question) for leaf in asked}
    for name, leaves in graph.mixtures.items():
        with np.errstate(divide="ignore"):
            weighted = np.log(graph.weights[name][0])[:, None] + np.stack([logs[n] for n in leaves])
        logs[name] = np.asarray(logsumexp(weighted, axis=0))
    sums = np.zeros((len(question.x), graph.children))
    for i, names in enumerate(graph.below):
        for name in names:
            sums[:, i] += logs[name]
    return sums / log(2)


def dealt_values(values: Array, clip: int) -> Array:
    """What a party deals: its values less its bound, and the bound, (rows, children + 1)."""
    highest = values.max(axis=1)
    possible = highest > LOWEST
    bound = np.where(possible, STEP * np.ceil(np.where(possible, highest, 0.0) / STEP), 0.0)
    low = np.where(possible[:, None], np.maximum(values - bound[:, None], -clip), -float(clip))
    return np.column_stack([low, bound])


def _added(group: Group, tag: str, scale: RootScale, values: Array) -> Flow[None]:
    """One batch of rows, (rows, children), to the answer at the coordinator."""
    ring, wide, shape = scale.ring, group.over(scale.ring), values.shape
    each = Lot(ring, shape[:1])
    rho, phi = _noise(group, scale, len(values))
    masks = [*power_masks(group, ring, shape), (each, group.threshold, rho)]
    masks.append((each, group.threshold, phi))
    masked = yield from contributed(wide, f"root/masks/{tag}", masks)
    covers, powers, factors, floods = masked
    inverses = yield from multiplied(wide, f"root/products/{tag}", powers)
    weights = yield from shared(
        group, f"root/weights/{tag}", None, shape[1:], dealers=[COORDINATOR]
    )
    encoded = POINT.encode(dealt_values(values, scale.clip), "log-values")
    total = yield from summed(group, f"root/values/{tag}", encoded)
    raised = FIELD.add(weights[0], FIELD.elements(scale.guard << FRACTION))
    hidden = FIELD.add(FIELD.add(total[:, :-1], raised), FIELD.sum(covers))
    level = 2 * group.threshold
    seen = yield from opened(group, f"root/exponents/{tag}", hidden, MASKED, level)
    root = weighted_powers(ring, seen, inverses)
    factor = ring.add(ring.sum(factors), ring.elements(1 << scale.shift))
    noisy = yield from reduced(wide, f"root/noise/{tag}", ring.multiply(root, factor))
    answer, bound = ring.add(noisy, ring.sum(floods)), total[:, -1]
    yield from opened_to(group, f"root/bound/{tag}", COORDINATOR, bound, shape[:1], BOUND)
    yield from opened_to(wide, f"root/answer/{tag}", COORDINATOR, answer, shape[:1], ANSWER)


def _noise(group: Group, scale: RootScale, rows: int) -> list[Elements | None]:
    """A contributor's parts of ρ and φ."""
    if group.me not in contributors(group):
        return [None, None]
    return [scale.ring.reduced(group.stream.bits((rows,), bits)) for bits in scale.noise]


# ---------------------------------------------------------------------- the coordinator


def evaluate(asker: Asker, question: Question, members: tuple[str, ...], key: bytes) -> Flow[Array]:
    """log p(x, regions), (rows,); every different row is asked once."""
    question, source = _different(question)
    graphs = combinations_of(asker.joint, members)
    for party, graph in graphs.items():
        evidence, _ = evidence_for(asker, party, question, every=True)
        yield from send(party, evidence, reveals=evidence.revealing)
        size, mixtures = (len(question.x), len(graph.below)), graph.mixtures
        weights = {name: graph.weights[name] for name in mixtures}
        yield from send(party, OwnCombinations(*size, graph.below, mixtures, weights))
    with np.errstate(divide="ignore"):
        log_weights = np.log2(graph.weights[graph.root][0])
    group, done = Group.of(COORDINATOR, members, key, "root"), 0
    logs, left = np.full(len(question.x), -np.inf), np.arange(len(question.x))
    for depth in DEPTHS:
        if depth > DEPTHS[0]:
            again = np.isneginf(logs[left])
            yield from broadcast(members, RowsAgain(again))
            left = left[again]
        scale = RootScale(len(members), len(log_weights), depth)
        for piece in scale.pieces(len(left)):
            rows = left[piece]
            logs[rows] = yield from _asked(group, str(done), scale, log_weights, len(rows))
            done += 1
    return logs[source] * log(2)


def _asked(group: Group, tag: str, scale: RootScale, log_weights: Array, rows: int) -> Flow[Array]:
    """log2 of one batch of answers."""
    weights = POINT.encode(np.maximum(log_weights, -scale.clip), "weights")
    shape = (len(log_weights),)
    yield from shared(group, f"root/weights/{tag}", weights, shape, dealers=[COORDINATOR])
    bound = yield from opened_to(group, f"root/bound/{tag}", COORDINATOR, None, (rows,), BOUND)
    wide = group.over(scale.ring)
    values = yield from opened_to(wide, f"root/answer/{tag}", COORDINATOR, None, (rows,), ANSWER)
    assert bound is not None and values is not None
    return np.asarray(POINT.decode(bound) + scale.log2_of(values, group.members))


def _different(question: Question) -> tuple[Question, Index]:
    """The question about every different row, and which of them each row is."""
    known = np.nan_to_num(question.x, nan=np.inf)  # as NaN, gaps would never be equal
    rows, source = np.unique(known, axis=0, return_inverse=True)
    x = np.where(np.isinf(rows), np.nan, rows)
    return Question(question.kind, x, question.regions), source.reshape(-1)
