"""What every worker shares: read the job, time the action, report one JSON line.

A worker is run by the peer's own python, with a JSON job on standard input. Its one line on
standard output holds CPU and wall seconds per repeat and the memory peak in MB above ``base_mb``,
the resident size once libraries and data are loaded. The peak is the kernel's high-water mark of
this process (VmHWM); ru_maxrss would start at the parent's peak and hide ours. Pages of libraries'
files that are first used later, mostly code, are no part of what is added.
"""

import contextlib
import json
import resource
import sys
import time
from pathlib import Path

MAPPED = []  # pages of files when memory was last measured


def read_job():
    """The job, under its memory limit; from here on prints of the peer go to standard error."""
    job = json.load(sys.stdin)
    limit = int(job.get("memory_gb", 8) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.stdout = sys.stderr
    return job


def peak_mb():
    """The highest resident size of this process so far."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _status(name):
    """What the kernel says of this process, in MB; 0 where it does not."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0


def start_memory():
    """Forget earlier peaks where the kernel allows it, and return the base in MB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    MAPPED.append(_status("RssFile"))
    return peak_mb()


def timed(action, repeats, warmups=1, before=None):
    """Run the action; its last value and the seconds of each repeat after the warm-ups.

    ``before`` runs ahead of every repeat and is not timed.
    """
    cpu, wall, value = [], [], None
    for turn in range(warmups + repeats):
        if before is not None:
            before()
        begin_cpu, begin_wall = time.process_time(), time.perf_counter()
        value = action()
        if turn >= warmups:
            cpu.append(time.process_time() - begin_cpu)
            wall.append(time.perf_counter() - begin_wall)
    return value, {"cpu_seconds": cpu, "wall_seconds": wall}


def report(base_mb, **values):
    """Print the one line that the runner reads."""
    peak = peak_mb() - (_status("RssFile") - MAPPED[-1])
    memory = {"base_mb": base_mb, "peak_mb": peak, "added_mb": peak - base_mb}
    print(json.dumps({**values, **memory}), file=sys.__stdout__, flush=True)
