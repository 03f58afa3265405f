"""deeprob-kit 1.1.0: RatSpn on a random binary region graph, learned trees, learners.

Trees are learned by ``learn_spn`` (k-means rows, G-test columns, Bernoulli leaves) once, kept as
JSON and rebuilt from it for evaluation, so that every side evaluates one and the same circuit.
"""

import numpy as np
import torch
import trees
from classes import macro_f1
from deeprob.spn.algorithms.inference import log_likelihood
from deeprob.spn.learning.wrappers import learn_estimator
from deeprob.spn.models.ratspn import GaussianRatSpn
from deeprob.spn.structure.leaf import Bernoulli, Categorical, Gaussian
from deeprob.spn.structure.node import Product, Sum, assign_ids, topological_order
from measure import read_job, report, start_memory, timed
from passes import Model, run


def build(data, units):
    """The RatSpn with the structure and the parameters of the npz."""
    repetitions = len(data["root_part"])
    leaves = len(data["leaf_scope"]) // repetitions
    model = GaussianRatSpn(
        data["x"].shape[1],
        rg_depth=leaves.bit_length() - 1,
        rg_repetitions=repetitions,
        rg_batch=units,
        rg_sum=units,
        random_state=0,
        optimize_scale=True,
    )
    base = model.base_layer
    base.mask.copy_(torch.from_numpy(data["leaf_scope"]))
    base.loc.data.copy_(torch.from_numpy(data["mean"]))
    base.scale.data.copy_(torch.from_numpy(data["variance"]).sqrt())
    begin = 0
    for layer in model.layers:
        if hasattr(layer, "weight"):
            end = begin + len(layer.weight)
            layer.weight.data.copy_(torch.from_numpy(data["weight"][begin:end]).log())
            begin = end
    root = data["root_weight"] * data["root_mix"][:, None]
    model.root_layer.weight.data.copy_(torch.from_numpy(root).log().reshape(1, -1))
    return Model(model, lambda x: model(x)[:, 0], after_step=model.apply_constraints)


def evaluate_tree(job):
    """Learn the tree unless it is kept, rebuild it, time the test rows."""
    with np.load(job["path"]) as file:
        train, test = (file[name].astype(np.float32) for name in ("train", "test"))
    settings = {"peer": "deeprob-kit 1.1.0", "learner": "gtest", **job["settings"]}
    place = trees.kept_at(job["trees"], job["path"], settings)
    if not place.is_file():
        trees.write(place, to_json(learn(train, "gtest", **job["settings"])))
    base = start_memory()
    tree = trees.read(place)
    root = from_json(tree)
    values, seconds = timed(lambda: log_likelihood(root, test), job["repeats"])
    report(
        base,
        tree=str(place),
        nodes=len(tree["nodes"]),
        parameters=trees.parameter_count(tree),
        rows=len(test),
        check=float(np.mean(values, dtype=np.float64)),
        **seconds,
    )


def learn(train, learner, min_rows, seed, sizes=None):
    """A circuit by one of the library's learners: gtest, gtest-clt, xpc or rdc-gaussian.

    ``sizes`` of a mixed table are the numbers of codes by column, 0 for a real.
    """
    columns = train.shape[1]
    if sizes is not None:
        return learn_estimator(
            train,
            [Categorical if size else Gaussian for size in sizes],
            [list(range(size)) if size else (-np.inf, np.inf) for size in sizes],
            split_rows="kmeans",
            split_cols="rdc",
            min_rows_slice=min_rows,
            random_state=seed,
            verbose=False,
        )
    if learner == "xpc":
        kind = {"det": False, "sd": False, "min_part_inst": min_rows, "conj_len": 2, "arity": 4}
        domains = [[0, 1]] * columns
        return learn_estimator(train, [Bernoulli] * columns, domains, method="xpc", **kind)
    real = learner == "rdc-gaussian"
    return learn_estimator(
        train,
        [Gaussian if real else Bernoulli] * columns,
        None if real else [[0, 1]] * columns,  # a constant column would lose one of its values
        learn_leaf="binary-clt" if learner == "gtest-clt" else "mle",
        split_rows="kmeans",
        split_cols="rdc" if real else "gvs",
        min_rows_slice=min_rows,
        random_state=seed,
        verbose=False,
    )


def learn_job(job):
    """Time a learner on the train rows and score the test rows."""
    with np.load(job["path"]) as file:
        train, test = (file[name].astype(np.float32) for name in ("train", "test"))
    base = start_memory()
    action = lambda: learn(train, job["learner"], **job["settings"])  # noqa: E731
    root, seconds = timed(action, job["repeats"], warmups=0)
    values = np.asarray(log_likelihood(root, test), dtype=np.float64)
    if "classes" in job:  # the last column is one
        found = macro_f1(lambda x: log_likelihood(root, x), test, test.shape[1] - 1, job["classes"])
        seconds["macro_f1"] = found
    nodes = len(topological_order(root))
    report(base, nodes=nodes, rows=len(train), check=float(values.mean()), **seconds)


def to_json(root):
    """The circuit in the simple form of ``trees``."""
    nodes = []
    for node in topological_order(root):
        if isinstance(node, Bernoulli):
            nodes.append({"id": node.id, "t": "b", "v": int(node.scope[0]), "p": float(node.p)})
            continue
        record = {"id": node.id, "t": "p", "c": [child.id for child in node.children]}
        if isinstance(node, Sum):
            record |= {"t": "s", "w": [float(weight) for weight in node.weights]}
        nodes.append(record)
    return {"root": root.id, "nodes": nodes}


def from_json(tree):
    """The circuit of ``trees`` in the library's own nodes."""
    made = {}
    for node in trees.bottom_up(tree):
        if node["t"] == "b":
            made[node["id"]] = Bernoulli(node["v"], node["p"])
            continue
        children = [made[child] for child in node["c"]]
        if node["t"] == "s":
            weights = np.array(node["w"], dtype=np.float32)
            made[node["id"]] = Sum(children[0].scope, children, weights)
        else:
            scope = [variable for child in children for variable in child.scope]
            made[node["id"]] = Product(scope, children)
    return assign_ids(made[tree["root"]])


if __name__ == "__main__":
    job = read_job()
    kinds = {"rat": lambda j: run(j, build), "tree": evaluate_tree, "learn": learn_job}
    kinds[job["kind"]](job)
