"""SecretFlow SPU 0.9.5: product and truncation by ABY3, three threads of one process.

Numbers are of 128 bits with 40 fractional ones (``bits`` and ``fraction`` of the job say others).
Shares are dealt before the clock starts; whatever is prepared is made inside ``run``. Parties pass
messages in memory.
"""

import threading
import time

import numpy as np
from arrays import inputs, summary
from measure import read_job, report, start_memory


def main():
    job = read_job()
    import jax

    jax.config.update("jax_enable_x64", True)
    import spu
    import spu.utils.frontend as frontend

    base = start_memory()
    a, b, expected = inputs(job["kind"], job["elements"])
    field = {64: spu.libspu.FieldType.FM64, 128: spu.libspu.FieldType.FM128}[job["bits"]]
    config = spu.libspu.RuntimeConfig(protocol=spu.libspu.ProtocolKind.ABY3, field=field)
    config.fxp_fraction_bits = job["fraction"]
    secret = spu.libspu.Visibility.VIS_SECRET

    def act(x, y):
        return x * y

    code, _ = frontend.compile(
        frontend.Kind.JAX, act, (a, b), {}, ["a", "b"], [secret] * 2, lambda out: ["out"]
    )
    io = spu.Io(3, config)
    dealt = {"a": io.make_shares(a, secret), "b": io.make_shares(b, secret)}
    cpu, wall, found = [], [], None
    for _ in range(job["repeats"] + 1):
        seconds, found = once(spu, config, code, dealt)
        cpu.append(seconds[0])
        wall.append(seconds[1])
    off = float(np.abs(np.asarray(io.reconstruct(found)) - expected).max())
    report(base, **summary([(cpu[1:], wall[1:], off)]))


def once(spu, config, code, dealt):
    ends = spu.libspu.link.Desc()
    for rank in range(3):
        ends.add_party(f"party {rank}", f"thread {rank}")
    ready, found = threading.Barrier(4), [None] * 3

    def party(rank):
        own = spu.Runtime(spu.libspu.link.create_mem(ends, rank), spu.libspu.RuntimeConfig(config))
        for name, shares in dealt.items():
            own.set_var(name, shares[rank])
        ready.wait()
        own.run(code)
        found[rank] = own.get_var("out")

    threads = [threading.Thread(target=party, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    begin = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.process_time() - begin[0], time.perf_counter() - begin[1]), found


if __name__ == "__main__":
    main()
