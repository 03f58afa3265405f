"""fedcircuits on the same jobs, run by the interpreter of the benchmark itself."""

import numpy as np
import torch
import trees
from measure import read_job, report, start_memory, timed
from passes import load_optimiser

import fedcircuits as fc
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.family import family

TYPES = {"float32": torch.float32, "float64": torch.float64}


def region_circuit(data, units):
    """The region graph of the npz; partitions of a region share one sum."""
    grey = "probability" in data
    schema = fc.Schema.real(data["x"].shape[1])
    if grey:
        schema = fc.Schema(tuple(fc.Variable(n, "count", most=255) for n in schema.names))
    leaves = len(data["leaf_scope"])
    nodes, values = [], {}
    for i, scope in enumerate(data["leaf_scope"]):
        rule = "categorical" if grey else "gaussian"
        nodes.append(fc.Leaf(f"{i}", rule, tuple(f"x{v}" for v in scope), units))
        values[f"{i}"] = _leaf_values(data, i, grey)
    for region in dict.fromkeys(data["part"][:, 0].tolist()):
        members = np.flatnonzero(data["part"][:, 0] == region)
        weights = data["weight"][members].astype(np.float64) * data["mix"][members][:, :, None]
        _add_sum(nodes, values, f"{region}", data["part"][members, 1:], weights, units, not grey)
    weights = (data["root_weight"] * data["root_mix"][:, None]).astype(np.float64)[:, None]
    _add_sum(nodes, values, "root", data["root_part"], weights, 1, not grey)
    assert leaves == sum(isinstance(n, fc.Leaf) for n in nodes)
    return fc.Circuit(tuple(nodes), schema), fc.Parameters(values)


def _leaf_values(data, i, grey):
    if not grey:
        return {n: data[n][i].astype(np.float64) for n in ("mean", "variance")}
    table = data["probability"][i].astype(np.float64)[:, None]
    return {"probability": table / table.sum(axis=2, keepdims=True)}


def _add_sum(nodes, values, name, pairs, weights, units, outer):
    parts = tuple(f"{name}/{i}" for i in range(len(pairs)))
    nodes.extend(
        fc.Product(part, (f"{left}", f"{right}"), outer=outer)
        for part, (left, right) in zip(parts, pairs, strict=True)
    )
    nodes.append(fc.Sum(name, parts, units))
    joined = np.concatenate(list(weights), axis=1)
    values[name] = {"weight": joined / joined.sum(axis=1, keepdims=True)}


def tensorised(job):
    """Forward pass, EM step or Adam step over the batch of the npz, in single precision."""
    torch.set_num_threads(job["threads"])
    with np.load(job["path"]) as file:
        data = {name: file[name] for name in file.files}
    x = torch.from_numpy(data["x"])
    load_optimiser()
    family("gaussian")  # families of leaves are loaded when the first of them is needed
    base = start_memory()
    circuit, parameters = region_circuit(data, job["units"])
    program = CircuitProgram(circuit, torch.float32)
    packed = program.pack(parameters)
    check = float(program.log_values(x, packed).double().mean())
    if job["pass"] == "forward":
        action = lambda: program.log_values(x, packed)  # noqa: E731
    elif job["pass"] == "em":
        action = lambda: program.maximise(program.counts(x, packed), packed)  # noqa: E731
    else:
        action = adam_step(Differentiable(program, parameters), x)
    _, seconds = timed(action, job["repeats"], warmups=3)
    report(base, parameters=parameters.count(), check=check, **seconds)


def adam_step(model, x):
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def action():
        optimiser.zero_grad()
        (-model(x).mean()).backward()
        optimiser.step()

    return action


def tree_circuit(tree, columns):
    """A tree of ``trees`` as a circuit over boolean variables."""
    schema = fc.Schema(tuple(fc.Variable(f"x{i}", "boolean") for i in range(columns)))
    nodes, values = [], {}
    for node in trees.bottom_up(tree):
        name, children = str(node["id"]), tuple(map(str, node.get("c", ())))
        if node["t"] == "b":
            nodes.append(fc.Leaf(name, "bernoulli", (f"x{node['v']}",)))
            values[name] = {"probability": np.array([[np.clip(node["p"], 1e-12, 1 - 1e-12)]])}
        elif node["t"] == "s":
            weight = np.array([node["w"]])
            nodes.append(fc.Sum(name, children))
            values[name] = {"weight": weight / weight.sum()}
        else:
            nodes.append(fc.Product(name, children))
    return fc.Circuit(tuple(nodes), schema), fc.Parameters(values)


