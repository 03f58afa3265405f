"""libcirkit 0.3.1 (GPL, comparison only): Tucker or transposed CP layers on any region graph.

Parameters are given to the compiler as constant initialisers, in the order in which
``RegionGraph.build_circuit`` asks for them: regions in topological order, per region one dense
layer for each partition, then the mixing layer where there are several. The parameterisation is
the library's own default (softmax weights, deviations by a sigmoid between 1e-5 and 1).
"""

import functools
from collections import defaultdict

import numpy as np
from cirkit.pipeline import PipelineContext
from cirkit.symbolic.initializers import ConstantTensorInitializer
from cirkit.symbolic.layers import CategoricalLayer, GaussianLayer
from cirkit.symbolic.parameters import (
    Parameter,
    ScaledSigmoidParameter,
    SoftmaxParameter,
    TensorParameter,
    mixing_weight_factory,
)
from cirkit.templates.region_graph.graph import PartitionNode, RegionGraph, RegionNode
from cirkit.utils.scope import Scope
from measure import read_job
from passes import Model, run

LOWEST = 1e-5


def build(data, units):
    """The compiled circuit with the structure and the parameters of the npz."""
    grey = "probability" in data
    graph, leaf_of, weights_of = _region_graph(data)
    asked = iter(_in_order(graph, weights_of))
    factory = lambda shape: _weights(shape, next(asked))  # noqa: E731
    symbolic = graph.build_circuit(
        input_factory={
            scope: functools.partial(_categorical if grey else _gaussian, data, leaf)
            for scope, leaf in leaf_of.items()
        },
        sum_product="cp-t" if grey else "tucker",
        sum_weight_factory=factory,
        nary_sum_weight_factory=functools.partial(mixing_weight_factory, param_factory=factory),
        num_input_units=units,
        num_sum_units=units,
    )
    context = PipelineContext(backend="torch", semiring="lse-sum", fold=True, optimize=True)
    circuit = context.compile(symbolic)
    return Model(circuit, lambda x: circuit(x).reshape(len(x)))


def _region_graph(data):
    """The graph, the leaf number of each leaf scope, and (weights, mixing) of each inner region."""
    regions = {i: RegionNode(scope.tolist()) for i, scope in enumerate(data["leaf_scope"])}
    leaf_of = {node.scope: i for i, node in regions.items()}
    nodes, inputs, weights_of = list(regions.values()), defaultdict(list), defaultdict(list)

    def add(region, left, right, weight, mix):
        scope = [*regions[left].scope, *regions[right].scope]
        if region not in regions:
            regions[region] = RegionNode(scope)
            nodes.append(regions[region])
        partition = PartitionNode(scope)
        nodes.append(partition)
        inputs[regions[region]].append(partition)
        inputs[partition] = [regions[left], regions[right]]
        weights_of[regions[region]].append((weight, mix))

    for (region, left, right), weight, mix in zip(
        data["part"], data["weight"], data["mix"], strict=True
    ):
        add(region, left, right, weight, mix)
    for (left, right), weight, mix in zip(
        data["root_part"], data["root_weight"], data["root_mix"], strict=True
    ):
        add("root", left, right, weight[None], mix[None])
    return RegionGraph(nodes, inputs, outputs=[regions["root"]]), leaf_of, weights_of


def _in_order(graph, weights_of):
    for node in graph.topological_ordering():
        if node in weights_of:
            yield from (weight for weight, _ in weights_of[node])
            if len(weights_of[node]) > 1:
                yield np.stack([mix for _, mix in weights_of[node]], axis=1)  # (units, partitions)


def _weights(shape, value):
    return Parameter.from_unary(SoftmaxParameter(shape), _constant(np.log(value)))


def _constant(value):
    return TensorParameter(*value.shape, initializer=ConstantTensorInitializer(value))


def _gaussian(data, leaf, scope, units):
    place = int(np.flatnonzero(data["leaf_scope"][leaf] == next(iter(Scope(scope))))[0])
    share = (np.sqrt(data["variance"][leaf, :, place]) - LOWEST) / (1 - LOWEST)
    raw = _constant(np.log(share / (1 - share)))
    return GaussianLayer(
        scope,
        units,
        mean=Parameter.from_input(_constant(data["mean"][leaf, :, place])),
        stddev=Parameter.from_unary(ScaledSigmoidParameter((units,), vmin=LOWEST, vmax=1.0), raw),
    )


def _categorical(data, leaf, scope, units):
    probability = data["probability"][leaf]
    weights = _weights(probability.shape, np.maximum(probability, 1e-30))
    return CategoricalLayer(scope, units, num_categories=probability.shape[1], probs=weights)


if __name__ == "__main__":
    run(read_job(), build)
