"""Learned circuits as a message: graphs as JSON, and every array under its circuit and node.

    "graphs"                          bytes (uint8) of JSON: circuits by name, without nested ones
    '["circuit", "node", "parameter"]'  an array of float64

What arrives is checked like a file before anything is made of it, and its sender is blamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.errors import FedcircuitsError, ProtocolError
from fedcircuits.federation.wire import AnyArray

GRAPHS = "graphs"
Learned: TypeAlias = tuple[Circuit, Parameters]


def on_wire(circuits: Mapping[str, Learned]) -> dict[str, AnyArray]:
    """Circuits by name as named arrays; circuits that are leaves are written out."""
    graphs: dict[str, object] = {}
    arrays: dict[str, AnyArray] = {}
    for name, learned in circuits.items():
        circuit, parameters = inline(*learned)
        graphs[name] = circuit.to_json()
        for node in circuit.by_name:
            if node in parameters:
                for key, array in parameters[node].items():
                    arrays[_key([name, node, key])] = array
    return {GRAPHS: np.frombuffer(_key(graphs).encode(), np.uint8), **arrays}


def off_wire(message: Mapping[str, AnyArray], sender: str, tag: str) -> dict[str, Learned]:
    """The circuits of a message, or ProtocolError; other entries of it are left aside."""
    try:
        graphs = json.loads(message[GRAPHS].tobytes())
        values: dict[str, dict[str, dict[str, AnyArray]]] = {name: {} for name in graphs}
        for key, array in message.items():
            if key.startswith("["):
                name, node, parameter = json.loads(key)
                values[name].setdefault(node, {})[parameter] = np.array(array)
        return {name: _checked(graph, values[name]) for name, graph in graphs.items()}
    except (FedcircuitsError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(
            f"{sender} sent circuits under {tag!r} that cannot be read: {error}"
        ) from error


def _checked(graph: object, values: Mapping[str, Mapping[str, AnyArray]]) -> Learned:
    circuit = Circuit.from_json(graph)
    if surplus := [node for node in values if node not in circuit.by_name]:
        raise ProtocolError(f"there are arrays for {surplus[0]!r}, which is no node")
    parameters = Parameters(values)  # type: ignore[arg-type]  # the check finds other types
    parameters.check(circuit)
    return circuit, parameters


def _key(names: object) -> str:
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False)
