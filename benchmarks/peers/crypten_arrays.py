"""CrypTen 0.4.1: product and truncation on additive shares, a process a party.

Multiplication triples come from one party that is trusted with them (``TFP``, the default; the
other kind is for two parties only), so there is no preparation to count. Numbers have 16 fractional
bits, 64 in all. Reading models from ONNX does not import under torch 2.13 and is left out: nothing
here reads a model.
"""

import multiprocessing
import os
import socket
import sys
import time
import types

import numpy as np
from arrays import inputs, summary
from measure import read_job, report, start_memory


def load():
    converter = types.ModuleType("crypten.nn.onnx_converter")
    converter.from_onnx = converter.from_pytorch = converter.from_tensorflow = None
    converter.TF_AND_TF2ONNX = False
    sys.modules["crypten.nn.onnx_converter"] = converter
    import crypten

    return crypten


def party(rank, job, port, queue):
    settings = {"RANK": rank, "WORLD_SIZE": job["parties"], "DISTRIBUTED_BACKEND": "gloo",
                "RENDEZVOUS": f"tcp://127.0.0.1:{port}"}  # fmt: skip
    os.environ.update({key: str(value) for key, value in settings.items()})
    import torch

    torch.set_num_threads(job["threads"])
    crypten = load()
    crypten.init()
    a, b, expected = inputs(job["kind"], job["elements"])
    whole = {"precision": 0} if job["kind"] == "product" else {}
    x, y = (crypten.cryptensor(torch.tensor(v), **whole) for v in (a, b))
    cpu, wall = [], []
    for _ in range(job["repeats"] + 1):
        crypten.communicator.get().barrier()
        begin = time.process_time(), time.perf_counter()
        found = x * y
        cpu.append(time.process_time() - begin[0])
        wall.append(time.perf_counter() - begin[1])
    off = np.abs(found.get_plain_text().numpy() - expected).max()
    queue.put((cpu[1:], wall[1:], float(off)))


def main():
    job = read_job()
    base = start_memory()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    every = [
        context.Process(target=party, args=(rank, job, port, queue), daemon=True)
        for rank in range(job["parties"])
    ]
    for process in every:
        process.start()
    found = [queue.get(timeout=300) for _ in every]
    for process in every:
        process.join()
    report(base, **summary(found))


if __name__ == "__main__":
    main()
