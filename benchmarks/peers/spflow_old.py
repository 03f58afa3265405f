"""SPFlow 0.0.48: learned trees rebuilt in its nodes, its own trees, and the MSPN learner.

``leaves`` of a tree job says which of its leaves stands for a Bernoulli: "bernoulli" goes through
scipy, "categorical" looks the logarithm up and is the faster one, so comparisons use it.
"""

import numpy as np
import trees
from classes import macro_f1
from measure import read_job, report, start_memory, timed
from spn.algorithms.Inference import log_likelihood
from spn.algorithms.LearningWrappers import learn_mspn, learn_parametric
from spn.structure.Base import Context, Product, Sum, assign_ids, get_nodes_by_type
from spn.structure.leaves.histogram.Inference import add_histogram_inference_support
from spn.structure.leaves.parametric.Inference import add_parametric_inference_support
from spn.structure.leaves.parametric.Parametric import Bernoulli, Categorical, Gaussian
from spn.structure.StatisticalTypes import MetaType

SMALLEST = 1e-6  # its maximum-likelihood leaves may hold 0 and 1


def evaluate_tree(job):
    """Time the test rows on the tree named by the job, or else on one it learned itself."""
    with np.load(job["path"]) as file:
        train, test = (file[name].astype(np.float64) for name in ("train", "test"))
    place = job.get("tree") or _own_tree(job, train)
    base = start_memory()
    tree = trees.read(place)
    root = from_json(tree, job.get("leaves", "categorical"))
    values, seconds = timed(lambda: log_likelihood(root, test), job["repeats"])
    report(
        base,
        tree=str(place),
        nodes=len(tree["nodes"]),
        parameters=trees.parameter_count(tree),
        rows=len(test),
        check=float(values.mean()),
        **seconds,
    )


def _own_tree(job, train):
    settings = {"peer": "SPFlow 0.0.48", "learner": "parametric", **job["settings"]}
    place = trees.kept_at(job["trees"], job["path"], settings)
    if not place.is_file():
        trees.write(place, to_json(learn(train, "parametric", **job["settings"])))
    return place


def learn(train, learner, min_rows, seed, threshold=0.3, sizes=None):
    """A circuit by k-means rows and RDC columns: mspn, mspn-real, parametric or gaussian.

    ``sizes`` of a mixed table are the numbers of codes by column, 0 for a real: mspn then takes
    histograms of both kinds, gaussian takes categorical leaves for codes.
    """
    columns = train.shape[1]
    common = {
        "min_instances_slice": min_rows,
        "threshold": threshold,
        "cpus": 1,
        "rand_gen": np.random.RandomState(seed),
    }
    np.random.seed(seed)  # noqa: NPY002
    if sizes is not None:
        return _learn_mixed(train, learner, sizes, common)
    if learner in ("mspn", "mspn-real"):
        kind = MetaType.DISCRETE if learner == "mspn" else MetaType.REAL
        return learn_mspn(train, Context(meta_types=[kind] * columns).add_domains(train), **common)
    leaf = Gaussian if learner == "gaussian" else Bernoulli
    context = Context(parametric_types=[leaf] * columns).add_domains(train)
    return learn_parametric(train, context, **common)


def _learn_mixed(train, learner, sizes, common):
    kinds = [MetaType.DISCRETE if size else MetaType.REAL for size in sizes]
    leaves = [Categorical if size else Gaussian for size in sizes]
    named = {"meta_types": kinds} if learner == "mspn" else {"parametric_types": leaves}
    context = Context(**named).add_domains(train)
    for column, size in enumerate(sizes):
        if size:  # also codes that no training row has
            context.domains[column] = np.arange(size)
    wrapper = learn_mspn if learner == "mspn" else learn_parametric
    return wrapper(train, context, **common)


def learn_job(job):
    """Time a learner on the train rows and score the test rows."""
    with np.load(job["path"]) as file:
        train, test = (file[name].astype(np.float64) for name in ("train", "test"))
    base = start_memory()
    action = lambda: learn(train, job["learner"], **job["settings"])  # noqa: E731
    root, seconds = timed(action, job["repeats"], warmups=0)
    values = log_likelihood(root, test)
    if "classes" in job:  # the last column is one
        found = macro_f1(lambda x: log_likelihood(root, x), test, test.shape[1] - 1, job["classes"])
        seconds["macro_f1"] = found
    nodes = len(get_nodes_by_type(root))
    report(base, nodes=nodes, rows=len(train), check=float(values.mean()), **seconds)


def to_json(root):
    """The circuit in the simple form of ``trees``."""
    nodes = []
    for node in get_nodes_by_type(root):
        if isinstance(node, Bernoulli):
            chance = min(max(float(node.p), SMALLEST), 1 - SMALLEST)
            nodes.append({"id": node.id, "t": "b", "v": int(node.scope[0]), "p": chance})
            continue
        record = {"id": node.id, "t": "p", "c": [child.id for child in node.children]}
        if isinstance(node, Sum):
            record |= {"t": "s", "w": [float(weight) for weight in node.weights]}
        nodes.append(record)
    return {"root": root.id, "nodes": nodes}


def from_json(tree, leaves):
    """The circuit of ``trees`` in the library's own nodes."""
    made = {}
    for node in trees.bottom_up(tree):
        if node["t"] == "b":
            made[node["id"]] = _leaf(node, leaves)
            continue
        children = [made[child] for child in node["c"]]
        if node["t"] == "s":
            weights = np.array(node["w"])  # single precision sums to 1 only roughly
            inner = Sum((weights / weights.sum()).tolist(), children)
            inner.scope = list(children[0].scope)
        else:
            inner = Product(children)
            inner.scope = [variable for child in children for variable in child.scope]
        made[node["id"]] = inner
    assign_ids(made[tree["root"]])
    return made[tree["root"]]


def _leaf(node, leaves):
    if leaves == "bernoulli":
        return Bernoulli(p=node["p"], scope=node["v"])
    return Categorical(p=[1 - node["p"], node["p"]], scope=node["v"])


if __name__ == "__main__":
    add_parametric_inference_support()
    add_histogram_inference_support()
    job = read_job()
    {"tree": evaluate_tree, "learn": learn_job}[job["kind"]](job)
