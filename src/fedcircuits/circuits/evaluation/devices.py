"""Where a program computes: on the processor, or on another device that torch knows.

While a method of a program runs, its device is torch's default one. Whatever is made meanwhile, by
steps and by families alike, lies there: index tensors, masks, values. Arrays become tensors by
``torch.as_tensor``, which follows the default device (``torch.from_numpy`` does not), and tensors
become arrays by ``.cpu().numpy()``. The compiled loops of the processor give way to the steps, and
threads to the device's own parallelism. M-steps of leaves, which see sums and no rows, and random
draws stay on the processor, so that a seed gives the same draws everywhere.

``Scratch`` is the memory of passes over a circuit, kept from one batch to the next. numpy asks the
operating system for large pages, torch does not: the first use of a new matrix of 25 MB takes 1 ms
instead of 7.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

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


NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A new matrix of the type of another, on its device, that may hold anything."""
    if like.device != CPU or like.dtype not in NUMPY:
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape, NUMPY[like.dtype]))


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """The same, of zeros."""
    if like.device != CPU or like.dtype not in NUMPY:
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, NUMPY[like.dtype]))


class Scratch:
    """Matrices that do not outlive a pass. They are kept, one of each for every pass that runs at
    the same time: fresh memory of this size would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self.free: list[dict[str, Tensor]] = []


class Loan:
    """Matrices of one pass, which go back when nobody holds them any more."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.kept = scratch.free.pop() if scratch.free else {}

    def __del__(self) -> None:
        self.scratch.free.append(self.kept)

    def matrix(self, name: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        size = shape[0] * shape[1]
        if name not in self.kept or self.kept[name].numel() < size:
            self.kept[name] = empty((size,), torch.empty(0, dtype=dtype))
        return self.kept[name][:size].view(shape)
