"""The operations that circuits run on another device: ``python -m benchmarks.devices``.

They run on a pretended device (tests/pretended.py), each of them also on torch's fake tensors of a
CUDA device, which refuse a mixture of devices. Values are compared with those of the processor.
"""

from __future__ import annotations

import numpy as np
import torch

import fedcircuits as fc
from tests.pretended import PretendedDevice


def main() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(40, size=300)
    table = fc.Table.of(
        {
            "age": rng.normal(50, 15, 300),
            "dose": rng.gamma(2.0, 1.0, 300),
            "visits": rng.poisson(3, 300),
            "code": [f"c{k}" for k in kinds],
            "sex": rng.choice(["f", "m"], 300),
        }
    )
    graph = fc.structures.random_binary(table.schema, depth=2, repetitions=2, units=16, rng=rng)
    near = fc.CircuitModel(graph).fit(table, epochs=2, random_state=0)
    gaps = table.to_pandas().head(50)
    gaps.loc[:25, "age"] = np.nan

    def gradient(away: fc.CircuitModel) -> None:
        module = away.to_module(double=True)
        optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
        rows = torch.tensor(np.array(table.values)[:64]).to(device.device).requires_grad_()
        module(rows).mean().backward()
        optimiser.step()

    parts = {
        "forward": lambda away: away.score_samples(table),
        "events": lambda away: away.probability("age > 60", given="sex = f"),
        "moments": lambda away: away.expect("age", given=gaps[["dose", "sex"]]),
        "EM step": lambda away: fc.CircuitModel(graph, near.parameters_, device=away.device).fit(
            table, epochs=1, random_state=0
        ),
        "gradient step": gradient,
        "sampling": lambda away: away.sample(50, random_state=0),
        "MPE": lambda away: away.mpe(gaps),
    }
    for name, run in parts.items():
        with PretendedDevice() as device:
            run(fc.CircuitModel(graph, near.parameters_).to(str(device.device)))
        words = sorted(o.removeprefix("aten.") for o, n in device.operations.items() if n)
        print(f"{name}: {sum(device.operations.values())} operations, {len(words)} kinds")
        print("   ", " ".join(words))
    with PretendedDevice() as device:
        away = fc.CircuitModel(graph, near.parameters_).to(str(device.device))
        gap = np.abs(away.score_samples(table) - near.score_samples(table)).max()
    print(f"largest difference of log-likelihoods to the processor: {gap:.1e}")


if __name__ == "__main__":
    main()
