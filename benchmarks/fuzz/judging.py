"""What every kind of input shares: how it is tried, and that its answer makes sense."""

from collections.abc import Callable
from typing import Any

import numpy as np

Attempt = Callable[[np.random.Generator, int], None]


class WrongAnswerError(Exception):
    """An input was taken and the answer makes no sense: NaN, or no probability."""


def require(holds: bool, text: str) -> None:
    if not holds:
        raise WrongAnswerError(text[:300])


def pick(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """MessagePack with some bytes changed, lost or added, heads of absurd lengths among them."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(found) + 1))
        match int(rng.integers(4)):
            case 0:
                found[at : at + 1] = rng.bytes(1)
            case 1:
                found = found[:at]
            case 2:
                heads = (b"\xdd", b"\xdf", b"\xc9", b"\xdb", b"\xc6", b"\xdc", b"\xc7\x10\x01")
                found[at:at] = pick(rng, heads) + b"\x0f\xff\xff\xff"
            case 3:
                found[at:at] = rng.bytes(int(rng.integers(1, 6)))
    return bytes(found)