def evaluate_tree(job):
    """Log-likelihood of the test rows under a tree that a peer has learned."""
    torch.set_num_threads(job["threads"])
    with np.load(job["path"]) as file:
        test = torch.from_numpy(file["test"].astype(np.float64))
    base = start_memory()
    tree = trees.read(job["tree"])
    circuit, parameters = tree_circuit(tree, test.shape[1])
    program = CircuitProgram(circuit, TYPES[job["dtype"]])
    packed = program.pack(parameters)
    values, seconds = timed(lambda: program.log_values(test, packed), job["repeats"], warmups=2)
    check = float(values.double().mean())
    report(base, nodes=len(circuit), rows=len(test), check=check, **seconds)


def synthetic_tree(job):
    """Memory of a large irregular tree of mixed leaves over many rows."""
    torch.set_num_threads(job["threads"])
    rng = np.random.default_rng(0)
    circuit, parameters, x = random_tree(job["nodes"], job["variables"], job["rows"], rng)
    program = CircuitProgram(circuit)
    packed = program.pack(parameters)
    program.log_values(x[:64], packed)  # compiled before memory is counted
    base = start_memory()
    values, seconds = timed(lambda: program.log_values(x, packed), job["repeats"])
    check = float(values.mean())
    report(base, nodes=len(circuit), rows=len(x), check=check, **seconds)


def random_tree(size, variables, rows, rng):
    """About ``size`` nodes: sums of 2 to 5, products of 2 to 6, leaves of three families."""
    kinds = rng.integers(0, 3, variables)
    kind = ("real", "boolean", "category")
    schema = fc.Schema(
        tuple(
            fc.Variable(f"x{i}", kind[k], tuple("abcd") if k == 2 else ())
            for i, k in enumerate(kinds)
        )
    )
    nodes, values = [], {}

    def leaf(v):
        name = f"{len(nodes)}"
        if kinds[v] == 0:
            values[name] = {
                "mean": rng.normal(size=(1, 1)),
                "variance": rng.uniform(0.1, 1, (1, 1)),
            }
        else:
            p = (
                rng.dirichlet(np.ones(4))[None, None]
                if kinds[v] == 2
                else rng.uniform(0.1, 0.9, (1, 1))
            )
            values[name] = {"probability": p}
        nodes.append(fc.Leaf(name, ("gaussian", "bernoulli", "categorical")[kinds[v]], (f"x{v}",)))
        return name

    def product(children):
        if len(children) == 1:
            return children[0]
        nodes.append(fc.Product(f"{len(nodes)}", tuple(children)))
        return nodes[-1].name

    def build(scope, budget, as_sum):
        if budget < 2 * len(scope) or (len(scope) == 1 and not as_sum):
            return product([leaf(v) for v in scope])
        if as_sum:
            arity = int(rng.integers(2, 6))
            children = [build(scope, budget / arity, False) for _ in range(arity)]
            nodes.append(fc.Sum(f"{len(nodes)}", tuple(children)))
            values[nodes[-1].name] = {"weight": rng.dirichlet(np.ones(arity))[None]}
            return nodes[-1].name
        parts = np.array_split(rng.permutation(scope), min(len(scope), int(rng.integers(2, 7))))
        return product([build(p, budget * len(p) / len(scope), True) for p in parts])

    build(np.arange(variables), size, True)
    columns = [
        rng.normal(size=rows) if k == 0 else rng.integers(0, 2 if k == 1 else 4, rows)
        for k in kinds
    ]
    return (
        fc.Circuit(tuple(nodes), schema),
        fc.Parameters(values),
        torch.from_numpy(np.stack(columns, 1).astype(float)),
    )


if __name__ == "__main__":
    work = read_job()
    kinds_of_work = {
        "rat": tensorised,
        "pd": tensorised,
        "quad": tensorised,
        "tree": evaluate_tree,
        "synthetic": synthetic_tree,
    }
    kinds_of_work[work["kind"]](work)
