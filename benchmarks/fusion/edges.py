"""Softened edges: draws against theorem 1, how fast they become edges, and Gumbel's rule beside.

"distance" is the largest between the empirical distribution of 10⁶ draws and the theorem's (chance
alone gives about 0.001); bias is E[z] − θ. Both rules have a bias that falls with τ².
"""

import time

import numpy as np
import torch

from benchmarks.runner import Cell, Json, print_table
from fedcircuits.learning.consensus_graph import REFERENCES, reference_draws, softened, theorem

DRAWS = 1_000_000
PROBABILITIES = (0.1, 0.3, 0.5, 0.9)
TEMPERATURES = (0.4, 0.2, 0.1, 0.05)


def run() -> list[Json]:
    rows: list[dict[str, Cell]] = []
    source = torch.Generator().manual_seed(0)
    for temperature in TEMPERATURES:
        for rule in (*REFERENCES, "gumbel"):
            gaps, biases = [], []
            start = time.process_time()
            for probability in PROBABILITIES:
                drawn = _drawn(rule, probability, temperature, source)
                biases.append(abs(float(drawn.double().mean()) - probability))
                if rule != "gumbel":
                    gaps.append(_distance(drawn, probability, temperature, rule))
            seconds = time.process_time() - start
            rows.append({
                "temperature": temperature, "rule": rule,
                "distance": max(gaps) if gaps else None, "bias": float(np.mean(biases)),
                "bias / τ²": float(np.mean(biases)) / temperature**2, "s": seconds,
            })  # fmt: skip
    print_table(rows)
    return [{"table": "edges", **row} for row in rows]


def _drawn(
    rule: str, probability: float, temperature: float, source: torch.Generator
) -> torch.Tensor:
    theta = torch.full((DRAWS,), probability)
    if rule != "gumbel":
        noise = reference_draws((DRAWS,), rule, source)  # type: ignore[arg-type]
        return softened(theta, noise, temperature, rule)  # type: ignore[arg-type]
    two = -torch.log(-torch.log(torch.rand((2, DRAWS), generator=source)))
    return torch.sigmoid((torch.logit(theta) + two[0] - two[1]) / temperature)


def _distance(drawn: torch.Tensor, probability: float, temperature: float, rule: str) -> float:
    z = np.sort(drawn.double().numpy())
    inside = (z > 1e-6) & (z < 1 - 1e-6)  # float32 has no number between
    expected = theorem(z[inside], probability, temperature, rule)  # type: ignore[arg-type]
    return float(np.abs(expected - (np.arange(DRAWS)[inside] + 0.5) / DRAWS).max())


if __name__ == "__main__":
    run()
