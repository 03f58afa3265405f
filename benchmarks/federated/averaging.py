"""FedAvg and SplitNN as flows of this library, so that one ledger counts everybody's bytes.

FedAvg, split by rows: the coordinator sends the weights, every party goes once over its rows and
sends its own back, the average by rows begins the next round. Parties standardise by sums of all
(sent once) and hold a tenth of their rows back.

SplitNN, split by columns: every party turns a batch of its columns into a few numbers, the party
with the label reads them all, and sends back the gradient by each. Rows are in the same order.

Both end when the loss of rows held back has not fallen for five rounds (FedAvg) or epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import fedcircuits as fc
from benchmarks.federated import networks
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, gather, receive, send
from fedcircuits.federation.messages import AnyNumbers, Message, Reals

PATIENCE = 5
HELD = 10  # every tenth row is held back
CUT = 16  # numbers per row and party that cross in a split network


class Numbers(Message, frozen=True):
    """Sums of columns, weights, values of rows or gradients."""

    values: AnyNumbers


class Trained(Message, frozen=True):
    """A party's weights after a round, and the loss of its rows held back before it."""

    loss: float
    rows: int
    weights: Reals


@dataclass(frozen=True, slots=True)
class Learned:
    network: nn.Sequential
    sums: Array
    rounds: int
    losses: tuple[float, ...]
    joint: nn.Sequential | None = None  # of a split network, where the label is


def _classes(table: fc.Table, target: str) -> tuple[fc.Table, Tensor]:
    y = table.values[:, table.schema.index(target)].astype(np.int64)
    return table.select(n for n in table.names if n != target), torch.from_numpy(y)


def _waited(losses: Sequence[float]) -> bool:
    """Whether the last few are no better than what was before."""
    return len(losses) > PATIENCE and min(losses[-PATIENCE:]) >= min(losses[:-PATIENCE])


# ---------------------------------------------------------------------- split by rows


def averaged(table: fc.Table, target: str, width: int, seed: int) -> Flow[Learned]:
    """A party of FedAvg."""
    part, y = _classes(table, target)
    told = Numbers(networks.moments(part))
    yield from send(COORDINATOR, told, "scale/sums", "sums of its columns")
    sums = (yield from receive(COORDINATOR, Numbers, "scale/all")).values
    x = networks.features(part, sums)
    held = torch.arange(len(y)) % HELD == 0
    network = networks.layers((x.shape[1], width, _size(table, target)), seed)
    rng, number = np.random.default_rng(seed), 0
    while True:
        weights = (yield from receive(COORDINATOR, Numbers, f"round/weights/{number}")).values
        if not weights.size:
            return Learned(network, sums, number, ())
        networks.load(network, weights)
        loss = float(networks.loss(network, x[held], y[held]))
        networks.epoch(network, x[~held], y[~held], rng)
        own = Trained(loss, len(y), networks.vector(network))
        yield from send(COORDINATOR, own, f"round/own/{number}", "its weights and loss")
        number += 1


def averaging(
    members: Sequence[str], sizes: tuple[int, int, int], most: int, seed: int
) -> Flow[Learned]:
    """The coordinator of FedAvg."""
    found = yield from gather(members, Numbers, "scale/sums")
    sums = sum(found[m].values for m in members)
    yield from broadcast(members, Numbers(np.asarray(sums)), "scale/all")
    network = networks.layers(sizes, seed)
    losses: list[float] = []
    best = networks.vector(network).copy()
    for number in range(most):
        now = networks.vector(network).copy()
        tag = f"round/weights/{number}"
        yield from broadcast(members, Numbers(now), tag, "averaged weights")
        trained = list((yield from gather(members, Trained, f"round/own/{number}")).values())
        rows = np.array([t.rows for t in trained])
        losses.append(float(np.average([t.loss for t in trained], weights=rows)))
        best = now if losses[-1] <= min(losses) else best
        if _waited(losses):
            break
        mean = np.average([t.weights for t in trained], axis=0, weights=rows)
        networks.load(network, mean)
    end = Numbers(np.zeros(0, np.float32))
    yield from broadcast(members, end, f"round/weights/{len(losses)}")
    networks.load(network, best)
    return Learned(network, np.asarray(sums), len(losses), tuple(losses))


# ---------------------------------------------------------------------- split by columns


def bottom(table: fc.Table, holder: str, width: int, seed: int) -> Flow[Learned]:
    """A party of a split network that does not know the label."""
    sums = networks.moments(table)
    x = networks.features(table, sums)
    network = networks.layers((x.shape[1], width, CUT), seed)
    steps = torch.optim.Adam(network.parameters(), lr=networks.RATE)
    rng, number = np.random.default_rng(seed), 0
    held = np.arange(len(x)) % HELD == 0
    while True:
        for rows in networks.batches(int((~held).sum()), rng):
            values = network(x[~held][rows])
            numbers = Numbers(values.detach().numpy())
            yield from send(holder, numbers, "batch/values", "numbers of rows")
            back = np.array((yield from receive(holder, Numbers, "batch/gradient")).values)
            steps.zero_grad()
            values.backward(torch.from_numpy(back))
            steps.step()
        yield from send(holder, Numbers(network(x[held]).detach().numpy()), "held/values")
        number += 1
        if (yield from receive(holder, Numbers, "held/over")).values.any():
            return Learned(network, sums, number, ())


def top(
    table: fc.Table, target: str, others: Sequence[str], width: int, most: int, seed: int
) -> Flow[Learned]:
    """The party that knows the label: its own bottom, and what reads all of them."""
    part, y = _classes(table, target)
    sums = networks.moments(part)
    x = networks.features(part, sums)
    own = networks.layers((x.shape[1], width, CUT), seed)
    joint = networks.layers((CUT * (len(others) + 1), _size(table, target)), seed)
    steps = torch.optim.Adam([*own.parameters(), *joint.parameters()], lr=networks.RATE)
    rng, losses = np.random.default_rng(seed), list[float]()
    held = np.arange(len(x)) % HELD == 0
    for _ in range(most):
        for rows in networks.batches(int((~held).sum()), rng):
            heard = yield from _heard(others, "batch/values")
            steps.zero_grad()
            values = torch.cat([own(x[~held][rows]), *heard], dim=1)
            nn.functional.cross_entropy(joint(values), y[~held][rows]).backward()  # type: ignore[no-untyped-call]
            steps.step()
            for other, value in zip(others, heard, strict=True):
                assert value.grad is not None
                gradient = Numbers(value.grad.numpy())
                yield from send(other, gradient, "batch/gradient", "gradients of rows")
        heard = yield from _heard(others, "held/values")
        with torch.no_grad():
            found = joint(torch.cat([own(x[held]), *heard], dim=1))
            losses.append(float(nn.functional.cross_entropy(found, y[held])))
        over = _waited(losses) or len(losses) == most
        yield from broadcast(others, Numbers(np.array([over])), "held/over")
        if over:
            break
    return Learned(own, sums, len(losses), tuple(losses), joint)


def _heard(others: Sequence[str], tag: str) -> Flow[list[Tensor]]:
    found = yield from gather(others, Numbers, tag)
    return [torch.from_numpy(np.array(found[o].values)).requires_grad_() for o in others]


def _size(table: fc.Table, target: str) -> int:
    return table.schema[target].size or 0
