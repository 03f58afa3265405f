"""What every process of a party starts with: the library loaded, its kernels compiled.

Importing this module compiles the loops of circuits/evaluation/kernel.py and of
learning/encoders/networks.py, or reads them from the disk. The server that party processes are
forked from imports it once. Numba writes the index of its cache and the entries one after the
other, so processes that compile at the same time may corrupt it: one compiles, and the others find
everything done. It uses a single thread: a process that has run torch on several cannot be forked.
"""

from __future__ import annotations

import gc
from importlib import import_module

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.learning.encoders import networks
from fedcircuits.tables.schema import Schema


def load_library() -> None:
    """All that programs of parties may need; by name, as engines see nothing above them."""
    library = import_module("fedcircuits")
    for name in library.__all__:
        getattr(library, name)


def compile_kernels() -> None:
    """By a mixture of two normal distributions, evaluated and counted in both precisions, and for
    recurrent networks."""
    circuit = Circuit((Leaf("x", "gaussian", ("x",), 2), Sum("root", ("x",))), Schema.real(["x"]))
    normal = {"mean": np.array([[0.0], [1.0]]), "variance": np.ones((2, 1))}
    parameters = Parameters({"x": normal, "root": {"weight": np.array([[0.5, 0.5]])}})
    for dtype in (torch.float64, torch.float32):
        program = CircuitProgram(circuit, dtype)
        packed, x = program.pack(parameters), torch.zeros(1, 1, dtype=torch.float64)
        program.log_values(x, packed)
        program.counts(x, packed)
    networks.loops()


def _on_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        compile_kernels()
    finally:
        torch.set_num_threads(before)


gc.disable()  # a fifth of the time that libraries take to load
load_library()
_on_one_thread()
gc.freeze()  # what is loaded is shared with the processes of parties, untouched
gc.enable()
