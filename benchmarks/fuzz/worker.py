"""A process that tries inputs, one after another, and says what came of each.

    python -m benchmarks.fuzz.worker SEED KIND:FIRST:LAST …

It writes a line a try: ``= kind`` when a kind is prepared, ``> number`` before an input, ``+`` if
it was answered, ``-`` if it was refused by an error of ours, ``! text`` if it failed. Whoever reads
sees where it stands if it dies or hangs. An input is drawn from the seed, the kind and its number
alone, so that it can be tried again.

Limits: 2 GB of addresses beyond what the process has when a kind is prepared, 0.75 GB of memory and
20 seconds of computing for one input.
"""

import importlib
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from benchmarks.fuzz.judging import Attempt, WrongAnswerError
from fedcircuits.errors import FedcircuitsError

KINDS = ("messages", "frames", "files", "tables", "questions", "requests", "records")
ADDRESSES = 2 << 30
MEMORY = 768 << 20
SECONDS = 20.0
LONGEST_ERROR = 4000


def say(text: str) -> None:
    os.write(1, text.encode("utf-8", "backslashreplace") + b"\n")


def outcome(attempt: Attempt, rng: np.random.Generator, number: int) -> str:
    begin, before = time.process_time(), _peak()
    try:
        attempt(rng, number)
    except FedcircuitsError as error:
        found = _of_ours(error)
    except WrongAnswerError as error:
        found = f"! a wrong answer{_where(error)}: {error}"
    except BaseException as error:
        found = f"! {type(error).__name__}{_where(error)}: {str(error)[:200]!r}"
    else:
        found = "+"
    seconds, memory = time.process_time() - begin, _peak() - before
    if seconds > SECONDS and found[0] != "!":
        found = f"! slow: {seconds:.0f} seconds of computing"
    if memory > MEMORY and found[0] != "!":
        found = f"! large: {memory >> 20} MB of memory"
    return found


def _of_ours(error: FedcircuitsError) -> str:
    """An error must be one that can be shown: encoded, and not as long as the input."""
    text = str(error)
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"! an error that cannot be printed{_where(error)}: {text[:200]!r}"
    if len(text) > LONGEST_ERROR:
        return f"! a very long error{_where(error)}: {text[:200]!r}"
    return "-"


def _where(error: BaseException) -> str:
    """The last place in the package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "judging" not in f.filename]
    own = [f for f in frames if f"src{os.sep}fedcircuits" in f.filename] or frames
    if not own:
        return ""
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _limit_addresses() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    seed = int(sys.argv[1])
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        for part in sys.argv[2:]:
            kind, first, last = part.split(":")
            prepare = importlib.import_module(f"benchmarks.fuzz.{kind}").prepare
            attempt = prepare(Path(folder))
            _limit_addresses()
            say(f"= {kind}")
            for number in range(int(first), int(last)):
                say(f"> {number}")
                rng = np.random.default_rng([seed, KINDS.index(kind), number])
                say(outcome(attempt, rng, number))


if __name__ == "__main__":
    main()
