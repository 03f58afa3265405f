"""Where a program computes: on the processor, or on another device that torch knows.

While a method of a program runs, its device is torch's default one. Whatever is made meanwhile, by
steps and by families alike, lies there: index tensors, masks, values. Arrays become tensors by
``torch.as_tensor``, which follows the default device (``torch.from_numpy`` does not), and tensors
become arrays by ``.cpu().numpy()``. The compiled loops of the processor give way to the steps, and
threads to the device's own parallelism. M-steps of leaves, which see sums and no rows, and random
draws stay on the processor, so that a seed gives the same draws everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from fedcircuits.errors import ParameterError

CPU = torch.device("cpu")
P = ParamSpec("P")
R = TypeVar("R")


class Placed(Protocol):
    """What has a device."""

    @property
    def device(self) -> torch.device: ...


S = TypeVar("S", bound=Placed)


def device_of(given: str | torch.device) -> torch.device:
    """The device of a name such as "cpu", "cuda" or "cuda:1"; ParameterError if it is not here."""
    try:
        device = torch.device(given)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ParameterError(
            f'device must be one that torch can use here, as "cpu", "cuda" or "cuda:1", got '
            f"{given!r} ({reason})"
        ) from None
    return device


def here(device: torch.device) -> AbstractContextManager[Any]:
    """Within it, new tensors lie on the device."""
    return nullcontext() if device == CPU else device


def placed(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method during which new tensors lie on its object's device."""

    @wraps(method)
    def run(self: S, /, *args: P.args, **others: P.kwargs) -> R:
        if self.device == CPU:
            return method(self, *args, **others)
        with self.device:
            return method(self, *args, **others)

    return run
