"""MPyC 0.11: product and truncation on Shamir shares, a process a party.

Products are of the field of 2^127 − 1; truncation of fixed-point arrays of 64 bits
with 40 fractional ones. Random bits and masks are made when they are needed, inside the timed part.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
from arrays import inputs, summary
from measure import read_job, report, start_memory


def main():
    job = read_job()
    base = start_memory()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] % 20000 + 10000
    told = {**os.environ, "MPYC_JOB": json.dumps(job)}
    count = job["parties"]
    command = [sys.executable, __file__, f"-M{count}", "-B", str(port), "--no-log"]
    every = [
        subprocess.Popen([*command, "-I", str(i)], env=told, stdout=subprocess.PIPE, text=True)
        for i in range(count)
    ]
    said = [process.communicate(timeout=900)[0] for process in every]
    report(base, **summary([json.loads(text.splitlines()[-1]) for text in said]))


async def party(job):
    from mpyc.runtime import mpc

    await mpc.start()
    a, b, expected = inputs(job["kind"], job["elements"])
    if job["kind"] == "kernel":
        return await kernel(mpc, job)
    if job["kind"] == "product":
        kind = mpc.SecFld(2**127 - 1)
        x, y = (kind.array(kind.field.array(v.astype(object))) for v in (a, b))
    else:
        kind = mpc.SecFxp(64, 40)
        x, y = kind.array(a), kind.array(b)
    x, y = mpc.input(x, senders=0), mpc.input(y, senders=0)
    await mpc.gather(x, y)
    cpu, wall = [], []
    for _ in range(job["repeats"]):
        await mpc.barrier()
        begin = time.process_time(), time.perf_counter()
        found = x * y
        await mpc.gather(found)
        cpu.append(time.process_time() - begin[0])
        wall.append(time.perf_counter() - begin[1])
    opened = await mpc.output(found)
    if job["kind"] == "product":
        plain = np.array([int(v) for v in opened], dtype=object)
        opened = np.where(plain > 2**126, plain - (2**127 - 1), plain)
    await mpc.shutdown()
    return cpu, wall, float(np.abs(np.array(opened, dtype=float) - expected).max())


async def kernel(mpc, job):
    """Products of one party's own numbers, of which another party computes none."""
    field = mpc.SecFld(2**127 - 1).field
    rng = np.random.default_rng(0)
    x, y = (
        field.array(np.array([int.from_bytes(rng.bytes(15)) for _ in range(job["elements"])], "O"))
        for _ in "ab"
    )
    cpu, wall = [], []
    for _ in range(job["repeats"]):
        begin = time.process_time(), time.perf_counter()
        x * y
        cpu.append((time.process_time() - begin[0]) / job["parties"])
        wall.append(time.perf_counter() - begin[1])
    await mpc.shutdown()
    return cpu, wall, 0.0


if __name__ == "__main__":
    if "MPYC_JOB" in os.environ:
        found = asyncio.run(party(json.loads(os.environ["MPYC_JOB"])))
        print(json.dumps(found), flush=True)
    else:
        main()
