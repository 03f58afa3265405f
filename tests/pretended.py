"""A second type of device without hardware, where every operation is checked by CUDA's rules.

``pretended:0`` is a device of torch (its private-use type) whose tensors are kept by the processor:
values are real, so that branches on values and shapes that depend on them work, and answers can be
compared. Before an operation is computed, the same operation runs on torch's fake tensors of a CUDA
device in place of the pretended one: torch refuses it there if it mixes tensors of two devices, and
tells on which device its results lie. Numbers of no dimension may come from the processor, as on a
real device.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


@cache
def pretended() -> torch.device:
    """The device, made known to torch once."""
    _setup_privateuseone_for_python_backend("pretended")
    return torch.device("pretended:0")


class Elsewhere(torch.Tensor):
    """A tensor of the pretended device."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, values.stride(), values.storage_offset(), dtype=values.dtype,
            device=pretended(), requires_grad=values.requires_grad,
        )  # fmt: skip
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called outside of PretendedDevice")

    def __repr__(self) -> str:
        return f"Elsewhere({self.values})"


class _Arrays(TorchFunctionMode):
    """Arrays become tensors of the processor, which are moved: torch would not let us see it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.tolist and isinstance(args[0], Elsewhere):
            return args[0].values.tolist()  # torch has it not for tensors like these
        if func is torch.Tensor.backward:  # while a call is handled, its mode is off
            with self:
                return torch.autograd.Variable._execution_engine.run_backward(
                    (args[0],), (torch.ones_like(args[0]),), False, False, (),
                    allow_unreachable=True, accumulate_grad=True,
                )  # fmt: skip
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            return func(args[0], _as_tensors(args[1], args[0].device), *args[2:])
        if func in (torch.as_tensor, torch.tensor) and not isinstance(args[0], torch.Tensor):
            device = kwargs.pop("device", None)
            made = func(*args, **kwargs)
            return made if device is None else made.to(device)
        return func(*args, **kwargs)


def _as_tensors(index: Any, device: torch.device) -> Any:
    """Lists and arrays of an index as tensors, as torch reads them."""
    if isinstance(index, tuple):
        return tuple(_as_tensors(i, device) for i in index)
    if not isinstance(index, list | np.ndarray):
        return index
    return torch.tensor(index, dtype=None if len(index) else torch.long).to(device)


class PretendedDevice(TorchDispatchMode):
    """``with PretendedDevice() as device: …``; ``device.operations`` counts what ran on it."""

    def __init__(self) -> None:
        super().__init__()
        self.device = pretended()
        self.operations: Counter[str] = Counter()
        self.fake = FakeTensorMode()
        self.arrays = _Arrays()
        self.known: dict[Any, bool] = {}

    def __enter__(self) -> PretendedDevice:
        self.arrays.__enter__()
        self.backward = torch.autograd.set_multithreading_enabled(False)  # in this thread
        self.backward.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.backward.__exit__(*error)
        self.arrays.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        moved = self._is_elsewhere(func, args, kwargs)
        self.operations[str(func)] += moved
        wrappers: dict[int, Elsewhere] = {}

        def real(value: Any) -> Any:
            if isinstance(value, Elsewhere):
                wrappers[id(value.values)] = value
                return value.values
            return CPU if isinstance(value, torch.device) else value

        def back(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            known = wrappers.get(id(value))  # of an operation in place
            return known if known is not None else Elsewhere(value) if moved else value

        return tree_map(back, func(*tree_map(real, args), **tree_map(real, kwargs)))

    def _is_elsewhere(self, func: Any, args: Any, kwargs: Any) -> bool:
        """The same question, of tensors on the same devices, is asked once."""
        key = (func, tuple(kwargs), *map(_place, tree_leaves((args, kwargs))))
        if key not in self.known:
            self.known[key] = self._asked(func, args, kwargs)
        return self.known[key]

    def _asked(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether results lie on the device, as fake tensors of CUDA say."""

        def imagined(value: Any) -> Any:
            if isinstance(value, torch.device):
                return CUDA if value == self.device else value
            if not isinstance(value, torch.Tensor):
                return value
            away = isinstance(value, Elsewhere)
            blank = (value.values if away else value).detach().to("meta")
            return FakeTensor(self.fake, blank, CUDA if away else CPU)

        with _disable_current_modes():
            some, named = tree_map(imagined, args), tree_map(imagined, kwargs)
            try:
                with self.fake:
                    found = tree_leaves(func(*some, **named))
            except (DataDependentOutputException, DynamicOutputShapeException):
                found = []
        devices = [v.device for v in found if isinstance(v, torch.Tensor)]
        if devices:
            return devices[0] == CUDA
        given = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        return any(isinstance(v, Elsewhere) for v in given)


def _place(value: Any) -> object:
    """What the rules of devices depend on."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, Elsewhere), value.dim() == 0
    return value if isinstance(value, torch.device) else None
