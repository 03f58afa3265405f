"""Softened edges: draws against theorem 1, how fast they become edges, and Gumbel's rule beside.

"distance" is the largest between the empirical distribution of 10⁶ draws and the theorem's (chance
alone gives about 0.001), over θ = 0.1, 0.3, 0.5, 0.9; bias is the mean over θ of |E[z] − θ|, beside
its leading term; E[z − (z > ½)] is the same and has less noise, since P(z > ½) = θ. It falls with
τ². z is computed in double precision here: in single, many draws
near 1 become the same number. Seconds are of drawing alone, in single precision as in a fusion.
"""

import time
from math import pi, sqrt

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.graph.family import Array
from fedcircuits.methods.fusion.heads import Reference, quantile, reference_draws, softened

REFERENCES: tuple[Reference, ...] = ("logistic", "normal")

DRAWS = 1_000_000
PROBABILITIES = (0.1, 0.3, 0.5, 0.9)
TEMPERATURES = (0.4, 0.2, 0.1, 0.05)


def theorem(
    t: npt.ArrayLike, probability: float, temperature: float, reference: Reference
) -> Array:
    """P(z ≤ t) = 1 − F(F⁻¹(θ) + τ log(1/t − 1)), theorem 1 of the paper.

    >>> float(theorem(0.5, 0.3, 0.1, "logistic").round(3))
    0.7
    """
    shift = temperature * np.log(1 / np.asarray(t, np.float64) - 1)
    at = torch.tensor(probability, dtype=torch.float64)
    moved = quantile(at, reference) + torch.as_tensor(shift)
    below = torch.sigmoid(moved) if reference == "logistic" else torch.special.ndtr(moved)
    return np.asarray((1 - below).numpy())


def bias(probability: float, temperature: float, reference: Reference) -> float:
    """E[z] − θ, by its leading term: the density's slope at F⁻¹(θ) times τ² π² / 6.

    >>> round(bias(0.1, 0.1, "logistic"), 4)
    0.0012
    """
    at = quantile(torch.tensor(probability, dtype=torch.float64), reference).item()
    if reference == "logistic":
        slope = probability * (1 - probability) * (1 - 2 * probability)
    else:
        slope = -at * np.exp(-(at**2) / 2) / sqrt(2 * pi)
    return float(slope * temperature**2 * pi**2 / 6)


def run() -> list[Json]:
    rows: list[dict[str, Cell]] = []
    source = torch.Generator().manual_seed(0)
    for temperature in TEMPERATURES:
        for rule in (*REFERENCES, "gumbel"):
            gaps, biases, terms = [], [], []
            for probability in PROBABILITIES:
                drawn = _drawn(rule, probability, temperature, source, torch.float64)
                biases.append(abs(float((drawn - (drawn > 0.5).double()).mean())))
                reference = "logistic" if rule == "gumbel" else rule
                terms.append(abs(bias(probability, temperature, reference)))  # type: ignore[arg-type]
                gaps.append(_distance(drawn, probability, temperature, reference))
            start = time.process_time()
            _drawn(rule, 0.3, temperature, source, torch.float32)
            seconds = time.process_time() - start
            mean = float(np.mean(biases))
            rows.append({
                "temperature": temperature, "rule": rule, "distance": max(gaps), "bias": mean,
                "leading term": float(np.mean(terms)), "bias / τ²": mean / temperature**2,
                "ms for 10⁶": 1000 * seconds,
            })  # fmt: skip
    print_table(rows)
    return [{"table": "edges", **row} for row in rows]


def _drawn(
    rule: str, probability: float, temperature: float, source: torch.Generator, dtype: torch.dtype
) -> torch.Tensor:
    theta = torch.full((DRAWS,), probability, dtype=dtype)
    if rule != "gumbel":
        noise = reference_draws((DRAWS,), rule, source).to(dtype)  # type: ignore[arg-type]
        return softened(theta, noise, temperature, rule)  # type: ignore[arg-type]
    least = torch.finfo(torch.float32).tiny
    two = -torch.log(-torch.log(torch.rand((2, DRAWS), generator=source).clamp(min=least)))
    return torch.sigmoid((torch.logit(theta) + (two[0] - two[1]).to(dtype)) / temperature)


def _distance(drawn: torch.Tensor, probability: float, temperature: float, rule: str) -> float:
    z = np.sort(drawn.numpy())
    inside = (z > 1e-12) & (z < 1 - 1e-12)
    expected = theorem(z[inside], probability, temperature, rule)  # type: ignore[arg-type]
    return float(np.abs(expected - (np.arange(DRAWS)[inside] + 0.5) / DRAWS).max())


if __name__ == "__main__":
    run()
