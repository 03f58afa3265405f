"""SPFlow 1.1.0: the Einet of ``spflow.zoo`` on a random binary region graph, and LearnSPN.

The library draws its own permutations, so the graph of the npz is written over its factorisation
matrix and its parameters; ``RepetitionMixingLayer`` holds the weights of the repetitions. EM runs
without bias correction: the library normalises leaf weights to sum to 1 and would divide by 0.
"""

import numpy as np
import torch
from measure import read_job, report, start_memory, timed
from passes import Model, run
from spflow.learn.expectation_maximization import expectation_maximization
from spflow.learn.learn_spn import learn_spn
from spflow.modules.leaves import Bernoulli, Normal
from spflow.zoo.einet import Einet


def build(data, units):
    """The Einet with the structure and the parameters of the npz."""
    repetitions = len(data["root_part"])
    regions = len(data["leaf_scope"]) // repetitions
    variables = data["x"].shape[1]
    leaf = Normal(scope=list(range(variables)), out_channels=units, num_repetitions=repetitions)
    einet = Einet(
        [leaf],
        num_sums=units,
        num_leaves=units,
        depth=regions.bit_length() - 1,
        num_repetitions=repetitions,
        layer_type="einsum",
    )
    _fill_leaves(einet, leaf, data, repetitions, regions)
    _fill_sums(einet, data, repetitions, units)

    def em_step(x):
        einet.zero_grad()
        expectation_maximization(einet, x, max_steps=1, bias_correction=False)

    return Model(einet, lambda x: einet.log_likelihood(x).reshape(len(x)), em_step)


def _fill_leaves(einet, leaf, data, repetitions, regions):
    indices = torch.zeros_like(einet.factorize.indices)  # (variables, regions, repetitions)
    mean, scale = torch.empty_like(leaf.loc.data), torch.empty_like(leaf.loc.data)
    for number, scope in enumerate(data["leaf_scope"]):
        repetition, region = divmod(number, regions)
        indices[scope, region, repetition] = 1
        mean[scope, :, repetition] = torch.from_numpy(data["mean"][number].T)
        scale[scope, :, repetition] = torch.from_numpy(data["variance"][number].T).sqrt()
    einet.factorize.indices.copy_(indices)
    leaf.loc.data.copy_(mean)
    leaf.scale = scale


def _fill_sums(einet, data, repetitions, units):
    mixing = einet.root_node
    mixing.log_weights = torch.from_numpy(data["root_mix"]).log().reshape(1, 1, repetitions)
    layer = mixing.inputs
    weight = torch.from_numpy(data["root_weight"]).log()
    layer.log_weights = weight.reshape(1, 1, repetitions, units, units)
    end = len(data["weight"])
    while hasattr(layer.inputs.inputs, "log_weights"):  # from the top: 2, 4, 8 regions
        layer = layer.inputs.inputs
        count = layer.weights_shape[0] * repetitions
        weight = torch.from_numpy(data["weight"][end - count : end]).log()
        weight = weight.reshape(repetitions, -1, units, units, units)
        layer.log_weights = weight.permute(1, 2, 0, 3, 4).contiguous()
        end -= count


def learn_job(job):
    """Time LearnSPN (gaussian or bernoulli leaves) on the train rows and score the test rows."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["settings"]["seed"])
    with np.load(job["path"]) as file:
        train, test = (
            torch.from_numpy(file[name].astype(np.float32)) for name in ("train", "test")
        )
    leaf = Normal if job["learner"] == "gaussian" else Bernoulli
    base = start_memory()
    action = lambda: learn_spn(  # noqa: E731
        train,
        leaf(scope=list(range(train.shape[1]))),
        min_instances_slice=job["settings"]["min_rows"],
        partitioning_args={"threshold": 0.3},
    )
    model, seconds = timed(action, job["repeats"], warmups=0)
    with torch.no_grad():
        check = model.log_likelihood(test).double().mean().item()
    report(base, nodes=len(list(model.modules())), rows=len(train), check=check, **seconds)


if __name__ == "__main__":
    job = read_job()
    {"rat": lambda j: run(j, build), "learn": learn_job}[job["kind"]](job)
