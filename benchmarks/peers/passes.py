"""The three passes of a tensorised circuit: forward, Adam step, EM step.

A worker hands over a ``Model``; the pass named by the job is timed on the rows of the npz. The
check value is the mean log-likelihood at the given parameters, before any step. Every repeat
starts from those parameters: repeated EM steps on one small batch without a variance floor soon
degenerate, which is not what is measured.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measure import report, start_memory, timed


@dataclass(frozen=True)
class Model:
    module: torch.nn.Module
    log_likelihood: Callable  # (rows, variables) -> (rows,)
    em_step: Callable | None = None  # (rows, variables) -> None
    after_step: Callable = lambda: None  # keeps parameters in their domain


def run(job: dict[str, Any], build: Callable[[dict[str, Any], int], Model]) -> None:
    """Build the model from the npz named by the job, run its pass, report."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    with np.load(job["path"]) as file:
        data = {name: file[name] for name in file.files}
    x = torch.from_numpy(data["x"])
    load_optimiser()
    base = start_memory()
    model = build(data, job["units"])
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    with torch.no_grad():
        check = model.log_likelihood(x).mean().item()
    action = {"forward": _forward, "adam": _adam, "em": _em}[job["pass"]](model, parameters, x)
    given = copy.deepcopy(model.module.state_dict())
    restore = None if job["pass"] == "forward" else lambda: model.module.load_state_dict(given)
    _, seconds = timed(action, job["repeats"], before=restore)
    with torch.no_grad():
        after = model.log_likelihood(x).mean().item()
    if not np.isfinite(after):
        raise SystemExit(f"the log-likelihood is {after} after {job['pass']} steps")
    count = sum(p.numel() for p in parameters)
    report(base, parameters=count, check=check, check_after=after, **seconds)


def load_optimiser():
    """Torch loads much of itself at the first step of an optimiser: library, not model."""
    number = torch.nn.Parameter(torch.zeros(1))
    (number * 2).sum().backward()
    torch.optim.Adam([number]).step()


def _forward(model, parameters, x):
    def action():
        with torch.no_grad():
            return model.log_likelihood(x)

    return action


def _adam(model, parameters, x):
    optimiser = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def action():
        optimiser.zero_grad()
        (-model.log_likelihood(x).mean()).backward()
        optimiser.step()
        model.after_step()

    return action


def _em(model, parameters, x):
    if model.em_step is None:
        raise SystemExit("this model has no EM step")
    return lambda: model.em_step(x)
