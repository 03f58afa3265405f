"""Kernels are compiled once, for one kind of arrays, whatever arrays they are given."""

from __future__ import annotations

import numpy as np

from fedcircuits.privacy.arithmetic import prime_kernels, ring_kernels
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.operations import powers
from fedcircuits.privacy.operations.powers import (
    compile_kernels,
    inverse_powers,
    weighted_powers,
)


def compiled() -> dict[str, int]:
    """How often each loop has been compiled; what is only called by others stands aside."""
    modules = {"prime": prime_kernels, "ring": ring_kernels, "powers": powers}
    return {
        f"{name}.{kernel}": len(value.signatures)
        for name, module in modules.items()
        for kernel, value in vars(module).items()
        if hasattr(value, "signatures") and (not kernel.startswith("_") or kernel == "_split")
    }


def test_once_for_all_arrays() -> None:
    compile_kernels()
    assert set(compiled().values()) == {1} and len(compiled()) >= 12
    for ring in (FIELD, Ring(607)):
        row = ring.elements(np.arange(8).reshape(2, 4))
        row.flags.writeable = False
        for odd in (row, row[::-1], row[:, ::2], np.broadcast_to(row[:1, :1], row.shape)):
            ring.add(odd, ring.multiply(odd, odd))
            ring.inner(odd, odd)
            ring.rotate(ring.reduced(ring.mix([[1, -1]], odd)), 3)
        shift = FIELD.elements(np.arange(4).reshape(2, 2))[:, ::-1]
        weighted_powers(ring, shift, inverse_powers(ring, shift)[::-1])
    assert set(compiled().values()) == {1}
