"""TabNet (pytorch-tabnet 4.1.0) over parties: weights averaged in rounds, or cut after encoders.

By rows every party goes over its rows once a round and the weights, statistics of batches included,
are averaged by rows. By columns every party has a TabNet of its columns with 16 outputs, and the
label's holder a layer that reads them all: gradients go back through the cut.
"""

import json
import sys
import time

import numpy as np
import torch
from measure import read_job
from pytorch_tabnet.tab_network import TabNet

BATCH, CUT, RATE, SPARSITY = 256, 16, 0.02, 1e-3


def network(inputs, outputs):
    group = torch.eye(inputs)
    return TabNet(inputs, outputs, n_d=8, n_a=8, n_steps=3, group_attention_matrix=group)


def batches(rows, rng):
    order = rng.permutation(rows)
    return [b for b in np.array_split(order, max(1, len(order) // BATCH)) if len(b) > 1]


def epoch(model, forward, y, steps, rng, rows):
    model.train()
    for batch in batches(len(rows), rng):
        at = rows[batch]
        steps.zero_grad()
        out, sparse = forward(at)
        loss = torch.nn.functional.cross_entropy(out, y[at]) - SPARSITY * sparse
        loss.backward()
        steps.step()


def averaged(x, y, parts, rounds, rng):
    model = network(x.shape[1], 2)
    shares = np.array([len(p) for p in parts]) / sum(map(len, parts))
    for _ in range(rounds):
        begin = {k: v.clone() for k, v in model.state_dict().items()}
        total = {k: torch.zeros_like(v, dtype=torch.float32) for k, v in begin.items()}
        for rows, share in zip(parts, shares, strict=True):
            model.load_state_dict(begin)
            steps = torch.optim.Adam(model.parameters(), lr=RATE)
            epoch(model, lambda at: model(x[at]), y, steps, rng, rows)
            for k, v in model.state_dict().items():
                total[k] += share * v.float()
        model.load_state_dict({k: total[k].to(begin[k].dtype) for k in begin})
    model.eval()
    return lambda rows: model(rows)[0]


def cut(x, y, columns, rounds, rng):
    encoders = torch.nn.ModuleList(network(len(c), CUT) for c in columns)
    joint = torch.nn.Linear(CUT * len(columns), 2)
    model = torch.nn.ModuleList([encoders, joint])

    def forward(rows):
        found = [e(rows[:, c]) for e, c in zip(encoders, columns, strict=True)]
        return joint(torch.cat([f[0] for f in found], dim=1)), sum(f[1] for f in found)

    steps = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(rounds):
        epoch(model, lambda at: forward(x[at]), y, steps, rng, np.arange(len(x)))
    model.eval()
    return lambda rows: forward(rows)[0]


def main():
    real, job = sys.stdout, read_job()
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    rng = np.random.default_rng(job["seed"])
    with np.load(job["path"]) as file:
        x, test = (torch.from_numpy(file[n]) for n in ("features", "test_features"))
        y, some = torch.from_numpy(file["y"]).long(), file["some"]
        parts = (
            [file[f"rows {i}"] for i in range(job["parties"])] if job["mode"] != "vertical" else []
        )
        columns = [file[f"columns {i}"] for i in range(job["parties"])] if not parts else []
    begin = time.process_time()
    if parts:
        predict = averaged(x, y, parts, job["rounds"], rng)
    else:
        predict = cut(x, y, columns, job["rounds"], rng)
    seconds = time.process_time() - begin
    with torch.no_grad():
        found = [torch.softmax(predict(r), dim=1)[:, 1].tolist() for r in (test, x[some])]
    print(json.dumps({"cpu_seconds": [seconds], "test": found[0], "train": found[1]}), file=real)


main()
